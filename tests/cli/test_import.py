"""tfexport import, inspect and export on checkpoints of other kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.checkpoints.test_key_map import MAP, Unusual
from tests.checkpoints.tutorial_classes import with_random_weights
from tests.checkpoints.tutorial_forms import FORMS, greedy_by_recompute
from tests.cli.conftest import Cli
from tfexport_train.checkpoint import load_checkpoint

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "der", "hund", "läuft", "über", "die", "wiese", "zum", "see", "nicht"]
FACTS = ("--set", "heads=4")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """An Annotated Transformer as its training loop saves it, and word lists of 11 and 13 tokens."""
    torch.save({"model": FORMS["annotated"].module().state_dict()}, tmp_path / "foreign.pt")
    (tmp_path / "source.txt").write_text("\n".join(WORDS[:11]) + "\n", encoding="utf-8")
    (tmp_path / "target.txt").write_text("\n".join(WORDS[:13]) + "\n", encoding="utf-8")
    return tmp_path / "foreign.pt"


def tokenizers(foreign: Path) -> list[object]:
    return [
        *("--source-tokenizer", foreign.with_name("source.txt")),
        *("--target-tokenizer", foreign.with_name("target.txt")),
    ]


def test_import_writes_a_checkpoint_of_this_project(cli: Cli, foreign: Path, tmp_path: Path) -> None:
    result = cli("import", foreign, "-o", tmp_path / "ckpt.pt", *FACTS, *tokenizers(foreign))
    assert result.status == 0, result
    assert "as the published class has it: norm_position pre" in result.err
    loaded = load_checkpoint(tmp_path / "ckpt.pt")
    assert (loaded.config.num_heads, loaded.config.norm) == (4, "unbiased_layer_norm")
    assert loaded.source.tokenizer(3).encode("der hund") == [4, 5]
    assert cli("inspect", tmp_path / "ckpt.pt").out.lstrip().startswith("tfexport checkpoint")


@pytest.mark.parametrize("name", ["foreign.pt.yaml", "foreign.yaml", "elsewhere.yaml"])
def test_facts_may_lie_in_a_file(cli: Cli, foreign: Path, tmp_path: Path, name: str) -> None:
    facts = "heads: 2\nsource_tokenizer: source.txt\ntarget_tokenizer: target.txt\n"
    (tmp_path / name).write_text(facts, encoding="utf-8")
    given = ("--config", tmp_path / name) if name.startswith("elsewhere") else ()
    assert cli("import", foreign, "-o", tmp_path / "ckpt.pt", *given).status == 0
    assert load_checkpoint(tmp_path / "ckpt.pt").config.num_heads == 2
    assert cli("import", foreign, "-o", tmp_path / "ckpt.pt", *given, "--set", "num_heads=8").status == 0
    assert load_checkpoint(tmp_path / "ckpt.pt").config.num_heads == 8


def test_inspect_tells_what_is_missing_and_what_is_known(cli: Cli, foreign: Path) -> None:
    found = json.loads(cli("inspect", foreign, "--json").out)
    assert found["format"] == "Annotated Transformer"
    assert {fact["name"] for fact in found["missing"]} >= {"num_heads", "pad_id", "--source-tokenizer"}
    assert found["config"]["d_model"] == 16
    assert found["shapes"]["generator.proj.weight"] == [13, 16]
    table = cli("inspect", foreign)
    assert table.status == 0
    assert "num_heads" in table.out
    assert "generator.proj.weight" in table.out


def test_inspect_tells_the_configuration_that_would_be_used(cli: Cli, foreign: Path) -> None:
    found = json.loads(cli("inspect", foreign, "--json", *FACTS, *tokenizers(foreign)).out)
    assert found["missing"] == []
    assert found["config"]["eos_id"] == 2
    assert found["tokenizers"]["target"] == {"kind": "words", "size": 13}


def test_explain_shows_matches_and_left_overs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAP.replace("words_out:", "words_aut:"), encoding="utf-8")
    torch.save(with_random_weights(Unusual()).state_dict(), tmp_path / "m.pt")
    arguments = ["import", tmp_path / "m.pt", "--key-map", tmp_path / "map.yaml", "--ids", "--explain"]
    result = cli(*arguments)
    assert result.status == 4
    assert result.err.count("\n") == 1
    assert "target_embedding.tokens.weight" in result.err
    assert "encoder_layers.1.self_attention.k_proj.weight" in result.out
    assert "transposed, split in 3" in result.out
    found = json.loads(cli(*arguments, "--json").out)
    assert [item["name"] for item in found["unused"]] == ["words_out"]
    assert [item["name"] for item in found["missing"]] == ["target_embedding.tokens.weight"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, ["--output", "--explain"]),
        (["-o", "ckpt.pt"], 4, ["num_heads", "pad_id", "--source-tokenizer"]),
        (["-o", "ckpt.pt", "--set", "heads"], 4, ["NAME=VALUE"]),
        (["-o", "ckpt.pt", "--set", "heds=4"], 4, ["heds"]),
        (["-o", "ckpt.pt", "--config", "none.yaml"], 4, ["none.yaml", "no such file"]),
        (["-o", "ckpt.pt", "--key-map", "none.yaml"], 4, ["none.yaml", "no such file"]),
    ],
)
def test_failure_is_one_line_and_writes_nothing(
    cli: Cli,
    foreign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    status: int,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("import", foreign, *arguments).failed_with(status, *words)
    assert not (tmp_path / "ckpt.pt").exists()


def test_mismatch_with_the_own_class_is_status_3(cli: Cli, foreign: Path, tmp_path: Path) -> None:
    reference = ("--reference", "tests.checkpoints.tutorial_forms:annotated")
    result = cli("import", foreign, "-o", tmp_path / "ckpt.pt", *reference, *tokenizers(foreign), "--set", "heads=2")
    assert result.status == 3
    assert "computes something else than" in result.err
    assert not (tmp_path / "ckpt.pt").exists()


def test_export_takes_a_foreign_checkpoint_as_it_is(cli: Cli, foreign: Path, tmp_path: Path) -> None:
    """From the tutorial's file to a verified bundle that gives the tokens of the tutorial's own greedy loop."""
    bundle = tmp_path / "bundle"
    result = cli("export", foreign, "-o", bundle, *FACTS, *tokenizers(foreign))
    assert result.status == 0, result
    assert "FAILED" not in result.out
    text = "der hund läuft zum see"
    form = FORMS["annotated"]
    source = [1, 4, 5, 6, 10, 3, 2]  # "see" is not among the source's words
    wanted = greedy_by_recompute(form, form.module(), source, 9)
    translated = cli("translate", bundle, "--max-length", "9", stdin=f"{text}\n".encode())
    assert translated.out == " ".join(WORDS[i] for i in wanted) + "\n"
    importing = [*FACTS, *tokenizers(foreign)]
    assert cli("verify", bundle, foreign, "--beam-size", "1", "--alone", "2", *importing).status == 0
    other = cli("verify", bundle, foreign, *importing, "--set", "heads=2")
    assert (other.status, "num_heads is 4, the checkpoint's 2" in other.err) == (4, True)
    other = cli("verify", bundle, foreign, "--beam-size", "1", "--alone", "2", *importing, "--set", "norm_eps=0.1")
    assert (other.status, "FAILED" in other.out) == (3, True)
    few = ("--sentences", "1", "--repeats", "1", "--threads", "1")
    assert "with the same tokens" in cli("bench", bundle, "--checkpoint", foreign, *few, *importing).out
