"""JSON into frozen dataclasses, strictly: every problem is named, in one error, and every size is bounded.

A field's annotation is its check. `Annotated[int, Limits(1, 10)]` adds what a type cannot say. Supported are bool, int,
float, str, Literal, X | Y, tuple[X, ...], Mapping[str, X], Any and dataclasses of these. A field with a default may be
left out.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tfexport_runtime.errors import BundleError

T = TypeVar("T")

SHOWN_PROBLEMS = 6  # of a long list, in an error message


@dataclass(frozen=True)
class Limits:
    """Bounds of a number, or of the count of characters, items or members."""

    minimum: int = -(2**63)
    maximum: int = 2**64 - 1
    pattern: str = ""  # a string, or every key of an object, must match it as a whole


NO_LIMITS = Limits()


def parse_json(data: bytes | str, origin: str) -> Any:
    """Refuses repeated keys, NaN, numbers beyond float64, and text that is not UTF-8. Raises BundleError."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair has no UTF-8 form
    except UnicodeError as error:
        raise BundleError(f"{origin}: not UTF-8: {error}") from error
    except ValueError as error:
        raise BundleError(f"{origin}: not JSON: {error}") from error
    except RecursionError as error:
        raise BundleError(f"{origin}: not a manifest: nested too deep") from error
    return value


def build(kind: type[T], value: object, origin: str) -> T:
    """`value` as the dataclass `kind`. Raises BundleError that names every unknown, missing and unfit field."""
    problems: list[str] = []
    result = _read(kind, value, "", problems)
    raise_all(problems, origin)
    return cast(T, result)


def build_partial(hints: Mapping[str, Any], value: object, where: str, origin: str) -> dict[str, Any]:
    """An object in which any of the fields in `hints` may be missing. Raises BundleError."""
    problems: list[str] = []
    result = _read_members(hints, set(), value, where, problems)
    raise_all(problems, origin)
    return result or {}


def raise_all(problems: list[str], origin: str) -> None:
    if problems:
        more = f"; and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
        raise BundleError(f"{origin}: " + "; ".join(problems[:SHOWN_PROBLEMS]) + more)


def plain(value: Any) -> Any:
    """The inverse of `build`: dataclasses to dicts, tuples to lists."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def shown(value: object, limit: int = 60) -> str:
    """A value for an error message: on one line, cut where it is long."""
    text = ascii(value) if isinstance(value, str) else type(value).__name__ if _is_nested(value) else repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


def _read(kind: Any, value: object, where: str, problems: list[str], limits: Limits = NO_LIMITS) -> Any:
    origin = get_origin(kind)
    if origin is Annotated:
        inner, extra = get_args(kind)
        return _read(inner, value, where, problems, extra)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _read_dataclass(cast(type[Any], kind), value, where, problems)
    if origin in (Union, UnionType):
        return _read_union(get_args(kind), value, where, problems)
    if origin is tuple:
        return _read_list(get_args(kind)[0], value, where, problems, limits)
    if origin is not None and origin is not Literal:
        return _read_mapping(get_args(kind)[1], value, where, problems, limits)
    problem = _scalar_problem(kind, value, limits)
    if problem:
        problems.append(f"{where} {problem}")
    return value


def _read_dataclass(kind: type[Any], value: object, where: str, problems: list[str]) -> Any:
    required = {f.name for f in fields(kind) if not _has_default(f)}
    found = len(problems)
    members = _read_members(get_type_hints(kind, include_extras=True), required, value, where, problems)
    return None if members is None or len(problems) > found else kind(**members)


def _read_members(
    hints: Mapping[str, Any], required: set[str], value: object, where: str, problems: list[str]
) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        problems.append(f"{where or 'the whole'} must be an object, not {shown(value)}")
        return None
    prefix = f"{where}." if where else ""
    problems += [f"unknown field {prefix}{shown(name)[1:-1]}" for name in value if name not in hints]
    problems += [f"missing field {prefix}{name}" for name in hints if name in required and name not in value]
    known = [name for name in hints if name in value]
    return {name: _read(hints[name], value[name], prefix + name, problems) for name in known}


def _read_union(kinds: tuple[Any, ...], value: object, where: str, problems: list[str]) -> Any:
    """Unions here are of scalars: the first that takes the value wins, else the first one's problem is told."""
    attempts: list[list[str]] = []
    for kind in kinds:
        attempt: list[str] = []
        result = _read(kind, value, where, attempt)
        if not attempt:
            return result
        attempts.append(attempt)
    problems += attempts[0]
    return None


def _read_list(kind: Any, value: object, where: str, problems: list[str], limits: Limits) -> Any:
    if not isinstance(value, (list, tuple)):
        problems.append(f"{where} must be a list, not {shown(value)}")
        return None
    if len(value) > limits.maximum or len(value) < limits.minimum:
        problems.append(f"{where} holds {len(value)} items, allowed are {limits.minimum} to {limits.maximum}")
        return None
    return tuple(_read(kind, item, f"{where}[{i}]", problems) for i, item in enumerate(value))


def _read_mapping(kind: Any, value: object, where: str, problems: list[str], limits: Limits) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{where} must be an object, not {shown(value)}")
        return None
    if len(value) > limits.maximum or len(value) < limits.minimum:
        problems.append(f"{where} holds {len(value)} members, allowed are {limits.minimum} to {limits.maximum}")
        return None
    if limits.pattern:
        problems += [f"{where}: {shown(k)} is not allowed here" for k in value if not re.fullmatch(limits.pattern, k)]
    return {key: _read(kind, item, f"{where}.{shown(key)[1:-1]}", problems) for key, item in value.items()}


def _scalar_problem(kind: Any, value: object, limits: Limits) -> str:
    """What is wrong with the value; empty if nothing is."""
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        # 1 == True and 1 == 1.0 in Python, so the type counts too.
        fine = any(value == choice and type(value) is type(choice) for choice in choices)
        return "" if fine else f"must be one of {', '.join(map(str, choices))}, not {shown(value)}"
    if kind is NoneType:
        return "" if value is None else f"must be null, not {shown(value)}"
    if kind is bool:
        return "" if isinstance(value, bool) else f"must be true or false, not {shown(value)}"
    if kind is str:
        return _text_problem(value, limits)
    return _number_problem(kind, value, limits)


def _text_problem(value: object, limits: Limits) -> str:
    if not isinstance(value, str):
        return f"must be a string, not {shown(value)}"
    if not limits.minimum <= len(value) <= limits.maximum:
        return f"has {len(value)} characters, allowed are {max(limits.minimum, 0)} to {limits.maximum}"
    if limits.pattern and not re.fullmatch(limits.pattern, value):
        return f"must match {limits.pattern}, not be {shown(value)}"
    return ""


def _number_problem(kind: type[int] | type[float], value: object, limits: Limits) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        return f"must be {'a number' if kind is float else 'a whole number'}, not {shown(value)}"
    if not limits.minimum <= value <= limits.maximum:
        return f"must be from {limits.minimum} to {limits.maximum}, not {shown(value)}"
    return ""


def _has_default(f: Field[Any]) -> bool:
    return f.default is not MISSING or f.default_factory is not MISSING


def _is_nested(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"key {shown(twice)} appears twice in one object")
    return result


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{shown(text)} is beyond the range of float64")
    return value
