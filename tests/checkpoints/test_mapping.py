"""Rules from names to names, alone."""

from __future__ import annotations

import pytest
import torch

from tfexport.checkpoints.expected import expected_shapes, model_without_memory
from tfexport.checkpoints.mapping import Rule, count_layers, map_weights, matches
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import CheckpointError
from tfexport_train.model import EncoderDecoder


def test_numbers_and_words_are_carried_over_and_counted_from_elsewhere() -> None:
    mapped = map_weights({"l3.norm.bias": torch.ones(2)}, [Rule("l{i}.norm.{x}", "layers.{i-1}.n.{x}")])
    assert list(mapped.weights) == ["layers.2.n.bias"]
    assert mapped.unused == []


def test_split_join_transpose_cut_and_scale() -> None:
    packed, rest = torch.arange(12.0).view(2, 6), torch.arange(4.0).view(2, 2)
    rules = [
        Rule("packed", ("q", "k", "v"), transpose=True),
        Rule(("a", "b"), "joined", axis=1),
        Rule("table", "cut", rows=(2, None), scale=0.5),
        Rule("uneven", ("left", "right"), sizes=(1, 3)),
        Rule("deep", "flat", squeeze=True),
    ]
    tensors = {
        "packed": packed,
        "a": rest,
        "b": rest + 10,
        "table": torch.ones(5, 2),
        "uneven": torch.arange(4.0),
        "deep": torch.ones(3, 1, 2),
    }
    mapped = map_weights(tensors, rules)
    assert (mapped.unused, mapped.wrong) == ([], [])
    w = mapped.weights
    assert torch.equal(torch.cat([w["q"], w["k"], w["v"]]), packed.T)
    assert w["joined"].tolist() == [[0, 1, 10, 11], [2, 3, 12, 13]]
    assert w["cut"].tolist() == [[0.5, 0.5]] * 3
    assert (w["left"].tolist(), w["right"].tolist()) == ([0], [1, 2, 3])
    assert w["flat"].shape == (3, 2)
    assert mapped.matches[0].how == "transposed, split in 3"


def test_first_rule_that_fits_takes_a_weight() -> None:
    mapped = map_weights({"a.b": torch.ones(1)}, [Rule("a.b", "first"), Rule("a.{x}", "second.{x}")])
    assert list(mapped.weights) == ["first"]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(("a", "gone"), "b"), "gone is missing beside a"),
        (Rule("a", ("b", "c"), sizes=(1, 1)), "a [3] cannot be converted: axis 0 of 3 cannot be split in 2"),
        (Rule("a", "b", squeeze=True), "a [3] cannot be converted"),
    ],
)
def test_what_a_rule_cannot_do_is_noted(rule: Rule, words: str) -> None:
    assert words in " ".join(map_weights({"a": torch.ones(3)}, [rule]).wrong)


def test_two_weights_for_one_name_are_noted() -> None:
    mapped = map_weights({"a.x": torch.ones(1), "b.x": torch.ones(1)}, [Rule("a.{x}", "c"), Rule("b.{x}", "c")])
    assert mapped.wrong == ["b.x would be a second c"]


def test_placeholder_that_nothing_fills_is_an_error() -> None:
    with pytest.raises(CheckpointError, match=r"\{j\} does not occur"):
        map_weights({"a.0": torch.ones(1)}, [Rule("a.{i}", "b.{j}")])


def test_names_of_other_forms_do_not_match() -> None:
    assert matches("a.{i}.w", "a.12.w")
    assert not matches("a.{i}.w", "a.x.w")
    assert not matches("a.{x}", "a.b.c")
    assert matches("a.*", "a.b.c")
    assert not matches("a.b", "a_b")
    assert not matches("{i}.{i}", "1.2")
    assert count_layers(["e.0.w", "e.4.w", "e.norm"], "e.{i}.*") == 5


def test_unchanged_weight_is_not_copied_and_a_cut_one_does_not_keep_the_rest() -> None:
    table = torch.ones(1000, 4)
    mapped = map_weights({"a": table, "b": table.clone()}, [Rule("a", "a"), Rule("b", "b", rows=(0, 2))])
    assert mapped.weights["a"].data_ptr() == table.data_ptr()
    assert mapped.weights["b"].untyped_storage().nbytes() == 2 * 4 * 4


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("tied", [True, False])
def test_expected_shapes_are_those_of_the_module(positions: str, tied: bool) -> None:
    config = EncoderDecoderConfig.from_dict(
        {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": 8, "num_heads": 2, "d_ff": 12}
        | {"num_encoder_layers": 2, "num_decoder_layers": 1, "max_positions": 6, "activation": "swiglu"}
        | {"positions": positions, "tie_output": tied, "share_embeddings": tied, "norm": "rms_norm"}
    )
    model = EncoderDecoder(config)
    assert expected_shapes(config) == {name: tuple(t.shape) for name, t in model.state_dict().items()}
    other = model_without_memory(config)
    other.load_state_dict(model.state_dict(), assign=True)
    ids = torch.tensor([[4, 5, 6]])
    assert torch.equal(other.eval()(ids, ids), model.eval()(ids, ids))
