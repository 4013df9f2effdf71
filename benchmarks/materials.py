"""What the contenders load, made from one checkpoint and kept in a cache folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.arena import environment
from benchmarks.errors import BenchmarkError
from benchmarks.places import BASE_CONFIG, ROOT
from benchmarks.roster import BY_NAME, OURS_EXACT
from benchmarks.texts import random_texts
from tfexport_runtime.tokenizer import Tokenizer

EXPORT_SOURCES = ("tfexport", "train/tfexport_train", "runtime/python/tfexport_runtime")
CONVERT_SOURCES = ("benchmarks/convert",)


@dataclass(frozen=True)
class Workshop:
    """Makes what is wanted, and takes it from the cache when neither weights nor sources changed."""

    checkpoint: Path
    folder: Path
    peers: Path  # the interpreter that has the peers
    given: Mapping[str, Path] = field(default_factory=dict)  # materials that the caller brought
    calibration: Path | None = None  # text for activations in fixed steps
    note: Callable[[str], None] = lambda message: None
    reuse: bool = False  # take what is there, from whatever sources it was made

    def material(self, key: str) -> Path:
        """Raises BenchmarkError with what the maker said."""
        if key == "checkpoint":
            return self.checkpoint
        if key in self.given:
            return self.given[key]
        target, stamp = self.folder / key, self.folder / f"{key}.made.json"
        made_from = self._fingerprint(key)
        known = json.loads(stamp.read_text(encoding="utf-8")) if stamp.exists() and target.exists() else {}
        is_fresh = known == made_from or (self.reuse and known.get("weights") == made_from["weights"])
        if not is_fresh:
            self.note(f"making {target.name} ...")
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            _run(self._command(key, target))
            stamp.write_text(json.dumps(made_from), encoding="utf-8")
        return target

    def _command(self, key: str, target: Path) -> Sequence[str]:
        kind, _, form = key.partition("-")
        checkpoint = str(self.checkpoint)
        if kind == "bundle":
            precision, _, is_calibrated = form.partition("-")
            flags = ["--precision", precision, "--force"]
            if is_calibrated:
                flags += ["--calibrate", str(self.calibration)]
            return [sys.executable, "-m", "tfexport", "export", checkpoint, "-o", str(target), *flags]
        if kind == "ctranslate2":
            return self._convert("ctranslate2_model", checkpoint, str(target), form)
        if kind == "slimt_model":
            return self._convert(kind, str(self.given["slimt"]), str(target))
        return self._convert("optimum_model", checkpoint, str(target))

    def _convert(self, module: str, *arguments: str) -> Sequence[str]:
        if not self.peers.exists():
            raise BenchmarkError("the peers are not installed; run: make bench-peers")
        return [str(self.peers), "-m", f"benchmarks.convert.{module}", *arguments]

    def _fingerprint(self, key: str) -> dict[str, str]:
        sources = EXPORT_SOURCES if key.startswith("bundle") else CONVERT_SOURCES
        files = (file for folder in sources for file in sorted((ROOT / folder).rglob("*.py")))
        return {"weights": _digest([self.checkpoint]), "sources": _digest(files)}


def calibration_text(tokenizer: Tokenizer, path: Path) -> Path:
    """Random texts, for models that were never trained; others than those that are timed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in random_texts(tokenizer, 64, 20, seed=1)), encoding="utf-8")
    return path


def untrained_base(folder: Path) -> Path:
    """The checkpoint of train/configs/base.yaml with the weights that training would begin with."""
    path = folder / "base.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "tfexport", "init", str(BASE_CONFIG), "-o", str(path)])
    return path


def size_on_disk(key: str, path: Path) -> int:
    """Bytes that somebody would ship: our tokenizer beside a peer's model is not counted."""
    folder = path / "model" if key.startswith(("ctranslate2", "optimum")) else path
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _digest(files: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for file in files:
        with open(file, "rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(BY_NAME[OURS_EXACT], 2),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BenchmarkError(f"{' '.join(command[1:4])}: {lines[-1] if lines else 'failed'}")
