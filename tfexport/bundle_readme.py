"""The README inside a bundle: what it is, how it was made, how to run it."""

from __future__ import annotations

from tfexport.agreement import SHOWN_LAYERS, Agreement
from tfexport.formats.torch_readme import WITHOUT_THIS_PACKAGE
from tfexport.parity import ParityReport
from tfexport_runtime.manifest import GraphFormat, Manifest
from tfexport_runtime.search_graph import OPTIONS

_GRAPHS: dict[GraphFormat, str] = {
    "onnx": "two ONNX graphs over the same weights",
    "ort": "two graphs in ONNX Runtime's own format",
    "single": "one ONNX graph with the whole search inside",
    "torchscript": "one TorchScript module with the search inside",
    "torch-export": "two exported programs of PyTorch",
    "aoti": "two packages of PyTorch's AOTInductor",
    "executorch": "programs of ExecuTorch",
}

_RUNTIME = """```
pip install "tfexport[cpu]"
python -m tfexport_runtime . < input.txt > output.txt
```

```python
from tfexport_runtime.translator import Translator

print(Translator(".").translate(["..."])[0].text)
```
"""

_ANOTHER_ENGINE = """```
tfexport translate . < input.txt > output.txt
```
"""

_ONE_CALL = f"""
Or without that package: ids in, ids out by one call.

```python
import numpy as np, onnxruntime

session = onnxruntime.InferenceSession("search.onnx")
ids = np.array([[...]])  # of the tokenizer, with the ids that bundle.json wants around them
mask = np.ones_like(ids, dtype=np.int32)
request = {{"input_ids": ids, "attention_mask": mask, "beam_size": np.array([4]), "max_length": np.array([200])}}
sequences, lengths, scores = session.run(["sequences", "lengths", "scores"], request)
best = sequences[0, 0, : lengths[0, 0]]
```

`max_length` is one number, or one for each sentence. The input `options` need not be given; its eight float32 are
{", ".join(OPTIONS)}, and a score is sum / ((n + length_offset) / length_scale)^alpha + word_reward * n.
Sentences that have ended are computed on until the last one has, so put texts of similar lengths together.
"""


def bundle_readme(manifest: Manifest, parity: ParityReport) -> str:
    m = manifest.model
    made = ", ".join(f"{name} {version}" for name, version in manifest.producer.items())
    rows = "\n".join(f"| {r.name} | {r.compared:,} | {r.difference:.2g} | {r.limit:g} |" for r in parity.rows)
    return f"""# {m.name}

An encoder-decoder Transformer as {_GRAPHS[manifest.graph_format]}:
{m.num_encoder_layers}+{m.num_decoder_layers} layers, d_model {m.d_model}, {m.num_heads} heads, d_ff {m.d_ff},
{m.parameters:,} parameters, {manifest.precision}.
`bundle.json` says everything that a program needs to know: names and shapes, special ids, tokenizers, hashes.

## Run it

{_how_to_run(manifest)}
## How it was made

{made}{_opset(manifest)}. Before it was published, it was compared with PyTorch:

| compared | how many | worst difference | limit |
|---|--:|--:|--:|
{rows}
{_agreement(parity.agreement)}
`golden.json` holds inputs with the expected ids and scores: run it on the device.
"""


def _how_to_run(manifest: Manifest) -> str:
    if not manifest.requirements.onnxruntime:
        return _ANOTHER_ENGINE + WITHOUT_THIS_PACKAGE.get(manifest.graph_format, "")
    return _RUNTIME + (_ONE_CALL if manifest.graph_format == "single" else "")


def _opset(manifest: Manifest) -> str:
    return f"; operators `{manifest.operators}`, opset {manifest.opset}" if manifest.opset else ""


def _agreement(agreement: Agreement | None) -> str:
    if agreement is None:
        return ""
    searches = ", ".join(f"{search.search} {100 * search.same:.1f} %" for search in agreement.searches)
    rows = "\n".join(
        f"| {layer.weight} | {layer.graph} | {layer.decibels:.1f} |" for layer in agreement.layers[:SHOWN_LAYERS]
    )
    return f"""
Sentences of the text given at export with the same tokens as float32: {searches}. Behind float32's translation so far,
{100 * agreement.positions:.1f} % of {agreement.compared:,} next tokens were the same. The noisiest products:

| weight | graph | signal to noise, dB |
|---|---|--:|
{rows}
"""
