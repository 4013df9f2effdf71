"""A tiny bundle for tests: real ONNX files with external data, a real SentencePiece model, arbitrary weights."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import sentencepiece
from onnx import TensorProto, helper

from tfexport_runtime.bundle import (
    CacheInfo,
    GraphInfo,
    Manifest,
    ModelInfo,
    Requirements,
    SourceInfo,
    TargetInfo,
    TensorInfo,
    TokenizerInfo,
    describe_files,
    write_manifest,
)
from tfexport_runtime.errors import BundleError

VOCAB = 24


@cache
def sentencepiece_model() -> bytes:
    """A character model of VOCAB pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abcdefghijklmnopqrs"] * 5),
        model_writer=model,
        model_type="char",
        vocab_size=VOCAB,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
    )
    return model.getvalue()


def external_tensor(location: str = "weights.bin", name: str = "w") -> TensorProto:
    """A float32 tensor [4] whose data lies elsewhere."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": "0", "length": "16"}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def onnx_model(*initializers: TensorProto) -> onnx.ModelProto:
    """y = x + w"""
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", rows[:1], rows[1:], [*initializers])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def make_bundle(folder: Path) -> Path:
    """Writes a bundle with one tokenizer file for both sides."""
    folder.mkdir()
    graph = onnx_model(external_tensor()).SerializeToString()
    (folder / "encoder.onnx").write_bytes(graph)
    (folder / "decoder.onnx").write_bytes(graph)
    (folder / "weights.bin").write_bytes(bytes(range(16)))
    (folder / "source.spm").write_bytes(sentencepiece_model())
    (folder / "README.md").write_bytes("Grüße\n".encode())
    write_manifest(folder, example_manifest(folder))
    return folder


def example_manifest(folder: Path) -> Manifest:
    tokenizer = TokenizerInfo("sentencepiece", "source.spm")
    return Manifest(
        producer={"tfexport": "0.1.0", "onnx": onnx.__version__},
        model=ModelInfo(
            name="tiny",
            parameters=4,
            d_model=4,
            num_heads=1,
            head_size=4,
            num_encoder_layers=1,
            num_decoder_layers=1,
            d_ff=8,
            source_vocab_size=VOCAB,
            target_vocab_size=VOCAB,
            max_source_length=16,
            max_target_length=16,
        ),
        source=SourceInfo(tokenizer, add_bos=False, add_eos=True, pad_id=0, start_id=1, eos_id=2, unk_id=3),
        target=TargetInfo(tokenizer, pad_id=0, start_id=1, eos_id=2, unk_id=3, never_generated=(0, 1)),
        graphs={"encoder": _graph("encoder.onnx"), "decoder": _graph("decoder.onnx")},
        weights=("weights.bin",),
        cache=CacheInfo("growing"),
        precision="fp32",
        operators="portable",
        opset=18,
        ir_version=10,
        requirements=Requirements(onnxruntime="1.23", domains=("",)),
        files=describe_files(folder),
        generation={"beam_size": 4, "alpha": 0.6, "max_length": None, "suppress_tokens": (3,)},
        parity={"max_logit_difference": 1e-6, "sentences": {"count": 3, "note": "é"}},
    )


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes `bundle.json` in place, without any check."""
    path = folder / "bundle.json"
    values = json.loads(path.read_bytes())
    values.pop("digest", None)  # as if it had been written so
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def list_again(folder: Path) -> None:
    """Makes the manifest's sizes and digests fit the files again."""
    described = {name: vars(info) for name, info in describe_files(folder).items()}
    edit_manifest(folder, lambda values: values.update(files=described))


def problem_of(action: Callable[[], object]) -> str:
    """The message with which the action is refused; empty if it is not. Other errors pass through."""
    try:
        action()
    except BundleError as error:
        return str(error)
    return ""


def _graph(file: str) -> GraphInfo:
    return GraphInfo(file, (TensorInfo("x", "float32", ("batch", 4)),), (TensorInfo("y", "float32", ("batch", 4)),))
