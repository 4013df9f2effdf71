"""What `tfexport bench` prints is measured and belongs together."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import onnx_ir as ir
import pytest
import torch

from tests.cli.conftest import Cli
from tfexport.bench import BenchOptions, BenchReport, bench_bundle, size_on_disk
from tfexport.recompute import recompute_greedy
from tfexport_runtime.errors import InputError
from tfexport_train.checkpoint import Checkpoint, load_checkpoint


@pytest.fixture(scope="module")
def report(tiny_bundle: Path, tiny_checkpoint_file: Path) -> BenchReport:
    return bench_bundle(
        tiny_bundle,
        BenchOptions(
            checkpoint=partial(load_checkpoint, tiny_checkpoint_file),
            threads=1,
            sentences=3,
            repeats=2,
            forced_tokens=12,
            profile=True,
        ),
    )


def test_recomputing_loop_gives_the_tokens_of_cached_steps(tiny_checkpoint: Checkpoint) -> None:
    model, source = tiny_checkpoint.build_model(), [7, 30, 31, 2]
    config = model.config
    with torch.inference_mode():
        ids = torch.tensor([source])
        cache = model.start(ids, torch.ones_like(ids, dtype=torch.bool))
        tokens = [config.start_id]
        for _ in range(9):
            logits, cache = model.step(torch.tensor([[tokens[-1]]]), cache)
            logits[0, [config.pad_id, config.start_id, config.eos_id]] = -torch.inf
            tokens.append(int(logits.argmax()))
    assert recompute_greedy(model, source, 9) == tokens[1:]


def test_comparison_is_of_the_same_tokens(report: BenchReport) -> None:
    assert report.comparison is not None
    assert report.comparison.tokens == 12
    assert report.comparison.same_tokens
    first, *_, last = report.comparison.rows
    assert report.comparison.ratio == first.minimum / last.minimum
    assert all(0 < row.minimum <= row.median for row in report.comparison.rows)


def test_comparison_fits_the_limit_of_the_model(tiny_bundle: Path, tiny_checkpoint_file: Path) -> None:
    options = BenchOptions(
        checkpoint=partial(load_checkpoint, tiny_checkpoint_file), threads=1, sentences=1, repeats=1, forced_tokens=1000
    )
    comparison = bench_bundle(tiny_bundle, options).comparison
    assert comparison is not None
    assert comparison.tokens == 63


def test_every_search_is_measured_alone_and_in_a_batch(report: BenchReport) -> None:
    assert [(s.search, s.batch) for s in report.speeds] == [("greedy", 1), ("greedy", 3), ("beam 4", 1), ("beam 4", 3)]
    for speed in report.speeds:
        assert 0 < speed.token_p50 <= speed.token_p95
        assert speed.token_p50 <= speed.sentence_p50 <= speed.sentence_p95
        assert speed.tokens_per_second > 0


def test_profile_names_the_operators_of_the_graph_and_adds_up(report: BenchReport, tiny_bundle: Path) -> None:
    assert report.profile is not None
    calls = {row.operator: row.calls for row in report.profile}
    decoder = ir.load(tiny_bundle / "decoder.onnx")
    layers = sum(node.op_type == "GroupQueryAttention" for node in decoder.graph)
    assert calls["GroupQueryAttention"] == layers > 0
    assert sum(row.share for row in report.profile) == pytest.approx(1, abs=0.25)  # medians need not add up
    assert [row.milliseconds for row in report.profile] == sorted(
        (r.milliseconds for r in report.profile), reverse=True
    )


def test_size_is_that_of_all_files(report: BenchReport, tiny_bundle: Path) -> None:
    assert report.size == sum(len(p.read_bytes()) for p in tiny_bundle.iterdir()) == size_on_disk(tiny_bundle)


def test_cold_start_is_of_a_process_without_torch(report: BenchReport) -> None:
    assert report.cold_start.load_seconds > 0
    assert report.cold_start.peak_memory is not None
    assert 2**20 < report.cold_start.peak_memory < 200 * 2**20  # importing torch alone takes more


def test_json_and_table_show_the_ratio(cli: Cli, tiny_bundle: Path, tiny_checkpoint_file: Path) -> None:
    flags = ("--checkpoint", tiny_checkpoint_file, "--threads", "1", "--sentences", "1", "--repeats", "1")
    found = json.loads(cli("bench", tiny_bundle, *flags, "--json").out)
    assert found["comparison"]["ratio"] > 0
    assert found["machine"]["threads"] == 1
    table = cli("bench", tiny_bundle, *flags)
    assert table.err == ""
    assert "times as fast as recomputing everything, with the same tokens" in table.out


def test_facts_about_no_checkpoint_are_refused(cli: Cli, tiny_bundle: Path) -> None:
    cli("bench", tiny_bundle, "--set", "heads=4").failed_with(2, "--checkpoint")


def test_text_without_a_word_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match=r"empty\.txt"):
        bench_bundle(tiny_bundle, BenchOptions(text=tmp_path / "empty.txt", threads=1))
