"""The manifest's own digest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfexport_runtime.errors import BundleError
from tfexport_runtime.seal import check_seal, sealed

TEXT = json.dumps({"name": "ein Modell", "note": "grün", "files": {"a": 1}}, indent=2, ensure_ascii=False) + "\n"


def test_sealed_text_is_json_with_the_digest_last() -> None:
    values = json.loads(sealed(TEXT))
    assert list(values)[-1] == "digest"
    assert {k: v for k, v in values.items() if k != "digest"} == json.loads(TEXT)
    check_seal(sealed(TEXT).encode(), "bundle.json")


@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    text = sealed(TEXT).encode()
    place = data.draw(st.integers(0, len(text) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda b: b != text[place]))
    changed = text[:place] + bytes([value]) + text[place + 1 :]
    with pytest.raises(BundleError, match="was changed after it was written"):
        _refuse(changed)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_added_and_missing_bytes_are_noticed(place: int, more: bytes) -> None:
    text = sealed(TEXT).encode()
    place = min(place, len(text))
    with pytest.raises(BundleError):
        _refuse(text[:place] + more + text[place:])
    with pytest.raises(BundleError):
        _refuse(text[: min(place, len(text) - 1)] + text[min(place, len(text) - 1) + 1 :])


def _refuse(data: bytes) -> None:
    """As a reader does: the seal, and that the text is an object whose last key is the digest."""
    check_seal(data, "bundle.json")
    try:
        values = json.loads(data)
    except ValueError as error:
        raise BundleError("was changed after it was written: not JSON") from error
    if "digest" not in values:
        raise BundleError("was changed after it was written: unknown key")
