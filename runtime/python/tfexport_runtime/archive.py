"""A bundle as one zip whose members are stored as they are, so that a device can map them without unpacking."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tfexport_runtime.errors import BundleError
from tfexport_runtime.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, is_file_name
from tfexport_runtime.strict_json import shown

MAX_MEMBERS = 1025  # what a manifest may list, and itself
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip: the same files give the same bytes
_ENCRYPTED = 0x1
_ALIGNMENT = 64  # of the members' bytes, so that tensors on a boundary in a file are on one in the zip, too
_PADDING_ID = 0xD935  # of an extra field that only fills space, as Android's zipalign writes it
_LOCAL_HEADER = 30  # bytes before the name
_WIDE_SIZES = 20  # of the extra field with 64-bit sizes

# What zipfile raises on damaged archives, apart from its own error.
_DAMAGE = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    ValueError,
    OverflowError,
    IndexError,
    struct.error,
)


def pack_zip(folder: Path, target: Path) -> None:
    """The files of a bundle as `target`: the manifest first, then by name, each on a 64-byte boundary.

    Written whole or not at all.
    """
    if target.parent.resolve() == folder.resolve():
        raise BundleError(f"{target}: lies in the folder to pack; write it elsewhere")
    names = sorted((entry.name for entry in folder.iterdir()), key=lambda name: (name != MANIFEST_NAME, name))
    wrong = [name for name in names if not is_file_name(name) or (folder / name).is_symlink()]
    if wrong or MANIFEST_NAME not in names:
        raise BundleError(f"{folder}: not a bundle: " + (f"holds {shown(wrong[0])}" if wrong else "no bundle.json"))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name in names:
                    _add(archive, folder / name, file.tell())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def unpack_zip(path: Path, folder: Path, check: Callable[[bytes, Mapping[str, int]], None]) -> None:
    """Every member into the empty `folder`, once `check` took the manifest and all sizes. Raises BundleError."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = _checked_members(archive, path)
            check(archive.read(members[MANIFEST_NAME]), {name: info.file_size for name, info in members.items()})
            for name, info in members.items():
                with archive.open(info) as source, open(folder / name, "xb") as file:
                    shutil.copyfileobj(source, file, 2**20)
    except OSError as error:
        raise BundleError(f"{path}: cannot be unpacked into {folder}: {error.strerror or error}") from error
    except _DAMAGE as error:
        if not zipfile.is_zipfile(path):
            raise BundleError(f"{path}: neither the folder of a bundle nor a zip of one") from error
        raise BundleError(
            f"{path}: damaged zip: {str(error).splitlines()[0] if str(error) else 'cut short'}"
        ) from error


def _add(archive: zipfile.ZipFile, path: Path, offset: int) -> None:
    info = zipfile.ZipInfo(path.name, _EPOCH)
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.create_system = 3  # Unix, on every system
    info.file_size = path.stat().st_size
    wide = info.file_size >= 2**30  # decided at once, because the header comes first
    info.extra = _padding(offset + _LOCAL_HEADER + len(path.name) + (_WIDE_SIZES if wide else 0))
    with open(path, "rb") as source, archive.open(info, "w", force_zip64=wide) as member:
        shutil.copyfileobj(source, member, 2**20)


def _padding(offset: int) -> bytes:
    """An extra field with which what follows it begins on a boundary."""
    size = -offset % _ALIGNMENT
    size += _ALIGNMENT if 0 < size < 6 else 0
    return struct.pack("<HHH", _PADDING_ID, size - 4, _ALIGNMENT).ljust(size, b"\0") if size else b""


def _checked_members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The members by name, if all are plain files that lie in the zip as they are. Raises BundleError."""
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise BundleError(f"{path}: holds {len(infos)} members, a bundle has at most {MAX_MEMBERS}")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        problem = _member_problem(info) or ("appears twice" if info.filename in members else "")
        if problem:
            raise BundleError(f"{path}: member {shown(info.orig_filename)} {problem}")
        members[info.filename] = info
    # Stored members are no larger than the zip; if their sum is, they overlap.
    if sum(info.file_size for info in infos) > path.stat().st_size:
        raise BundleError(f"{path}: damaged zip: members overlap")
    if MANIFEST_NAME not in members:
        raise BundleError(f"{path}: not a bundle: no {MANIFEST_NAME} at the top of this zip")
    if members[MANIFEST_NAME].file_size > MAX_MANIFEST_BYTES:
        raise BundleError(f"{path}: its {MANIFEST_NAME} is larger than {MAX_MANIFEST_BYTES // 2**20} MiB")
    return members


def _member_problem(info: zipfile.ZipInfo) -> str:
    if not is_file_name(info.orig_filename):
        return "is refused: not a plain file name; zip the files of the bundle, not the folder around them"
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "is refused: not a plain file"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted; a bundle's zip is not"
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        return "is compressed; a bundle's zip is stored without compression (zip -0)"
    return ""
