"""`tfexport inspect` shows what is in the files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import onnx

from tests.cli.conftest import Cli


def test_json_is_the_manifest_and_the_operators(cli: Cli, tiny_bundle: Path) -> None:
    found = json.loads(cli("inspect", tiny_bundle, "--json").out)
    counts = found.pop("operator_counts")
    manifest = json.loads((tiny_bundle / "bundle.json").read_text(encoding="utf-8"))
    manifest.pop("digest")  # of the file, not of what it says
    assert found == manifest
    for name in ("encoder", "decoder"):
        nodes = onnx.load(tiny_bundle / f"{name}.onnx", load_external_data=False).graph.node
        assert counts[name] == Counter(f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in nodes)


def test_table_names_files_tensors_sizes_and_parity(cli: Cli, tiny_bundle: Path) -> None:
    result = cli("inspect", tiny_bundle)
    assert (result.status, result.err) == (0, "")
    digest = hashlib.sha256((tiny_bundle / "weights.bin").read_bytes()).hexdigest()
    words = ["55,648", "2 encoder, 1 decoder", "d_model 32", "input_ids", "past_key_values.0.decoder.key", digest[:16]]
    words += ["passed", "GroupQueryAttention", "onnxruntime", "[rows, 4, capacity, 8]"]
    assert [word for word in words if word not in result.out] == []


def test_zip_is_shown_like_a_folder(cli: Cli, tiny_bundle: Path, tmp_path: Path) -> None:
    from tfexport_runtime.archive import pack_zip

    pack_zip(tiny_bundle, tmp_path / "bundle.zip")
    assert cli("inspect", tmp_path / "bundle.zip", "--json").out == cli("inspect", tiny_bundle, "--json").out


def test_mobile_adds_what_accelerators_of_phones_take(cli: Cli, tiny_fixed_bundle: Path) -> None:
    assert "mobile" not in json.loads(cli("inspect", tiny_fixed_bundle, "--json").out)
    found = json.loads(cli("inspect", tiny_fixed_bundle, "--mobile", "--json").out)["mobile"]
    assert [(v["graph"], v["verdict"]) for v in found if v["provider"] == "NNAPI"] == [
        ("encoder", "yes"),
        ("decoder", "yes"),
    ]
    result = cli("inspect", tiny_fixed_bundle, "--mobile")
    assert (result.status, result.err) == (0, "")
    assert [word for word in ("NNAPI", "Core ML MLProgram", "one", "LogSoftmax, TopK") if word not in result.out] == []
