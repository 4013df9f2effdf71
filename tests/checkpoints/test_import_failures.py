"""What does not fit is one clear line that names all of it."""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.checkpoints.tutorial_forms import FORMS, imported
from tfexport.checkpoints import ImportOptions, open_checkpoint
from tfexport.checkpoints.imported import MappingError, MissingFacts
from tfexport_runtime.errors import TfexportError
from tfexport_train.errors import CheckpointError

BATCH_FIRST = "torch, batch first, post-norm, relu, 2+2"
SEQUENCE_FIRST = "torch, sequence first, pre-norm, gelu, 2+2"
NAMES = ["annotated", "blog", BATCH_FIRST]


def refused(content: object, path: Path, facts: dict[str, Any], *words: str, **options: Any) -> TfexportError:
    with pytest.raises(TfexportError) as error:
        imported(content, path, facts, **options)
    message = str(error.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message
    return error.value


def weights_of(name: str) -> dict[str, Tensor]:
    return dict(FORMS[name].module().state_dict())


# Weights ---------------------------------------------------------------------------------------------------------

CHANGED: dict[str, tuple[str, str, list[str]]] = {
    "annotated": (
        "decoder.layers.1.src_attn.linears.2.weight",
        "decoder_layers.1.cross_attention.v_proj.weight",
        ["[16, 16]"],
    ),
    "blog": ("decoder_layers.1.ffn.w_1.weight", "decoder_layers.1.feed_forward.up.weight", ["[24, 16]"]),
    BATCH_FIRST: ("net.decoder.layers.1.linear2.weight", "decoder_layers.1.feed_forward.down.weight", ["[16, 24]"]),
}


@pytest.mark.parametrize("name", NAMES)
def test_wrong_shape_names_both_shapes(name: str, tmp_path: Path) -> None:
    weights, (theirs, ours, shape) = weights_of(name), CHANGED[name]
    weights[theirs] = torch.zeros(5, 7)
    refused(weights, tmp_path / "m.pt", dict(FORMS[name].facts), f"{ours} is [5, 7], expected", *shape)


@pytest.mark.parametrize("name", NAMES)
def test_missing_weight_is_named_with_its_shape(name: str, tmp_path: Path) -> None:
    weights, (theirs, ours, shape) = weights_of(name), CHANGED[name]
    del weights[theirs]
    refused(weights, tmp_path / "m.pt", dict(FORMS[name].facts), f"missing {ours}", *shape)


def test_missing_layer_is_named_with_all_its_weights(tmp_path: Path) -> None:
    weights = {n: t for n, t in weights_of("annotated 3+1").items() if not n.startswith("encoder.layers.1.")}
    error = refused(weights, tmp_path / "m.pt", dict(FORMS["annotated 3+1"].facts), "missing encoder_layers.1.", "more")
    assert isinstance(error, MappingError)
    assert len(error.explanation.missing) == 16
    assert all(item.name.startswith("encoder_layers.1.") for item in error.explanation.missing)


def test_fewer_layers_than_given_names_both_numbers(tmp_path: Path) -> None:
    facts = {**FORMS["annotated"].facts, "num_encoder_layers": 6}
    refused(weights_of("annotated"), tmp_path / "m.pt", facts, "num_encoder_layers=6 was given", "the weights say 2")


@pytest.mark.parametrize("name", NAMES)
def test_extra_weight_is_named(name: str, tmp_path: Path) -> None:
    weights = {**weights_of(name), "adapter.down": torch.zeros(3)}
    refused(weights, tmp_path / "m.pt", dict(FORMS[name].facts), "unused adapter.down [3]")


def test_weight_of_a_misspelt_name_is_shown_with_the_nearest_one(tmp_path: Path) -> None:
    weights = weights_of("blog")
    weights["encoder_layers.1.self_attn.Wq.weight"] = weights.pop("encoder_layers.1.self_attn.W_q.weight")
    error = refused(weights, tmp_path / "m.pt", dict(FORMS["blog"].facts), "nearest")
    assert isinstance(error, MappingError)
    (unused,) = error.explanation.unused
    assert "encoder_layers.1.self_attention.q_proj.weight" in unused.nearest


@pytest.mark.parametrize("flag", [True, False])
def test_tied_flag_that_contradicts_the_weights(flag: bool, tmp_path: Path) -> None:
    name = "annotated" if flag else "blog"
    facts = {**FORMS[name].facts, "tie_output": flag}
    refused(weights_of(name), tmp_path / "m.pt", facts, f"tie_output={flag} was given", f"the weights say {not flag}")


def test_norm_behind_one_stack_only_is_named(tmp_path: Path) -> None:
    weights = {n: t for n, t in weights_of(BATCH_FIRST).items() if not n.startswith("net.encoder.norm")}
    refused(weights, tmp_path / "m.pt", dict(FORMS[BATCH_FIRST].facts), "missing encoder_norm.weight [16]")


# Facts -----------------------------------------------------------------------------------------------------------


def test_everything_that_is_missing_is_listed_at_once_with_the_shapes(tmp_path: Path) -> None:
    torch.save(weights_of(SEQUENCE_FIRST), tmp_path / "m.pt")
    with pytest.raises(MissingFacts) as error:
        open_checkpoint(tmp_path / "m.pt")
    wanted = {*FORMS[SEQUENCE_FIRST].facts, "--source-tokenizer"}
    assert {fact.name for fact in error.value.missing} == wanted
    assert error.value.found["d_ff"] == 24
    message = str(error.value)
    assert "\n" not in message
    assert [name for name in wanted if name not in message] == []
    assert "generator.weight [13, 16]" in message


def test_tables_whose_names_and_shapes_tell_nothing_are_asked_for(tmp_path: Path) -> None:
    weights = weights_of(BATCH_FIRST)
    for old, new in (("enc_embedding", "a"), ("dec_embedding", "b"), ("fc", "c")):
        weights[f"{new}.weight"] = torch.randn(13, 16)
        del weights[f"{old}.weight"]
    facts = dict(FORMS[BATCH_FIRST].facts)
    error = refused(weights, tmp_path / "m.pt", facts, "source_embedding", "a.weight [13, 16]", "c.weight [13, 16]")
    assert isinstance(error, MissingFacts)
    roles = {"source_embedding": "a.weight", "target_embedding": "b.weight", "output": "c.weight"}
    found = imported(weights, tmp_path / "m.pt", {**facts, **roles}).checkpoint.weights
    assert torch.equal(found["target_embedding.tokens.weight"], weights["b.weight"])
    assert torch.equal(found["output.weight"], weights["c.weight"])


def test_what_was_found_by_name_or_shape_is_told(tmp_path: Path) -> None:
    notes = imported(weights_of(SEQUENCE_FIRST), tmp_path / "m.pt", FORMS[SEQUENCE_FIRST].facts).notes
    assert "taken as output: generator.weight [13, 16]" in notes
    assert "taken as source_positions: pos_embedding [40, 1, 16]" in notes


def test_unknown_fact_is_shown_with_the_nearest_one(tmp_path: Path) -> None:
    facts = {**FORMS["annotated"].facts, "num_head": 4}
    refused(weights_of("annotated"), tmp_path / "m.pt", facts, "num_head", "did you mean num_heads?")


def test_heads_that_do_not_divide_the_width(tmp_path: Path) -> None:
    facts = {**FORMS["annotated"].facts, "num_heads": 3}
    refused(weights_of("annotated"), tmp_path / "m.pt", facts, "not divisible by num_heads 3")


# Tokenizers ------------------------------------------------------------------------------------------------------


def token_file(path: Path, size: int, special: str = "<pad> <s> </s> <unk>") -> Path:
    tokens = [*special.split(), *(f"w{i}" for i in range(size - len(special.split())))]
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return path


def test_tokenizers_tell_the_special_ids(tmp_path: Path) -> None:
    found = imported(
        weights_of("annotated"),
        tmp_path / "m.pt",
        {"num_heads": 4},
        ids=False,
        source_tokenizer=token_file(tmp_path / "source.txt", 11, "<s> </s> <blank> <unk>"),
        target_tokenizer=token_file(tmp_path / "target.txt", 13, "<s> </s> <blank> <unk>"),
    ).checkpoint
    c = found.config
    assert (c.start_id, c.eos_id, c.pad_id, c.unk_id) == (0, 1, 2, 3)
    assert found.target.tokenizer(c.unk_id).encode("w8 never") == [12, 3]


def test_vocabulary_of_another_size_than_the_tokenizer_shows_both(tmp_path: Path) -> None:
    source, target = token_file(tmp_path / "source.txt", 11), token_file(tmp_path / "target.txt", 12)
    options = {"ids": False, "source_tokenizer": source, "target_tokenizer": target}
    weights = weights_of("annotated")
    refused(weights, tmp_path / "m.pt", {"num_heads": 4}, "target vocabulary", "13", "tokenizer 12", **options)


def test_vocabulary_padded_to_a_multiple_of_eight_is_said(tmp_path: Path) -> None:
    weights = weights_of("annotated")
    for name in ("src_embed.0.lut.weight", "tgt_embed.0.lut.weight", "generator.proj.weight"):
        weights[name] = torch.randn(16, 16)
    weights["generator.proj.bias"] = torch.randn(16)
    tokenizer = token_file(tmp_path / "tokens.txt", 13)
    found = imported(weights, tmp_path / "m.pt", {"num_heads": 4}, ids=False, source_tokenizer=tokenizer)
    assert "target vocabulary of 16 is the tokenizer's 13, padded; the ids above are never used" in found.notes


def test_tokenizers_that_disagree_on_a_special_id(tmp_path: Path) -> None:
    options = {
        "ids": False,
        "source_tokenizer": token_file(tmp_path / "source.txt", 11),
        "target_tokenizer": token_file(tmp_path / "target.txt", 13, "<pad> </s> <s> <unk>"),
    }
    weights = weights_of("annotated")
    refused(weights, tmp_path / "m.pt", {"num_heads": 4}, "tokenizers disagree", "start_id", **options)


def test_tokenizer_file_that_is_not_there(tmp_path: Path) -> None:
    options = {"ids": False, "source_tokenizer": tmp_path / "none.txt"}
    refused(weights_of("annotated"), tmp_path / "m.pt", {"num_heads": 4}, "none.txt", "no such", **options)


# Files -----------------------------------------------------------------------------------------------------------


class RunsCode:
    """Unpickling this writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.write_text, (self.marker, "executed")


def test_whole_pickled_model_is_refused_with_the_way_out(tmp_path: Path) -> None:
    torch.save(FORMS["annotated"].module(), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"model\.pt: refused.*torch\.save\(model\.state_dict\(\)"):
        open_checkpoint(tmp_path / "model.pt")


@pytest.mark.parametrize("by_torch", [True, False])
def test_code_in_a_file_does_not_run(tmp_path: Path, by_torch: bool) -> None:
    path, marker = tmp_path / "m.pt", tmp_path / "marker"
    content = {"model": weights_of("annotated"), "args": RunsCode(marker)}
    torch.save(content, path) if by_torch else path.write_bytes(pickle.dumps({"args": RunsCode(marker)}))
    with pytest.raises(CheckpointError, match="refused"):
        open_checkpoint(path)
    assert not marker.exists()


def test_settings_in_a_namespace_beside_the_weights_are_no_hindrance(tmp_path: Path) -> None:
    form = FORMS["annotated"]
    content = {"model": form.module().state_dict(), "args": argparse.Namespace(lr=0.1)}
    assert imported(content, tmp_path / "m.pt", form.facts).format == form.name


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"lstm.weight_ih_l0": torch.zeros(4, 4)}, ["not a checkpoint of a known kind", "lstm.weight_ih_l0 [4, 4]"]),
        ({"epoch": 3}, ["holds no state_dict"]),
        ([1, 2], ["holds no state_dict"]),
    ],
)
def test_what_nothing_recognises_says_what_it_holds(content: object, words: list[str], tmp_path: Path) -> None:
    refused(content, tmp_path / "m.pt", {}, *words)


def test_safetensors_file_is_read(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    form = FORMS["annotated"]
    save_file(form.module().state_dict(), tmp_path / "m.safetensors")
    found = open_checkpoint(tmp_path / "m.safetensors", ImportOptions(config=form.facts, ids=True))
    assert found.format == form.name
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "m.safetensors").read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors"):
        open_checkpoint(tmp_path / "cut.safetensors")


def test_own_checkpoint_opens_as_it_is(tiny_checkpoint_file: Path) -> None:
    found = open_checkpoint(tiny_checkpoint_file)
    assert found.format == "tfexport checkpoint"
    assert found.checkpoint.config.d_model == 32


def test_absent_target_table_is_the_one_that_fits_or_is_asked_for(tmp_path: Path) -> None:
    form, weights = FORMS["annotated"], weights_of("annotated")
    del weights["tgt_embed.0.lut.weight"]
    config = imported(weights, tmp_path / "m.pt", form.facts).checkpoint.config
    assert (config.share_embeddings, config.tie_output, config.target_vocab_size) == (False, True, 13)
    weights["src_embed.0.lut.weight"] = torch.randn(13, 16)
    refused(weights, tmp_path / "m.pt", dict(form.facts), "share_embeddings (", "tie_output (")
    facts = {**form.facts, "share_embeddings": True, "tie_output": False}
    found = imported(weights, tmp_path / "m.pt", facts).checkpoint.weights
    assert torch.equal(found["target_embedding.tokens.weight"], weights["src_embed.0.lut.weight"])
    assert torch.equal(found["output.weight"], weights["generator.proj.weight"])


def test_languages_of_a_model_that_has_none(tmp_path: Path) -> None:
    form = FORMS["annotated"]
    refused(weights_of("annotated"), tmp_path / "m.pt", dict(form.facts), "no languages", target_language="de")


def test_facts_for_a_checkpoint_that_tells_everything(tiny_checkpoint_file: Path) -> None:
    with pytest.raises(CheckpointError, match="give no facts"):
        open_checkpoint(tiny_checkpoint_file, ImportOptions(config={"num_heads": 8}))
