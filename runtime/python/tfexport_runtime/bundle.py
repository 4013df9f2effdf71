"""A bundle on disk: a folder, or the same folder as one uncompressed zip, trusted only after every check.

See SPEC.md, "Bundle". What the manifest may hold is in manifest.py.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfexport_runtime.archive import pack_zip, unpack_zip
from tfexport_runtime.errors import BundleError
from tfexport_runtime.external_data import external_locations
from tfexport_runtime.manifest import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    CacheInfo,
    FileInfo,
    GraphInfo,
    Manifest,
    ModelInfo,
    Requirements,
    SourceInfo,
    TargetInfo,
    TensorInfo,
    TokenizerInfo,
    is_file_name,
)
from tfexport_runtime.seal import check_seal, sealed
from tfexport_runtime.strict_json import shown
from tfexport_runtime.tokenizer import Tokenizer, load_tokenizer, within_vocabulary

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "MANIFEST_NAME",
    "Bundle",
    "CacheInfo",
    "FileInfo",
    "GraphInfo",
    "Manifest",
    "ModelInfo",
    "Requirements",
    "SourceInfo",
    "TargetInfo",
    "TensorInfo",
    "TokenizerInfo",
    "describe_files",
    "pack_zip",
    "read_bundle",
    "write_manifest",
]

MAX_GRAPH_BYTES = 256 * 2**20  # of an .onnx file: weights lie beside it
SHOWN_NAMES = 6  # of a long list of files, in an error message


@dataclass(frozen=True)
class Bundle:
    """A checked bundle. Files unpacked from a zip live as long as this object does."""

    manifest: Manifest
    folder: Path
    origin: Path  # what was opened: the folder, or the zip
    _tokenizers: dict[tuple[str, str, int], Tokenizer] = field(default_factory=dict, repr=False, compare=False)

    def path(self, name: str) -> Path:
        """Where a file of the bundle lies. Raises BundleError for one that the manifest does not list."""
        if name not in self.manifest.files:
            raise BundleError(f"{self.origin}: holds no file {shown(name)}")
        return self.folder / name

    def read(self, name: str) -> bytes:
        """Raises BundleError if the file is gone or has another size than listed."""
        path, size = self.path(name), self.manifest.files[name].bytes
        data = _read_at_most(path, size + 1)
        if len(data) != size:
            raise BundleError(f"{self.origin / name}: changed since the bundle was opened; it had {size} bytes")
        return data

    def check_weights(self) -> None:
        """Raises BundleError if the weights are not those that the manifest describes."""
        _check_digests(self, self.manifest.weights)

    def check_graphs(self) -> None:
        """As check_weights, of the graphs' files: for a format whose loading runs code, however the bundle was read."""
        _check_digests(self, {graph.file for graph in self.manifest.graphs.values()})

    def source_tokenizer(self) -> Tokenizer:
        """Raises BundleError if it is damaged."""
        source = self.manifest.source
        return self._tokenizer(source.tokenizer, source.unk_id, self.manifest.model.source_vocab_size)

    def target_tokenizer(self) -> Tokenizer:
        """The same object as the source's where both name one file. Raises BundleError if damaged or too small."""
        target, vocab_size = self.manifest.target, self.manifest.model.target_vocab_size
        tokenizer = self._tokenizer(target.tokenizer, target.unk_id, vocab_size)
        if not set(range(tokenizer.size, vocab_size)).issubset(target.never_generated):
            raise BundleError(
                f"{self.origin / target.tokenizer.file}: holds {tokenizer.size} tokens, the target vocabulary of the "
                f"model {vocab_size}, and the manifest lets it generate ids without a token; export the model again"
            )
        return tokenizer

    def _tokenizer(self, info: TokenizerInfo, unk_id: int, vocab_size: int) -> Tokenizer:
        key = (info.kind, info.file, unk_id)
        if key not in self._tokenizers:
            try:
                self._tokenizers[key] = load_tokenizer(info.kind, self.read(info.file), unk_id)
            except BundleError as error:
                raise BundleError(f"{self.origin / info.file}: {error}") from error
        return within_vocabulary(self._tokenizers[key], vocab_size, unk_id)


