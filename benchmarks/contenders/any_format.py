"""A bundle of any format, in the engine that its format needs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders.bundle import BundleContender
from tfexport.formats.registry import open_any
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.translator import Translator


def load(path: Path, threads: int) -> BundleContender:
    translator = Translator(path, SessionOptions(threads=threads), engine=open_any)
    return BundleContender(translator, early_stopping=False)
