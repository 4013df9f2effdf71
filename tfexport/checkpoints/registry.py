"""Which formats are known, and the one way to open a checkpoint of any of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tfexport.checkpoints import (
    annotated,
    blog_pre_norm,
    ctranslate2,
    fairseq,
    hugging_face,
    joeynmt,
    key_map,
    marian_npz,
    opennmt,
    torch_transformer,
)
from tfexport.checkpoints.imported import Format, Imported, ImportOptions, shapes_in_words
from tfexport.checkpoints.weight_files import NAMESPACES, shapes_or_none
from tfexport_train.checkpoint import FORMAT as OWN_FORMAT
from tfexport_train.checkpoint import load_checkpoint, load_untrusted
from tfexport_train.errors import CheckpointError

_OTHER_SUFFIXES = (".safetensors", ".npz")  # not PyTorch's own
OWN_NAME = "tfexport checkpoint"

# The first that recognises a path reads it, so what is more particular stands first.
FORMATS: tuple[Format, ...] = (
    ctranslate2.FORMAT,
    hugging_face.FORMAT,
    marian_npz.FORMAT,
    fairseq.FORMAT,
    opennmt.FORMAT,
    joeynmt.FORMAT,
    annotated.FORMAT,
    blog_pre_norm.FORMAT,
    torch_transformer.FORMAT,
)


def open_checkpoint(path: Path, options: ImportOptions | None = None) -> Imported:
    """Our own checkpoint as it is, any other by its format. Raises CheckpointError, in one line."""
    options = options or ImportOptions()
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder")
    found = find_format(path, options)
    if found is not None:
        return found.read(path, options)
    if options != ImportOptions():
        raise CheckpointError(f"{path}: a checkpoint of this project tells everything itself; give no facts for it")
    return Imported(load_checkpoint(path), OWN_NAME)


def find_format(path: Path, options: ImportOptions) -> Format | None:
    """None for our own. Raises CheckpointError for what nothing recognises."""
    if options.key_map is not None:
        return key_map.FORMAT
    if zipfile.is_zipfile(path) and _is_own(path):
        return None
    recognised = next((known for known in FORMATS if known.recognises(path)), None)
    if recognised is None:
        raise CheckpointError(_unknown(path))
    return recognised


def _is_own(path: Path) -> bool:
    try:
        content = load_untrusted(path, NAMESPACES, mapped=True)
    except CheckpointError:
        return False
    return isinstance(content, dict) and content.get("format") == OWN_FORMAT


def _unknown(path: Path) -> str:
    if path.is_dir():
        return f"{path}: no checkpoint of a known kind in this folder; known: {_names()}"
    if path.suffix not in _OTHER_SUFFIXES:
        load_untrusted(path, NAMESPACES, mapped=True)  # raises what is wrong with the file, if that is the reason
    shapes = shapes_or_none(path) or {}
    seen = f"its weights: {shapes_in_words(shapes)}" if shapes else "it holds no state_dict"
    return (
        f"{path}: not a checkpoint of a known kind ({_names()}); {seen}. For any other encoder-decoder Transformer "
        "write a key map: tfexport import --help"
    )


def _names() -> str:
    return ", ".join([OWN_NAME, *(known.name for known in FORMATS)])
