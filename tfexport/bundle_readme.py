"""The README inside a bundle: what it is, how it was made, how to run it."""

from __future__ import annotations

from tfexport.agreement import SHOWN_LAYERS, Agreement
from tfexport.parity import ParityReport
from tfexport_runtime.manifest import Manifest


def bundle_readme(manifest: Manifest, parity: ParityReport) -> str:
    m = manifest.model
    made = ", ".join(f"{name} {version}" for name, version in manifest.producer.items())
    rows = "\n".join(f"| {r.name} | {r.compared:,} | {r.difference:.2g} | {r.limit:g} |" for r in parity.rows)
    return f"""# {m.name}

An encoder-decoder Transformer as two ONNX graphs with one file of weights:
{m.num_encoder_layers}+{m.num_decoder_layers} layers, d_model {m.d_model}, {m.num_heads} heads, d_ff {m.d_ff},
{m.parameters:,} parameters, {manifest.precision}.
`bundle.json` says everything that a program needs to know: names and shapes, special ids, tokenizers, hashes.

## Run it

```
pip install "tfexport[cpu]"
python -m tfexport_runtime . < input.txt > output.txt
```

```python
from tfexport_runtime.translator import Translator

print(Translator(".").translate(["..."])[0].text)
```

## How it was made

{made}; operators `{manifest.operators}`, opset {manifest.opset}. Before it was published, it was compared with PyTorch:

| compared | how many | worst difference | limit |
|---|--:|--:|--:|
{rows}
{_agreement(parity.agreement)}
`golden.json` holds inputs with the expected ids and scores: run it on the device.
"""


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
