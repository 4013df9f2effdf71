"""Any other plain PyTorch encoder-decoder: a YAML file says where each of its weights goes.

rename:                                   # theirs: ours
  enc.{i}.norm_a.{x}: encoder_layers.{i}.self_attention_residual.norm.{x}
rules:                                    # what needs more than a new name
  - from: enc.{i}.qkv.weight              # or a list, joined
    to: [encoder_layers.{i}.self_attention.q_proj.weight, ...]   # a list: split
    transpose: true
  - constant: 0
    to: "*.k_proj.bias"
drop: ["*.mask"]
config: {heads: 8, norm_position: pre}    # facts, as with --set
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfexport.checkpoints.draft import Draft, complete
from tfexport.checkpoints.facts_file import by_field_name, check_names, read_mapping
from tfexport.checkpoints.imported import Imported, ImportOptions
from tfexport.checkpoints.mapping import Constant, Mapped, Rule, map_weights, matches
from tfexport.checkpoints.weight_files import read_weights
from tfexport_train.errors import ConfigError

_PLAIN, _GATED = ("relu", "gelu", "gelu_tanh", "silu"), ("swiglu", "geglu", "geglu_tanh", "reglu")
_CHOICES = {
    "norm_position": ("pre", "post"),
    "scale_embedding": (True, False),
    "positions": ("sinusoidal", "none"),
}


@dataclass(frozen=True)
class KeyMap:
    rules: tuple[Rule, ...]
    constants: tuple[Constant, ...]
    drop: tuple[str, ...]
    config: Mapping[str, Any]


def read_key_map(path: Path) -> KeyMap:
    """Raises ConfigError."""
    content = read_mapping(path)
    check_names(content, ("rename", "rules", "drop", "config"), str(path))
    rename: dict[str, str] = _section(content, "rename", dict, path)
    rules: list[object] = _section(content, "rules", list, path)
    read = [_rule(entry, f"{path}: rule {n}") for n, entry in enumerate(rules, 1)]
    return KeyMap(
        (*(Rule(str(theirs), str(ours)) for theirs, ours in rename.items()), *(r for r in read if isinstance(r, Rule))),
        tuple(r for r in read if isinstance(r, Constant)),
        tuple(map(str, _section(content, "drop", list, path))),
        by_field_name(_section(content, "config", dict, path)),
    )


def _section(content: Mapping[str, Any], name: str, kind: type, path: Path) -> Any:
    value = content.get(name) or kind()
    if not isinstance(value, kind):
        raise ConfigError(f"{path}: {name} must be {'keys and values' if kind is dict else 'a list'}, not {value!r}")
    return value


def _rule(entry: object, place: str) -> Rule | Constant:
    if not isinstance(entry, dict) or "to" not in entry or ("from" in entry) == ("constant" in entry):
        raise ConfigError(f"{place}: needs `to`, and either `from` or `constant`")
    if "constant" in entry:
        check_names(entry, ("constant", "to"), place)
        _check(entry["constant"], (int, float), f"{place}: constant must be a number")
        return Constant(str(entry["to"]), float(entry["constant"]))
    check_names(entry, ("from", "to", "rows", "squeeze", "transpose", "axis", "sizes", "scale"), place)
    _check(entry.get("transpose", False), bool, f"{place}: transpose must be true or false")
    _check(entry.get("squeeze", False), bool, f"{place}: squeeze must be true or false")
    _check(entry.get("axis", 0), int, f"{place}: axis must be a whole number")
    _check(entry.get("scale", 1.0), (int, float), f"{place}: scale must be a number")
    sizes, rows = entry.get("sizes", []), entry.get("rows")
    if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
        raise ConfigError(f"{place}: sizes must be a list of whole numbers, not {sizes!r}")
    if rows is not None and not (isinstance(rows, list) and len(rows) == 2 and type(rows[0]) is int):
        raise ConfigError(f"{place}: rows must be [first, end], where end may be null, not {rows!r}")
    return Rule(
        _patterns(entry["from"]),
        _patterns(entry["to"]),
        rows=(rows[0], rows[1]) if rows else None,
        squeeze=entry.get("squeeze", False),
        transpose=entry.get("transpose", False),
        axis=entry.get("axis", 0),
        sizes=tuple(sizes),
        scale=float(entry.get("scale", 1.0)),
    )


def _check(value: object, kind: type | tuple[type, ...], message: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{message}, not {value!r}")


def _patterns(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


@dataclass(frozen=True)
class WithKeyMap:
    name: str = "PyTorch weights with a key map"

    def recognises(self, path: Path) -> bool:
        return False  # it is asked for

    def read(self, path: Path, options: ImportOptions) -> Imported:
        assert options.key_map is not None
        key_map = read_key_map(options.key_map)
        tensors = read_weights(path)
        mapped = map_weights(tensors, key_map.rules, key_map.drop)
        options = replace(options, config={**key_map.config, **options.config})
        draft = Draft(path, self.name, tensors, mapped, choices=_choices(mapped, key_map), constants=key_map.constants)
        return complete(draft, options)


def _choices(mapped: Mapped, key_map: KeyMap) -> dict[str, tuple[Any, ...]]:
    """What a comparison may decide, for the weights that there are."""
    bias, gate = "encoder_layers.0.feed_forward_residual.norm.bias", "encoder_layers.0.feed_forward.gate.weight"
    norms: tuple[str, ...] = ("layer_norm", "unbiased_layer_norm") if bias in mapped.weights else ("rms_norm",)
    if any(matches(constant.ours, bias) for constant in key_map.constants):
        norms = ("layer_norm", "rms_norm")
    return {"norm": norms, "activation": _GATED if gate in mapped.weights else _PLAIN, **_CHOICES}


FORMAT = WithKeyMap()
