"""Zips that are not what `pack_zip` writes."""

from __future__ import annotations

import os
import stat
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.bundle_fixture import make_bundle, problem_of
from tfexport_runtime.bundle import MANIFEST_NAME, pack_zip, read_bundle
from tfexport_runtime.errors import BundleError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("packed")
    pack_zip(make_bundle(parent / "bundle"), parent / "bundle.zip")
    return parent / "bundle.zip"


def zip_by_hand(
    folder: Path,
    compression: int = zipfile.ZIP_STORED,
    prefix: str = "",
    extra: tuple[zipfile.ZipInfo | str, ...] = (),
) -> Path:
    path = folder.with_suffix(".zip")
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", compression) as archive:
        warnings.simplefilter("ignore")  # of zipfile, about names given twice
        for name in sorted(os.listdir(folder)):
            archive.write(folder / name, prefix + name)
        for info in extra:
            archive.writestr(info, b"content")
    return path


def refusal(path: Path, verify: bool = True) -> str:
    with pytest.raises(BundleError) as caught:
        read_bundle(path, verify)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_stored_zip_of_another_tool_opens(folder: Path) -> None:
    assert read_bundle(zip_by_hand(folder)).read("weights.bin") == bytes(range(16))


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_zip_is_refused_before_anything_is_unpacked(compression: int, folder: Path) -> None:
    (folder / "README.md").write_bytes(bytes(2**20))
    assert "is compressed" in refusal(zip_by_hand(folder, compression))


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/b", "a\\b", "C:x", "..", ".", ".hidden", "a/", "NUL\0x", "__MACOSX/._x", "x y"]
)
def test_path_tricks_are_refused(name: str, folder: Path) -> None:
    info = zipfile.ZipInfo("placeholder")
    info.filename = name
    info.orig_filename = name
    path = zip_by_hand(folder, extra=(info,))
    assert "not a plain file name" in refusal(path)
    assert sorted(entry.name for entry in folder.parent.iterdir()) == ["bundle", "bundle.zip"]


def test_zip_with_the_folder_around_the_files_says_how_to_make_it(folder: Path) -> None:
    assert "zip the files of the bundle, not the folder" in refusal(zip_by_hand(folder, prefix="bundle/"))


@pytest.mark.parametrize("name", [MANIFEST_NAME, "weights.bin"])
def test_member_that_appears_twice_is_refused(name: str, folder: Path) -> None:
    assert f"'{name}' appears twice" in refusal(zip_by_hand(folder, extra=(name,)))


def test_link_in_a_zip_is_refused(folder: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "'link' is refused: not a plain file" in refusal(zip_by_hand(folder, extra=(info,)))


def test_extra_member_is_refused(folder: Path) -> None:
    assert "notes.txt not part of the bundle" in refusal(zip_by_hand(folder, extra=("notes.txt",)))


def test_missing_member_is_named(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    assert "weights.bin missing" in refusal(zip_by_hand(folder))


def test_zip_without_a_manifest(folder: Path) -> None:
    (folder / MANIFEST_NAME).unlink()
    assert "no bundle.json at the top of this zip" in refusal(zip_by_hand(folder))


def test_size_that_differs_from_the_manifest_is_refused(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(bytes(17))
    assert "weights.bin: has 17 bytes, the manifest says 16" in refusal(zip_by_hand(folder), verify=False)


def test_changed_content_is_refused(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(bytes(16))
    assert "weights.bin: its content has changed" in refusal(zip_by_hand(folder))


def test_too_many_members_are_refused(folder: Path) -> None:
    extra = tuple(f"x{i}" for i in range(1100))
    assert "a bundle has at most 1025" in refusal(zip_by_hand(folder, extra=extra))


def test_cut_zip_is_refused(packed: Path, tmp_path: Path) -> None:
    whole = packed.read_bytes()
    for kept in (0, 1, 100, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        (tmp_path / "cut.zip").write_bytes(whole[:kept])
        refusal(tmp_path / "cut.zip")


def test_overlapping_members_are_refused(packed: Path, tmp_path: Path) -> None:
    """A zip bomb without compression: many names for the same bytes."""
    with zipfile.ZipFile(packed) as archive:
        infos = archive.infolist()
    whole = bytearray(packed.read_bytes())
    for info in infos[1:]:  # the size fields of each central header
        header = whole.rindex(info.filename.encode()) - 46
        whole[header + 20 : header + 28] = (len(whole)).to_bytes(4, "little") * 2
    (tmp_path / "bomb.zip").write_bytes(whole)
    assert "members overlap" in refusal(tmp_path / "bomb.zip")


def test_refused_zip_leaves_no_folder_behind(
    packed: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (folder / "weights.bin").write_bytes(bytes(16))
    refusal(zip_by_hand(folder))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_full_disk_is_one_line(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full_disk)
    assert "cannot be unpacked into" in refusal(packed)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage_is_refused_or_harmless(packed: Path, data: st.DataObject) -> None:
    whole = bytearray(packed.read_bytes())
    # Headers lie between the members and at the end; the last 700 bytes are the directory.
    from_end = data.draw(st.booleans())
    place = len(whole) - data.draw(st.integers(1, 700)) if from_end else data.draw(st.integers(0, len(whole) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=4))
    whole[place : place + len(patch)] = patch
    damaged = packed.with_name("damaged.zip")
    damaged.write_bytes(whole)
    contents = []
    assert "\n" not in problem_of(lambda: contents.append(read_bundle(damaged).read("weights.bin")))
    assert contents in ([], [bytes(range(16))])
