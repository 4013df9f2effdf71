"""`Translator("bundle/").translate(texts)`: a bundle, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tfexport_runtime.bundle import Bundle, read_bundle
from tfexport_runtime.errors import OptionError
from tfexport_runtime.further_outputs import FurtherModel
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search import Model
from tfexport_runtime.session import SessionOptions, open_model
from tfexport_runtime.step_model import FloatArray
from tfexport_runtime.translation import Translation, Vocabularies, source_ids, translate


class Translator:
    """A bundle, ready to translate. Safe to share between threads.

    Raises BundleError, UnavailableError.
    """

    def __init__(
        self,
        path: str | Path,
        session_options: SessionOptions | None = None,
        verify: bool = True,
        engine: Callable[[Bundle, SessionOptions], Model] = open_model,
    ) -> None:
        """verify=False skips the hashes of the files, which cost a read of the whole bundle.

        engine: what runs the graphs; ONNX Runtime unless their format is of another.
        """
        session_options = session_options or SessionOptions()
        self.bundle = read_bundle(Path(path), verify, weights_later=True)
        self.default_options = self.bundle.manifest.default_options()
        self._target = self.bundle.manifest.search_target()
        with ThreadPoolExecutor(1) as beside:  # hashing the weights takes as long as loading the graphs
            checked = beside.submit(self.bundle.check_weights) if verify else None
            self._model = engine(self.bundle, session_options)
            self._vocabularies = bundle_vocabularies(self.bundle)
            if checked is not None:
                checked.result()
        self._parallel_batches = session_options.parallel_batches

    def translate(
        self,
        texts: Sequence[str],
        options: TranslationOptions | None = None,
        prefixes: Sequence[str] | None = None,
        attention: bool = False,
    ) -> list[Translation]:
        """Translates the texts, in their order. `prefixes` are beginnings of the targets, one for each text.

        attention: hypotheses also tell what their tokens looked at; of a bundle that was exported with it.
        Raises OptionError before any work, and InputError for a text that is too long.
        """
        return translate(
            self._model,
            self._vocabularies,
            self._target,
            texts,
            options or self.default_options,
            prefixes,
            self._parallel_batches,
            attention,
        )

    def encoder_states(self, texts: Sequence[str]) -> list[FloatArray]:
        """The encoder's last hidden states of each text, [source ids, d_model]; of an empty text [0, d_model].

        Raises OptionError where the bundle does not give them, and InputError for a text that is too long.
        """
        model = self._model
        if not isinstance(model, FurtherModel):
            raise OptionError("this engine does not give the encoder's states")
        nothing = np.zeros((0, self.bundle.manifest.model.d_model), np.float32)
        sources = [source_ids(text, i, self._vocabularies, self.default_options) for i, text in enumerate(texts)]
        return [model.encoder_states(source) if source else nothing for source in sources]

    def options(self, changes: Mapping[str, Any]) -> TranslationOptions:
        """The bundle's default options with some changed."""
        return self.default_options.with_changes(changes)


def bundle_vocabularies(bundle: Bundle) -> Vocabularies:
    source, manifest = bundle.manifest.source, bundle.manifest
    return Vocabularies(
        bundle.source_tokenizer(),
        bundle.target_tokenizer(),
        (source.start_id,) * source.add_bos + source.prefix_ids,
        (source.eos_id,) * source.add_eos + source.suffix_ids,
        manifest.model.max_source_length,
    )
