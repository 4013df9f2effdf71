"""Reading bundles: whole ones open, everything else is refused in one clear line."""

from __future__ import annotations

import gc
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.bundle_fixture import (
    VOCAB,
    edit_manifest,
    external_tensor,
    list_again,
    make_bundle,
    onnx_model,
    problem_of,
)
from tfexport_runtime import bundle as bundle_module
from tfexport_runtime.bundle import MANIFEST_NAME, describe_files, pack_zip, read_bundle
from tfexport_runtime.errors import BundleError
from tfexport_runtime.translator import bundle_vocabularies

NAMES = ["README.md", "decoder.onnx", "encoder.onnx", "source.spm", "weights.bin"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that put back what they change."""
    return make_bundle(tmp_path_factory.mktemp("shared") / "bundle")


def refusal(path: Path, verify: bool = True) -> str:
    """The message with which the bundle is refused; always one line."""
    with pytest.raises(BundleError) as caught:
        read_bundle(path, verify)
    message = str(caught.value)
    assert "\n" not in message
    return message


# Whole bundles


def test_folder_opens(folder: Path) -> None:
    opened = read_bundle(folder)
    assert opened.manifest.model.name == "tiny"
    assert sorted(opened.manifest.files) == NAMES
    assert opened.read("weights.bin") == bytes(range(16))
    assert opened.path("weights.bin") == folder / "weights.bin"


def test_link_to_the_folder_opens(folder: Path) -> None:
    link = folder.with_name("current")
    link.symlink_to(folder, target_is_directory=True)
    assert read_bundle(link).read("weights.bin") == bytes(range(16))


def test_default_options_lie_over_those_of_the_runtime(folder: Path) -> None:
    options = read_bundle(folder).manifest.default_options()
    assert (options.beam_size, options.alpha, options.suppress_tokens) == (4, 0.6, (3,))
    assert options.length_penalty == "average"


def test_files_outside_the_list_cannot_be_read(folder: Path) -> None:
    opened = read_bundle(folder)
    for name in (MANIFEST_NAME, "../secret", "/etc/passwd", "nothing"):
        with pytest.raises(BundleError, match="holds no file"):
            opened.read(name)


def test_file_that_shrinks_after_opening_is_noticed(folder: Path) -> None:
    opened = read_bundle(folder)
    (folder / "weights.bin").write_bytes(b"short")
    with pytest.raises(BundleError, match=r"weights\.bin: changed since"):
        opened.read("weights.bin")


# Tokenizers


def test_shared_tokenizer_is_one_object(folder: Path) -> None:
    opened = read_bundle(folder)
    assert opened.source_tokenizer() is opened.target_tokenizer()
    assert opened.source_tokenizer().decode(opened.source_tokenizer().encode("abc")) == "abc"


def test_tokens_beyond_the_vocabulary_are_unknown(folder: Path) -> None:
    whole = read_bundle(folder)
    size = max(whole.source_tokenizer().encode("abc"))
    edit_manifest(folder, lambda m: m["model"].update(source_vocab_size=size))
    opened = read_bundle(folder)
    unk_id = opened.manifest.source.unk_id
    expected = [i if i < size else unk_id for i in whole.source_tokenizer().encode("abc")]
    assert opened.source_tokenizer().encode("abc") == expected
    assert opened.source_tokenizer().size == size
    assert unk_id in expected
    assert opened.target_tokenizer().encode("abc") == whole.source_tokenizer().encode("abc")


def test_ids_around_a_text_come_from_the_manifest(folder: Path) -> None:
    def change(m: dict[str, Any]) -> None:
        m["source"].update(add_bos=True, prefix_ids=[7, 8], suffix_ids=[9])
        m["target"].update(prefix_ids=[6, 5])

    edit_manifest(folder, change)
    opened = read_bundle(folder)
    assert bundle_vocabularies(opened).before == (1, 7, 8)
    assert bundle_vocabularies(opened).after == (2, 9)
    assert opened.manifest.search_target().prefix_ids == (6, 5)
    for name in ("prefix_ids", "suffix_ids"):
        edit_manifest(folder, lambda m, name=name: m["source"].pop(name))  # type: ignore[misc]
    edit_manifest(folder, lambda m: m["target"].pop("prefix_ids"))
    opened = read_bundle(folder)
    assert (bundle_vocabularies(opened).before, bundle_vocabularies(opened).after) == ((1,), (2,))
    assert opened.manifest.search_target().prefix_ids == ()


def test_target_ids_without_a_token_must_be_ruled_out(folder: Path) -> None:
    edit_manifest(folder, lambda m: m["model"].update(target_vocab_size=VOCAB + 2))
    with pytest.raises(BundleError, match=rf"holds {VOCAB} tokens.*{VOCAB + 2}"):
        read_bundle(folder).target_tokenizer()
    edit_manifest(folder, lambda m: m["target"].update(never_generated=[0, 1, VOCAB, VOCAB + 1]))
    assert read_bundle(folder).target_tokenizer().size == VOCAB


def test_damaged_tokenizer_names_its_file(folder: Path) -> None:
    (folder / "source.spm").write_bytes(b"not a model")
    list_again(folder)
    with pytest.raises(BundleError, match=r"source\.spm: not a SentencePiece model"):
        read_bundle(folder).source_tokenizer()


# Damage


def test_nothing_there(tmp_path: Path) -> None:
    assert "no such file or folder" in refusal(tmp_path / "nothing")


def test_folder_of_something_else_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_bytes(b"")
    assert "no bundle.json in it (found ckpt.pt)" in refusal(tmp_path)


def test_file_of_something_else(tmp_path: Path) -> None:
    for content in (b"", b"hello", b"\x80\x02}" * 40):
        (tmp_path / "model.bin").write_bytes(content)
        assert "neither the folder of a bundle nor a zip of one" in refusal(tmp_path / "model.bin")


@pytest.mark.parametrize("name", NAMES)
def test_changed_byte_is_found(name: str, folder: Path) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    assert name in refusal(folder)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b""])
def test_missing_and_extra_bytes_are_found_without_hashing(
    name: str, change: Callable[[bytes], bytes], folder: Path
) -> None:
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(change(before))
    message = refusal(folder, verify=False)
    assert name in message
    assert f"the manifest says {len(before)}" in message


def test_verify_false_skips_only_the_hashing(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(bytes(16))
    assert "SHA-256" in refusal(folder)
    assert read_bundle(folder, verify=False).read("weights.bin") == bytes(16)


@pytest.mark.parametrize("name", NAMES)
def test_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    assert f"{name} missing" in refusal(folder)


@pytest.mark.parametrize("name", ["notes.txt", ".DS_Store", "weights.bin.bak", "line\nbreak"])
def test_extra_file_is_named(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"")
    assert ascii(name)[1:-1] in refusal(folder)


def test_folder_inside_is_refused(folder: Path) -> None:
    (folder / "more").mkdir()
    assert "more: is not a plain file" in refusal(folder)


@pytest.mark.parametrize("name", [*NAMES, MANIFEST_NAME])
def test_link_is_refused(name: str, folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    assert f"{name}: is a link" in refusal(folder)


def test_pipe_is_refused_without_reading_it(folder: Path) -> None:
    (folder / "README.md").unlink()
    os.mkfifo(folder / "README.md")
    assert "README.md: is not a plain file" in refusal(folder)


def test_large_manifest_is_not_read(folder: Path) -> None:
    with open(folder / MANIFEST_NAME, "r+b") as file:
        file.truncate(2**30)  # a sparse file
    assert "larger than 16 MiB" in refusal(folder)


def test_large_graph_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "MAX_GRAPH_BYTES", 10)
    assert "a graph may have at most 10" in refusal(folder)


def test_manifest_of_something_else_is_named_with_its_path(folder: Path) -> None:
    (folder / MANIFEST_NAME).write_bytes(b"{}")
    message = refusal(folder)
    assert str(folder / MANIFEST_NAME) in message
    assert "not the manifest of a tfexport bundle" in message


# External data


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "./weights.bin", "source.spm", ""])
def test_graph_that_reads_another_file_is_refused(location: str, folder: Path) -> None:
    (folder / "decoder.onnx").write_bytes(onnx_model(external_tensor(location)).SerializeToString())
    list_again(folder)
    message = refusal(folder, verify=False)
    assert "decoder.onnx: refused: reads" in message
    assert location in message


def test_graph_that_no_role_names_is_looked_into_as_well(folder: Path) -> None:
    (folder / "Other.ONNX").write_bytes(onnx_model(external_tensor("../x")).SerializeToString())
    list_again(folder)
    assert "Other.ONNX: refused: reads '../x'" in refusal(folder)


def test_damaged_graph_is_named(folder: Path) -> None:
    (folder / "encoder.onnx").write_bytes(b"\xff" * 20)
    list_again(folder)
    assert "encoder.onnx: not an ONNX graph" in refusal(folder)


# Describing and packing


def test_described_files_are_sorted_and_leave_the_manifest_out(folder: Path) -> None:
    described = describe_files(folder)
    assert list(described) == NAMES
    assert described["weights.bin"].bytes == 16
    # sha256sum of the bytes 0 to 15
    assert described["weights.bin"].sha256 == "be45cb2605bf36bebde684841a28f0fd43c69850a3dce5fedba69928ee3a8991"


@pytest.mark.parametrize("name", ["two words.txt", ".hidden", "é.txt"])
def test_names_that_a_bundle_cannot_hold_are_not_described(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"")
    with pytest.raises(BundleError, match="cannot be in a bundle"):
        describe_files(folder)


def test_zip_round_trip(folder: Path) -> None:
    packed = folder.with_suffix(".zip")
    pack_zip(folder, packed)
    opened = read_bundle(packed)
    assert opened.manifest == read_bundle(folder).manifest
    for name in NAMES:
        assert opened.read(name) == opened.path(name).read_bytes() == (folder / name).read_bytes()


def test_what_a_zip_holds_begins_on_a_boundary_so_that_it_can_be_mapped(folder: Path) -> None:
    packed = folder.with_suffix(".zip")
    pack_zip(folder, packed)
    data = packed.read_bytes()
    with zipfile.ZipFile(packed) as archive:
        for info in archive.infolist():
            name_size, extra_size = struct.unpack_from("<HH", data, info.header_offset + 26)
            begin = info.header_offset + 30 + name_size + extra_size
            assert begin % 64 == 0
            assert data[begin : begin + info.file_size] == archive.read(info)


def test_unpacked_files_go_with_the_bundle(folder: Path) -> None:
    packed = folder.with_suffix(".zip")
    pack_zip(folder, packed)
    opened = read_bundle(packed)
    unpacked = opened.folder
    assert unpacked.is_dir()
    del opened
    gc.collect()
    assert not unpacked.exists()


def test_packing_twice_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    pack_zip(folder, tmp_path / "a.zip")
    os.utime(folder / "weights.bin", (0, 0))
    pack_zip(folder, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == [MANIFEST_NAME, *NAMES]
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


def test_failed_packing_leaves_the_old_zip(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.zip"
    target.write_bytes(b"old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        pack_zip(folder, target)
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "bundle"]


def test_packing_into_the_folder_itself_is_refused(folder: Path) -> None:
    with pytest.raises(BundleError, match="write it elsewhere"):
        pack_zip(folder, folder / "bundle.zip")


def test_packing_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BundleError, match="not a bundle"):
        pack_zip(tmp_path / "folder", tmp_path / "a.zip")


# Fuzz


def use(folder: Path) -> None:
    """All that a translator does with a manifest."""
    opened = read_bundle(folder, verify=False)
    opened.manifest.to_json()
    opened.manifest.default_options()
    opened.source_tokenizer()
    opened.target_tokenizer()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_change_of_the_manifest_is_refused_or_harmless(shared_folder: Path, data: st.DataObject) -> None:
    path = shared_folder / MANIFEST_NAME
    whole = path.read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, min(start + 8, len(whole))))
    patch = data.draw(st.binary(max_size=8))
    try:
        path.write_bytes(whole[:start] + patch + whole[stop:])
        assert "\n" not in problem_of(lambda: use(shared_folder))
    finally:
        path.write_bytes(whole)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["", "..", 2**70]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_value_in_any_place_is_refused_or_harmless(shared_folder: Path, data: st.DataObject) -> None:
    path = shared_folder / MANIFEST_NAME
    whole = path.read_bytes()
    values = json.loads(whole)
    holder: Any = values
    while True:
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        if not isinstance(holder[key], (dict, list)) or not holder[key] or data.draw(st.booleans()):
            break
        holder = holder[key]
    holder[key] = data.draw(json_values)
    try:
        path.write_text(json.dumps(values), encoding="utf-8")
        assert "\n" not in problem_of(lambda: use(shared_folder))
    finally:
        path.write_bytes(whole)
