"""A class of nobody's tutorial, brought by a YAML file of its names."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.checkpoints.tutorial_classes import heads_joined, heads_of, positional_encoding, with_random_weights
from tests.checkpoints.tutorial_forms import IDS, TEXT
from tfexport.checkpoints import Imported, ImportOptions, open_checkpoint
from tfexport.checkpoints.imported import MappingError
from tfexport.checkpoints.key_map import read_key_map
from tfexport.checkpoints.mapping import map_weights
from tfexport_runtime.errors import TfexportError

MAP = """
rename:
  words_in: source_embedding.tokens.weight
  words_out: target_embedding.tokens.weight
  reader{i}.out.weight: encoder_layers.{i-1}.self_attention.out_proj.weight
  writer{i}.out.weight: decoder_layers.{i-1}.self_attention.out_proj.weight
  writer{i}.look.weight: decoder_layers.{i-1}.cross_attention.q_proj.weight
  writer{i}.see.weight: decoder_layers.{i-1}.cross_attention.out_proj.weight
rules:
  - {from: "reader{i}.qkv", to: ["encoder_layers.{i-1}.self_attention.q_proj.weight",
     "encoder_layers.{i-1}.self_attention.k_proj.weight", "encoder_layers.{i-1}.self_attention.v_proj.weight"],
     transpose: true}
  - {from: "writer{i}.qkv", to: ["decoder_layers.{i-1}.self_attention.q_proj.weight",
     "decoder_layers.{i-1}.self_attention.k_proj.weight", "decoder_layers.{i-1}.self_attention.v_proj.weight"],
     transpose: true}
  - {from: "writer{i}.kv", to: ["decoder_layers.{i-1}.cross_attention.k_proj.weight",
     "decoder_layers.{i-1}.cross_attention.v_proj.weight"], transpose: true}
  - {from: ["reader{i}.up_a.weight", "reader{i}.up_b.weight"], to: "encoder_layers.{i-1}.feed_forward.up.weight"}
  - {from: ["writer{i}.up_a.weight", "writer{i}.up_b.weight"], to: "decoder_layers.{i-1}.feed_forward.up.weight"}
  - {from: "reader{i}.down.weight", to: "encoder_layers.{i-1}.feed_forward.down.weight"}
  - {from: "writer{i}.down.weight", to: "decoder_layers.{i-1}.feed_forward.down.weight"}
  - {constant: 1, to: "*norm.weight"}
  - {constant: 0, to: "*norm.bias"}
drop: ["*.mask"]
config: {heads: 2, norm: layer_norm, norm_position: post, activation: relu, scale_embedding: false,
  positions: sinusoidal}
