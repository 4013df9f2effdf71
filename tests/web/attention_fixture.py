"""A bundle whose decoder gives the weights of its last cross-attention, made from a growing one."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from tfexport_runtime.seal import SEAL_KEY, sealed

OUTPUT = "cross_attention"


def write_with_attention(bundle: Path, output: Path) -> None:
    """Adds the output `cross_attention`, float32 [R, heads, S]."""
    shutil.copytree(bundle, output)
    manifest = json.loads((output / "bundle.json").read_text(encoding="utf-8"))
    _add_output(output / "decoder.onnx", manifest["model"]["num_heads"])
    shape = ["rows", manifest["model"]["num_heads"], "source"]
    manifest["graphs"]["decoder"]["outputs"].append({"name": OUTPUT, "type": "float32", "shape": shape})
    manifest["files"]["decoder.onnx"] = _facts(output / "decoder.onnx")
    del manifest[SEAL_KEY]
    (output / "bundle.json").write_text(sealed(json.dumps(manifest, indent=2)), encoding="utf-8")


def _add_output(path: Path, heads: int) -> None:
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    weights = [node.output[0] for node in graph.node if node.op_type == "Softmax"][-1]  # [B, heads, K, S]
    shape = helper.make_tensor("attention_shape", onnx.TensorProto.INT64, [3], [0, heads, -1])
    graph.initializer.append(shape)
    graph.node.extend(
        [
            helper.make_node("Transpose", [weights], ["attention_by_row"], perm=[0, 2, 1, 3]),
            helper.make_node("Flatten", ["attention_by_row"], ["attention_flat"], axis=2),
            helper.make_node("Reshape", ["attention_flat", "attention_shape"], [OUTPUT]),
        ]
    )
    axes = ["rows", heads, "source"]
    graph.output.append(helper.make_tensor_value_info(OUTPUT, onnx.TensorProto.FLOAT, axes))
    onnx.save(model, path)


def _facts(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
