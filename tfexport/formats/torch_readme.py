"""How the formats of PyTorch are loaded without this package: for the README inside their bundles."""

from __future__ import annotations

from tfexport_runtime.manifest import GraphFormat

_TORCHSCRIPT = """
Or without that package, from Python or C++: token ids in, token ids out. The module has `greedy` and `beam`, and
`encode` and `step` for a search of your own. Ids come from the tokenizer, with those around them that `bundle.json`
wants; the mask is 1 on them and 0 on padding behind them. PyTorch no longer develops TorchScript, but loads it.

```python
import torch

module = torch.jit.load("model.pt")
ids = torch.tensor([[...]])
mask = torch.ones_like(ids, dtype=torch.int32)
with torch.inference_mode():
    found, lengths, scores, ended = module.beam(ids, mask, beam_size=4)
best = found[0, 0, : lengths[0, 0]]
```

```cpp
#include <torch/script.h>

c10::InferenceMode no_gradients;
auto module = torch::jit::load("model.pt");
// ids int64 and mask int32, both [sentences, length]
auto found = module.get_method("beam")({ids, mask, int64_t(4)}).toTuple();
auto tokens = found->elements()[0].toTensor();   // int64 [sentences, n_best, tokens]
auto lengths = found->elements()[1].toTensor();  // int64 [sentences, n_best]
```

Further arguments of `beam`, in this order: `n_best`, `max_length` (0: none), `max_length_ratio`, `max_length_extra`,
`alpha`, `length_offset`, `early_stopping`. Ids that are never generated are built in, defaults of `bundle.json` not.
`encode` and `step` give what was asked for with `--with` behind the keys and values, in the order of `bundle.json`.
"""

_STEP = """
Inputs and outputs have the order of `bundle.json`; keys and values of all layers are two lists, `past` and `cross`. In
`input_ids` sentences and beams are two axes. Before the first step `past` has the length 0. What was asked for with
`--with` stands behind the keys and values that come out, and does not go in again.
"""

_LOADING_RUNS_CODE = """
**Loading these files can run code that is in them.** tfexport compares their SHA-256 with `bundle.json` before; whether
to trust who made the bundle is up to you.
"""

_TORCH_EXPORT = f"""
Or without that package:

```python
import torch

encoder = torch.export.load("encoder.pt2").module()
decoder = torch.export.load("decoder.pt2").module()
with torch.inference_mode():
    cross = encoder(ids, mask)  # int64 and int32 [sentences, length]
    scores, candidates, logits, past = decoder(input_ids, past_lengths, mask, logit_bias, num_candidates, past, cross)
```
{_STEP}
For C++ there is `--format aoti`, which compiles the same programs.
{_LOADING_RUNS_CODE}"""

_AOTI = f"""
They were compiled for this kind of processor and system, and for the PyTorch that is named below.

Or without that package:

```python
import torch

encoder = torch._inductor.aoti_load_package("encoder.pt2")
decoder = torch._inductor.aoti_load_package("decoder.pt2")
with torch.inference_mode():
    cross = encoder(ids, mask)  # int64 and int32 [sentences, length]
    scores, candidates, logits, past = decoder(input_ids, past_lengths, mask, logit_bias, num_candidates, past, cross)
```

```cpp
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

c10::InferenceMode no_gradients;
torch::inductor::AOTIModelPackageLoader encoder("encoder.pt2");
std::vector<at::Tensor> inputs{{ids, mask}};
std::vector<at::Tensor> cross = encoder.run(inputs);  // of the decoder, too: one list, in the order of bundle.json
```
{_STEP}{_LOADING_RUNS_CODE}"""

WITHOUT_THIS_PACKAGE: dict[GraphFormat, str] = {
    "torchscript": _TORCHSCRIPT,
    "torch-export": _TORCH_EXPORT,
    "aoti": _AOTI,
}