"""


class Layer(nn.Module):
    """No biases, norms without weights, matrices [in, out] that are packed, and an FFN in two halves."""

    mask: Tensor

    def __init__(self, decoder: bool) -> None:
        super().__init__()
        self.qkv = nn.Parameter(torch.empty(8, 24))
        self.out, self.down = nn.Linear(8, 8, bias=False), nn.Linear(12, 8, bias=False)
        self.up_a, self.up_b = nn.Linear(8, 6, bias=False), nn.Linear(8, 6, bias=False)
        if decoder:
            self.kv = nn.Parameter(torch.empty(8, 16))
            self.look, self.see = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.register_buffer("mask", torch.ones(3, 3))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        q, k, v = (heads_of(part, 2) for part in (x @ self.qkv).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=memory is not None)
        x = F.layer_norm(x + self.out(heads_joined(attended)), (8,))
        if memory is not None:
            k, v = (heads_of(part, 2) for part in (memory @ self.kv).chunk(2, dim=-1))
            seen = F.scaled_dot_product_attention(heads_of(self.look(x), 2), k, v)
            x = F.layer_norm(x + self.see(heads_joined(seen)), (8,))
        hidden = torch.cat([self.up_a(x), self.up_b(x)], dim=-1).relu()
        return F.layer_norm(x + self.down(hidden), (8,))


class Unusual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words_in, self.words_out = nn.Parameter(torch.empty(9, 8)), nn.Parameter(torch.empty(10, 8))
        self.reader1, self.reader2, self.writer1 = Layer(False), Layer(False), Layer(True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.words_in[source] + positional_encoding(source.shape[1], 8)
        for layer in (self.reader1, self.reader2):
            memory = layer(memory)
        x = self.words_out[target] + positional_encoding(target.shape[1], 8)
        return self.writer1(x, memory) @ self.words_out.T  # type: ignore[no-any-return]


def make() -> nn.Module:
    return Unusual()


def opened(tmp_path: Path, text: str = MAP, extra: dict[str, Tensor] | None = None, **config: Any) -> Imported:
    (tmp_path / "map.yaml").write_text(text, encoding="utf-8")
    torch.save({**with_random_weights(Unusual()).state_dict(), **(extra or {})}, tmp_path / "m.pt")
    facts = {**IDS, **TEXT, **config}
    return open_checkpoint(tmp_path / "m.pt", ImportOptions(config=facts, ids=True, key_map=tmp_path / "map.yaml"))


def test_logits_are_those_of_the_class(tmp_path: Path) -> None:
    model = opened(tmp_path).checkpoint.build_model()
    source, target = torch.tensor([[4, 8, 5, 6]]), torch.tensor([[1, 9, 4]])
    wanted = with_random_weights(Unusual())(source, target)
    torch.testing.assert_close(model(source, target), wanted, atol=1e-5, rtol=0)


def test_example_of_the_documentation_is_a_key_map(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
    (example,) = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if block.startswith("rename:")]
    (tmp_path / "map.yaml").write_text(example, encoding="utf-8")
    key_map = read_key_map(tmp_path / "map.yaml")
    weights = {"enc.1.attn.qkv.weight": torch.ones(8, 24), "pos": torch.ones(1, 6, 8), "enc.0.attn_mask": torch.ones(1)}
    mapped = map_weights(weights, key_map.rules, key_map.drop)
    assert (mapped.unused, mapped.wrong) == ([], [])
    assert mapped.weights["encoder_layers.1.self_attention.k_proj.weight"].shape == (8, 8)
    assert mapped.weights["source_embedding.position_table"].shape == (4, 8)
    assert key_map.config["num_heads"] == 8


def test_every_weight_is_explained(tmp_path: Path) -> None:
    found = opened(tmp_path).explanation
    assert found.complete
    how = {match.theirs: match.how for match in found.matches if match.theirs}
    assert how[("reader2.qkv",)] == "transposed, split in 3"
    assert how[("writer1.up_a.weight", "writer1.up_b.weight")] == "2 joined"
    assert how[("reader1.mask",)] == "dropped"
    theirs = [name for match in found.matches for name in match.theirs]
    assert sorted(theirs) == sorted(Unusual().state_dict())
    constants = [match for match in found.matches if not match.theirs]
    assert {match.how for match in constants} == {"constant 0", "constant 1"}


def test_comparison_with_the_class_decides_what_the_map_leaves_open(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAP.replace("norm: layer_norm, norm_position: post,", ""), encoding="utf-8")
    torch.save(with_random_weights(Unusual()).state_dict(), tmp_path / "m.pt")
    options = ImportOptions(
        config={**IDS, **TEXT}, ids=True, key_map=tmp_path / "map.yaml", reference=f"{__name__}:make"
    )
    config = open_checkpoint(tmp_path / "m.pt", options).checkpoint.config
    assert (config.norm, config.norm_position) == ("layer_norm", "post")


def test_left_overs_of_both_sides_are_an_error_with_the_nearest_names(tmp_path: Path) -> None:
    line = '  - {from: "reader{i}.down.weight", to: "encoder_layers.{i-1}.feed_forward.down.weight"}\n'
    with pytest.raises(MappingError) as error:
        opened(tmp_path, MAP.replace(line, ""))
    found = error.value.explanation
    names = [f"encoder_layers.{i}.feed_forward.down.weight" for i in (0, 1)]
    assert [item.name for item in found.missing] == names
    assert [item.name for item in found.unused] == ["reader1.down.weight", "reader2.down.weight"]
    assert set(found.unused[0].nearest) <= set(names)
    assert found.unused[0].shape == (8, 12)


def test_facts_of_the_command_line_come_before_those_of_the_map(tmp_path: Path) -> None:
    assert opened(tmp_path, num_heads=4).checkpoint.config.num_heads == 4


def test_what_the_map_does_not_tell_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(TfexportError, match="norm_position"):
        opened(tmp_path, MAP.replace("norm_position: post, ", ""))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rename: [1]", "rename must be keys and values"),
        ("renam: {}", "did you mean rename"),
        ("rules: {a: b}", "rules must be a list"),
        ("rules: [{from: a}]", "rule 1: needs `to`"),
        ("rules: [{from: a, to: b, constant: 1}]", "either `from` or `constant`"),
        ("rules: [{from: a, to: b, transposed: true}]", "did you mean transpose"),
        ("rules: [{from: a, to: b, transpose: 1}]", "transpose must be true or false, not 1"),
        ("rules: [{from: a, to: b, sizes: 3}]", "sizes must be a list"),
        ("rules: [{from: a, to: b, rows: [1]}]", "rows must be"),
        ("rules: [{constant: x, to: b}]", "constant must be a number, not 'x'"),
        ("rename: {'w{i}': 'v{j}'}", "missing"),
        ("a: [", "cannot be read as YAML"),
        ("- 1", "expected keys and values"),
    ],
)
def test_mistakes_in_the_map_are_one_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(TfexportError) as error:
        opened(tmp_path, text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_scale_of_the_positions_is_not_hidden(tmp_path: Path) -> None:
    """The comparison would not hold with scaled embeddings, so it tells the two apart."""
    model = opened(tmp_path, scale_embedding=True).checkpoint.build_model()
    ids = torch.tensor([[4, 5]])
    assert (model(ids, ids) - with_random_weights(Unusual())(ids, ids)).abs().max() > 0.01 / math.sqrt(8)
