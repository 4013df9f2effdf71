"""The manifest's own digest: its last key, over the text with that digest zeroed. See SPEC.md, "Bundle"."""

from __future__ import annotations

import hashlib
import re

from tfexport_runtime.errors import BundleError

SEAL_KEY = "digest"
_SEAL = re.compile(rb',\s*"digest":\s*"([0-9a-f]{64})"\s*\}\s*\Z')


def sealed(text: str) -> str:
    """JSON text of an object, with the digest as its last key."""
    body = text.rstrip().removesuffix("}").rstrip()
    blank = f'{body},\n  "{SEAL_KEY}": "{"0" * 64}"\n}}\n'
    digest = hashlib.sha256(blank.encode("utf-8")).hexdigest()
    return f'{body},\n  "{SEAL_KEY}": "{digest}"\n}}\n'


def check_seal(data: bytes, origin: str) -> None:
    """Raises BundleError if the text is not the one that was sealed. Text without a digest passes."""
    found = _SEAL.search(data)
    if found is None:
        if b'"digest"' in data:
            raise BundleError(f"{origin}: was changed after it was written; export the bundle again")
        return
    blank = data[: found.start(1)] + b"0" * 64 + data[found.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != found[1]:
        raise BundleError(f"{origin}: was changed after it was written; export the bundle again")