def read_bundle(path: Path, verify: bool = True, weights_later: bool = False) -> Bundle:
    """Opens a folder or a zip. Raises BundleError.

    verify=False skips the SHA-256 of every file, nothing else. weights_later leaves out that of the weights, by far
    the largest file: `check_weights` is then to be called, while the graphs load for example.
    """
    path = Path(path)
    try:
        if not path.exists():
            raise BundleError(f"{path}: no such file or folder")
        read = _read_folder if path.is_dir() else _read_zip
        return read(path, path, verify, weights_later)
    except OSError as error:
        raise BundleError(f"{error.filename or path}: {error.strerror or error}") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes `bundle.json`, after reading it as a runtime will. Raises BundleError."""
    text = manifest.to_json()
    Manifest.from_json(text)
    (folder / MANIFEST_NAME).write_bytes(sealed(text).encode("utf-8"))


def describe_files(folder: Path) -> dict[str, FileInfo]:
    """Size and digest of every file of a bundle but its manifest, sorted by name. Raises BundleError for a bad name."""
    names = sorted(set(_plain_files(folder)) - {MANIFEST_NAME})
    wrong = [name for name in names if not is_file_name(name)]
    if wrong:
        raise BundleError(f"{folder}: {_named(wrong)} cannot be in a bundle; use letters, digits, '.', '-' and '_'")
    return {name: FileInfo(_sha256(folder / name), (folder / name).stat().st_size) for name in names}


def _read_folder(folder: Path, origin: Path, verify: bool, weights_later: bool) -> Bundle:
    sizes = _plain_files(folder)
    if MANIFEST_NAME not in sizes:
        found = _named(sorted(sizes)) if sizes else "nothing"
        raise BundleError(f"{origin}: not a bundle: no {MANIFEST_NAME} in it (found {found})")
    text = _read_at_most(folder / MANIFEST_NAME, MAX_MANIFEST_BYTES + 1)
    manifest = Manifest.from_json(text, str(origin / MANIFEST_NAME))
    _check_listing(manifest, sizes, origin)
    _check_graphs(manifest, folder, origin)
    bundle = Bundle(manifest, folder, origin)
    if verify:
        check_seal(text, str(origin / MANIFEST_NAME))
        _check_digests(bundle, manifest.files.keys() - set(manifest.weights if weights_later else ()))
    return bundle


def _read_zip(path: Path, origin: Path, verify: bool, weights_later: bool) -> Bundle:
    """ONNX Runtime maps weights from a real file, so the zip is unpacked, to a folder that goes with the Bundle."""
    folder = Path(tempfile.mkdtemp(prefix="tfexport-bundle-"))
    try:
        unpack_zip(
            path,
            folder,
            lambda data, sizes: _check_listing(Manifest.from_json(data, f"{origin}/{MANIFEST_NAME}"), sizes, origin),
        )
        bundle = _read_folder(folder, origin, verify, weights_later)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(bundle, shutil.rmtree, folder, ignore_errors=True)
    return bundle


def _plain_files(folder: Path) -> dict[str, int]:
    """Name and size of everything in the folder. Raises BundleError for what is not a plain file."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise BundleError(f"{folder / entry.name}: is a link; a bundle holds plain files only")
            if not entry.is_file(follow_symlinks=False):
                raise BundleError(f"{folder / entry.name}: is not a plain file; a bundle holds nothing else")
            sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
    return sizes


def _check_listing(manifest: Manifest, sizes: Mapping[str, int], origin: Path) -> None:
    """Exactly the listed files, in the listed sizes."""
    found = set(sizes) - {MANIFEST_NAME}
    listed = set(manifest.files)
    if listed - found:
        raise BundleError(f"{origin}: {_named(sorted(listed - found))} missing; copy the whole bundle again")
    if found - listed:
        raise BundleError(f"{origin}: {_named(sorted(found - listed))} not part of the bundle; move it elsewhere")
    for name, info in manifest.files.items():
        if sizes[name] != info.bytes:
            raise BundleError(
                f"{origin / name}: has {sizes[name]} bytes, the manifest says {info.bytes}; copy the bundle again"
            )


def _check_digests(bundle: Bundle, names: Iterable[str]) -> None:
    for name in names:
        if _sha256(bundle.folder / name) != bundle.manifest.files[name].sha256:
            where = bundle.origin / name
            raise BundleError(f"{where}: its content has changed (SHA-256 differs); copy the bundle again")


def _check_graphs(manifest: Manifest, folder: Path, origin: Path) -> None:
    """No ONNX graph reads a file other than the weights, wherever in it the tensor is."""
    for name in sorted(name for name in manifest.files if name.lower().endswith(".onnx")):
        size = manifest.files[name].bytes
        if size > MAX_GRAPH_BYTES:
            raise BundleError(f"{origin / name}: has {size} bytes, a graph may have at most {MAX_GRAPH_BYTES}")
        try:
            foreign = external_locations(_read_at_most(folder / name, size)) - set(manifest.weights)
        except BundleError as error:
            raise BundleError(f"{origin / name}: {error}") from error
        if foreign:
            allowed = _named(list(manifest.weights)) or "itself"
            raise BundleError(f"{origin / name}: refused: reads {_named(sorted(foreign))}, not only {allowed}")


def _read_at_most(path: Path, limit: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from error


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _named(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(name if is_file_name(name) else shown(name) for name in names[:SHOWN_NAMES]) + more
