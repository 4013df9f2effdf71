"""What the comparison says follows from what it measured. No peer is needed here."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from benchmarks.arena import Arena, Worker
from benchmarks.bandwidth import weights_of_a_step
from benchmarks.convert.slimt_model import with_whole_vocabulary
from benchmarks.errors import BenchmarkError
from benchmarks.places import ROOT
from benchmarks.plan import TARGETS, Row, rows, trained_rows
from benchmarks.report import Results, tables
from benchmarks.roster import BY_NAME, OURS_EXACT
from benchmarks.speed import RowResult, Timing, ratios
from benchmarks.texts import random_texts
from benchmarks.work import Work
from tfexport_runtime.translator import Translator
from tfexport_train.checkpoint import Checkpoint


def timing(*rounds: float) -> Timing:
    return Timing(min(rounds), sorted(rounds)[len(rounds) // 2], list(rounds))


def test_every_target_is_a_row_of_the_default_run() -> None:
    planned = {(row.threads, row.label, name) for row in rows("default", (2, 1)) for name in row.contenders}
    for target in TARGETS:
        assert (target.threads, target.label, target.peer) in planned
        assert (target.threads, target.label, target.ours) in planned


def test_full_run_has_every_combination() -> None:
    found = {(r.threads, r.batch, r.beam, r.source) for r in rows("full", (2, 1)) if r.tokens == 64}
    assert len(found) == 2 * 3 * 2 * 2
    assert {row.threads for row in trained_rows("full", (2, 1))} == {1, 2}


@pytest.mark.parametrize("entry", [entry for entry in BY_NAME.values() if entry.module], ids=lambda entry: entry.module)
def test_every_contender_has_its_module(entry: object) -> None:
    assert (ROOT / "benchmarks" / "contenders" / f"{entry.module}.py").is_file()  # type: ignore[attr-defined]


def test_ratio_is_of_the_same_round_and_is_judged() -> None:
    row = Row(2, 1, 1, ("CTranslate2 int8", "tfexport int8"))
    times = {"CTranslate2 int8": timing(0.4, 0.2, 0.3), "tfexport int8": timing(0.2, 0.1, 0.3)}
    (ratio,) = ratios([RowResult(row, 1, times)])
    assert (ratio.median, ratio.lowest, ratio.highest) == pytest.approx((2.0, 1.0, 2.0))
    assert (ratio.must, ratio.goal, ratio.verdict) == (1.5, 2.5, "must")


def test_figures_are_per_step_or_per_sentence() -> None:
    forced = RowResult(Row(2, 8, 1, ()), 8, {"tfexport fp32": timing(0.64)})
    natural = RowResult(Row(2, None, 1, (), None, None, "trained"), 20, {"tfexport fp32": timing(0.5)})
    assert forced.figure("tfexport fp32") == pytest.approx(10)
    assert natural.figure("tfexport fp32") == pytest.approx(25)
    assert natural.sentences_per_second("tfexport fp32") == pytest.approx(40)


def test_tables_hold_only_what_was_measured() -> None:
    results = Results({"processor": "one"})
    results.rows.append(RowResult(Row(2, 1, 1, ("tfexport fp32",)), 1, {"tfexport fp32": timing(0.064, 0.128)}))
    titles = [title for title, _, _ in tables(results)]
    assert len(titles) == 3
    assert tables(results)[1][2] == [["B1 K1", "1.00 (2.00)"]]
    assert tables(results)[2][2] == [["B1 K1, 2 threads", "15.6"]]


def test_weights_of_a_step_are_those_of_the_decoder(tiny_checkpoint: Checkpoint) -> None:
    model = tiny_checkpoint.build_model()
    counted = model.output.weight.numel()
    for name, weight in model.decoder_layers.named_parameters():
        if weight.dim() == 2 and not name.endswith(("cross_attention.k_proj.weight", "cross_attention.v_proj.weight")):
            counted += weight.numel()
    assert weights_of_a_step(tiny_checkpoint.config) == counted


def test_a_shortlist_of_slimt_is_widened_to_all_words() -> None:
    lists = struct.pack("<4Q2I", 0, 1, 1, 2, 7, 8)  # offsets of three words, and two entries
    widened = with_whole_vocabulary(struct.pack("<6Q", 9, 0, 1, 1, 4, 2) + lists)
    magic, checksum, always, best, offsets, entries = struct.unpack_from("<6Q", widened)
    assert (magic, always, best, offsets, entries) == (9, 3, 1, 4, 2)
    assert widened[48:] == lists
    total = 0  # as slimt reads it: every word of 64 bits behind the checksum, with wrapping sums
    for word in (3, 1, 4, 2, 0, 1, 1, 2, 7 + (8 << 32)):
        total ^= (word + 0x9E3779B9 + (total << 6) % 2**64 + total // 4) % 2**64
    assert checksum == total


def test_worker_translates_as_the_bundle_does_and_stands_still_between(tiny_bundle: Path) -> None:
    translator = Translator(tiny_bundle)
    texts = random_texts(translator.bundle.source_tokenizer(), 3, 5)
    forced = {"beam_size": 1, "min_length": 6, "max_length": 6, "max_length_ratio": None}
    expected = [list(t.best.ids) for t in translator.translate(texts, translator.options(forced))]
    with Arena([Worker(BY_NAME[OURS_EXACT], Path(sys.executable), tiny_bundle, 1)]) as arena:
        work = vars(Work(texts, 1, 6, 2))
        ((answer,),) = arena.take_turns([OURS_EXACT], {"do": "run", "work": work}, 1).values()
        assert answer["ids"] == expected
        timed = arena.workers[OURS_EXACT].ask({"do": "time", "work": work, "seconds": 0})
        assert len(timed["seconds"]) == 1
        assert arena.workers[OURS_EXACT].is_stopped()
        lengths = vars(Work(texts, 1, None, None, (4, 2, 3)))
        answer = arena.workers[OURS_EXACT].ask({"do": "run", "work": lengths})
        assert [len(ids) for ids in answer["ids"]] == [4, 2, 3]


def test_worker_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"tfexport fp32: .*bundle\.json"):
        Worker(BY_NAME[OURS_EXACT], Path(sys.executable), tmp_path, 1)
