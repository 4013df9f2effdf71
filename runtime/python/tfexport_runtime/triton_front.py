"""The front of a Triton Inference Server repository: strings in, strings out, over the two graphs that the server runs.

`tfexport package triton` writes a model.py of a few lines that calls this. It needs numpy and sentencepiece only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import Array
from tfexport_runtime.errors import OptionError, TfexportError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.manifest import MANIFEST_NAME, Manifest
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.translation import Translation, translate
from tfexport_runtime.translator import bundle_vocabularies

TEXT, OPTIONS = "text", "options"  # inputs: strings [rows, 1]; options as JSON, such as {"beam_size": 4}
TRANSLATION, SCORE = "translation", "score"  # outputs: strings and float32 [rows, 1]
ENCODER, DECODER = "_encoder", "_decoder"  # behind the name of the front: the names of the models that it calls


@dataclass(frozen=True)
class ServedGraph:
    """A graph that the server runs; a tensor in the processor's memory goes in and comes out."""

    server: Any  # the module triton_python_backend_utils
    model_name: str

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        """Raises TritonModelException where the server does not run it."""
        response = self.server.InferenceRequest(
            model_name=self.model_name,
            requested_output_names=list(output_names),
            inputs=[self.server.Tensor(name, np.ascontiguousarray(array)) for name, array in input_feed.items()],
            preferred_memory=self.server.PreferredMemory(self.server.TRITONSERVER_MEMORY_CPU),
        ).exec()
        if response.has_error():
            raise self.server.TritonModelException(response.error().message())
        return [self.server.get_output_tensor_by_name(response, name).as_numpy() for name in output_names]


class Front:
    """What a TritonPythonModel does, for the server's own module `triton_python_backend_utils`."""

    def __init__(self, server: Any, arguments: Mapping[str, str]) -> None:
        """arguments: those of TritonPythonModel.initialize. Raises BundleError."""
        self._server = server
        folder = Path(arguments["model_repository"]) / arguments["model_version"]
        path = folder / MANIFEST_NAME
        bundle = Bundle(Manifest.from_json(path.read_bytes(), str(path)), folder, folder)
        encoder, decoder = (ServedGraph(server, arguments["model_name"] + role) for role in (ENCODER, DECODER))
        self._model = GrowingModel(bundle.manifest, encoder, decoder)
        self._vocabularies, self._target = bundle_vocabularies(bundle), bundle.manifest.search_target()
        self._defaults = bundle.manifest.default_options()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """A response for each request. Those that the server has put together are translated together."""
        try:
            rows = [list(self._rows(request)) for request in requests]
            return [self._response(found) for found in self._translate(rows)]
        except TfexportError as error:
            if len(requests) > 1:  # whose fault it is shows when each is alone
                return [self.execute([request])[0] for request in requests]
            return [self._server.InferenceResponse(error=self._server.TritonError(str(error)))]

    def _rows(self, request: Any) -> Iterator[tuple[str, str]]:
        """Text and options of each row. Raises OptionError for what is not UTF-8."""
        given = [self._server.get_input_tensor_by_name(request, name) for name in (TEXT, OPTIONS)]
        texts = given[0].as_numpy().reshape(-1)
        options = [b""] * len(texts) if given[1] is None else given[1].as_numpy().reshape(-1)
        try:
            for text, changes in zip(texts, options, strict=True):
                yield text.decode("utf-8"), changes.decode("utf-8")
        except UnicodeDecodeError as error:
            raise OptionError(f"{TEXT} and {OPTIONS} must be UTF-8: {error}") from error

    def _translate(self, requests: Sequence[Sequence[tuple[str, str]]]) -> list[list[Translation]]:
        """By request and row. Rows of the same options go together."""
        rows = [(i, text, changes) for i, request in enumerate(requests) for text, changes in request]
        found: list[list[Translation]] = [[] for _ in requests]
        by_options: dict[str, list[Translation]] = {}
        for changes in dict.fromkeys(changes for *_, changes in rows):
            texts = [text for _, text, own in rows if own == changes]
            options = self._options(changes)
            by_options[changes] = translate(self._model, self._vocabularies, self._target, texts, options)[::-1]
        for i, _, changes in rows:
            found[i].append(by_options[changes].pop())
        return found

    def _options(self, changes: str) -> TranslationOptions:
        try:
            given = json.loads(changes or "{}")
            if not isinstance(given, dict):
                raise ValueError("not an object")
            return self._defaults.with_changes(given)
        except ValueError as error:
            raise OptionError(f'{OPTIONS} must be a JSON object, such as {{"beam_size": 4}}: {error}') from error

    def _response(self, translations: Sequence[Translation]) -> Any:
        texts = np.array([[t.text.encode("utf-8")] for t in translations], np.object_)
        scores = np.array([[t.best.score] for t in translations], np.float32)
        tensors = [self._server.Tensor(TRANSLATION, texts), self._server.Tensor(SCORE, scores)]
        return self._server.InferenceResponse(output_tensors=tensors)
