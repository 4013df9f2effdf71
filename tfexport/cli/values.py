"""Values that flags take as text."""

from __future__ import annotations

import re

import typer

_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def numbers(text: str | None) -> tuple[int, ...]:
    """(0, 3) of `0,3`; nothing of nothing. Raises BadParameter."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise typer.BadParameter(f"numbers with commas between, such as 0,3, not {text!r}") from None


def byte_count(text: str) -> int:
    """Of `500MB` or `2GB`: a kB is a thousand bytes. Raises BadParameter."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,3})?) ?(|kB|MB|GB)", text)
    count = round(float(found[1]) * _UNITS[found[2]]) if found else 0
    if count < 1:
        raise typer.BadParameter(f"a size such as 500MB or 2GB (a GB is 10^9 bytes), not {text!r}")
    return count
