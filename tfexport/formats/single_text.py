"""The single graph once more with SentencePiece inside: texts in, texts out, for ONNX Runtime in Python.

Its operators come from the package onnxruntime-extensions, which a host must register before it loads the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tfexport.errors import ExportError
from tfexport.formats.format import Work
from tfexport.graphs.text_graph import TEXT, TRANSLATION, SourceText, build_text_search
from tfexport.parity import ParityRow
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.errors import UnavailableError
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.search_graph import options_input
from tfexport_runtime.translation import Translation
from tfexport_train.evaluate import TorchTranslator

TEXT_FILE = "translate.onnx"  # beside the search, over the same weights
TOGETHER = 32  # texts of a call
TIES = 20  # one text in so many may differ: versions of SentencePiece part pieces of equal score in their own way


def check_text(work: Work) -> None:
    """Raises ExportError for other tokenizers, UnavailableError where the operators are not installed."""
    if {work.checkpoint.source.kind, work.checkpoint.target.kind} != {"sentencepiece"}:
        raise ExportError("--with-tokenizer is for SentencePiece models; leave it out, and give ids to the graph")
    if work.options.attention or work.options.encoder_state:
        raise ExportError("--with-tokenizer gives texts and scores only; leave out it, or --with")
    operator_library()


def operator_library() -> str:
    """Path of the operators. Raises UnavailableError."""
    try:
        import onnxruntime_extensions
    except ImportError as error:
        raise UnavailableError(
            'a tokenizer in the graph needs onnxruntime-extensions; run: pip install "tfexport[extensions]"'
        ) from error
    return str(onnxruntime_extensions.get_library_path())


def write_text_search(work: Work, search: ir.Model) -> None:
    """search: as it was written; it is used up."""
    checkpoint, config = work.checkpoint, work.checkpoint.config
    texts = TorchTranslator(work.model, checkpoint.source, checkpoint.target).vocabularies
    source = SourceText(
        texts.before, texts.after, texts.max_source_length, config.source_vocab_size, config.unk_id, config.pad_id
    )
    proto = build_text_search(search, source, checkpoint.source.model, checkpoint.target.model)
    (work.folder / TEXT_FILE).write_bytes(proto.SerializeToString())


def translate_texts(bundle: Bundle, texts: Sequence[str], options: TranslationOptions) -> list[str]:
    """The best translation of each, a few at a time; a text that is too long is cut."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.register_custom_ops_library(operator_library())
    path = str(bundle.path(TEXT_FILE))
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    longest = bundle.manifest.model.max_target_length if options.max_length is None else options.max_length
    settled = {
        "beam_size": np.array([options.beam_size]),
        "max_length": np.array([longest]),
        "options": options_input(options),
    }
    found = []
    for start in range(0, len(texts), TOGETHER):
        some = np.array(texts[start : start + TOGETHER], np.object_)
        found += session.run([TRANSLATION], {TEXT: some, **settled})[0].tolist()
    return found


def compare_texts(
    bundle: Bundle, texts: Sequence[str], expected: Sequence[Translation], options: TranslationOptions
) -> list[ParityRow]:
    """Against the texts of PyTorch; nothing where the bundle has no such graph."""
    if TEXT_FILE not in bundle.manifest.files:
        return []
    found = translate_texts(bundle, texts, options)
    others = [i for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)) if ours != theirs.text]
    where = f"sentence {others[0]}" if others else ""
    return [ParityRow("texts in, texts out: other texts", len(others), len(texts) // TIES, len(texts), where)]
