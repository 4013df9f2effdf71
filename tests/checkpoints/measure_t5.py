"""How far an imported T5 is from the original, beside how far float32 itself is from float64.

    .venv-peers/bin/python -m tests.checkpoints.measure_t5    # needs transformers; prints a table, 2 minutes

Two shapes, each with the library's own initialisation and with weights as large as training makes them: embeddings of
norm 250, states that grow to thousands, logits of tens.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers as hf
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5LayerNorm

from tfexport.checkpoints import ImportOptions, open_checkpoint

VOCABULARY, LENGTHS, TARGET = 32128, (20, 3, 11, 16), 16
SHAPES: dict[str, dict[str, Any]] = {
    "T5-small": {"num_layers": 6, "num_heads": 8, "d_ff": 2048},
    "Flan-T5-small": {
        "num_layers": 8, "num_heads": 6, "d_ff": 1024, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    },
}  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    sys.stdout.write("model, weights | largest state, logit | import - original (of the largest) | ")
    sys.stdout.write("original - its float64 | import - that float64\n")
    for shape, settings in SHAPES.items():
        for weights in ("own initialisation", "as trained"):
            measure(f"{shape}, {weights}", settings, weights == "as trained")


def measure(name: str, settings: dict[str, Any], trained: bool) -> None:
    torch.manual_seed(1)
    config = hf.T5Config(vocab_size=VOCABULARY, d_model=512, decoder_start_token_id=0, **settings)
    model = hf.T5ForConditionalGeneration(config).eval()
    if trained:
        enlarge(model)
    batch = random_batch()
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        model.save_pretrained(folder)
        ours = open_checkpoint(Path(folder), ImportOptions(ids=True)).checkpoint.build_model()
        ids, mask = batch["input_ids"], batch["attention_mask"].bool()
        imported = ours.decode(ours.encode(ids, mask), mask, batch["decoder_input_ids"])
        found = model(**batch, output_hidden_states=True)
        with in_float64():
            exact = model.double()(**batch).logits
    largest, state = float(exact.abs().max()), max(float(s.abs().max()) for s in found.decoder_hidden_states[:-1])
    apart = difference(imported, found.logits)
    sys.stdout.write(
        f"{name} | {state:.0f}, {largest:.1f} | {apart:.1e} ({apart / largest:.1e}) | "
        f"{difference(found.logits, exact):.1e} | {difference(imported, exact):.1e}\n"
    )
    sys.stdout.flush()


def difference(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


def random_batch() -> dict[str, Tensor]:
    ids = torch.randint(5, VOCABULARY, (len(LENGTHS), max(LENGTHS)))
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    target = torch.randint(5, VOCABULARY, (len(LENGTHS), TARGET))
    target[:, 0] = 0
    return {"input_ids": ids * mask, "attention_mask": mask, "decoder_input_ids": target}


def enlarge(model: Any) -> None:
    """Norms take most of it back, and a few features stand out by far, as they do in trained models."""
    sizes: Sequence[tuple[str, float]] = (
        ("shared", 11.0), ("relative_attention_bias", 3.0), ("wo.", 0.6), ("wi", 0.4), (".o.", 0.5), (".v.", 0.3),
        (".q.", 0.05), (".k.", 0.35),
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.normal_(0.2, 0.05)
            for part, std in sizes:
                if part in name:
                    parameter.normal_(0.0, std)
            if "wo." in name:
                parameter[:4] *= 15
        model.lm_head.weight.normal_(0.0, 11.0 if model.config.tie_word_embeddings else 3.0)
        model.decoder.final_layer_norm.weight.normal_(1.5, 0.2)
        if not model.config.tie_word_embeddings:
            model.decoder.final_layer_norm.weight.mul_(0.1)


@contextmanager
def in_float64() -> Iterator[None]:
    """transformers computes norms and softmax in float32 whatever the model is; here they are exact."""

    def forward(norm: Any, states: Tensor) -> Tensor:
        out: Tensor = norm.weight * states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        return out

    with mock.patch.object(torch.Tensor, "float", lambda t: t), mock.patch.object(T5LayerNorm, "forward", forward):
        yield


if __name__ == "__main__":
    main()
