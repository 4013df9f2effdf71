"""What PyTorch's own formats share: the model's two functions over flat lists of tensors, and what runs them again.

Letters: B sentences, K beams, R = B*K rows, S source length, P cached length, H heads, D head size, L decoder layers,
V target vocabulary, N candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from warnings import catch_warnings, filterwarnings

import torch
from torch import Tensor, nn

from tfexport.errors import ExportError
from tfexport.formats.format import Work, Written, graph_info
from tfexport.graphs.signature import TensorSignature, decoder_signature, encoder_signature
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import Array
from tfexport_runtime.errors import OptionError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.manifest import CacheInfo, Manifest, Requirements
from tfexport_runtime.session import SessionOptions, available_cores
from tfexport_train.attention import DecoderCache, KeyValue
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder, log_probabilities

# Sizes of the examples: all different, none 0 or 1 (which a tracer takes as constants), rows a multiple of the batch.
_BATCH, _BEAMS, _SOURCE, _PAST = 3, 2, 7, 5


def check(work: Work) -> None:
    """Raises ExportError for what these formats do not have."""
    name, options = work.options.format, work.options
    if work.choice.precision != "fp32":
        raise ExportError(f"--format {name} is in float32; leave out --precision, or choose --format onnx")
    if options.attention or options.encoder_state:
        raise ExportError(f"--format {name} has no further outputs; leave out --with, or choose --format onnx")


def written(work: Work, encoder: str, decoder: str, sentences_and_beams: bool = False) -> Written:
    """What the manifest says of two files that hold their weights. sentences_and_beams: of a DecoderGraph."""
    config = work.checkpoint.config
    step = decoder_signature(config, in_place=False)
    if sentences_and_beams:
        step = replace(step, inputs=(TensorSignature("input_ids", "int64", ("batch", "beams")), *step.inputs[1:]))
    return Written(
        graphs={
            "encoder": graph_info(encoder, encoder_signature(config)),
            "decoder": graph_info(decoder, step),
        },
        weights=(),
        cache=CacheInfo("growing"),
        requirements=Requirements("", ()),
        operators="portable",
    )


def candidates(logits: Tensor, logit_bias: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest log-probabilities of every row and their ids, [R, N] each; of equals the lower id first.

    `topk` promises no order of equals. So it ranks float64, where an id makes its log-probability smaller by less than
    float32 tells apart: by 2^-48 of it times the id, which does for 2^23 ids.
    """
    log_probs = log_probabilities(logits + logit_bias)
    smaller = 1 + torch.arange(logits.shape[-1], dtype=torch.float64, device=logits.device) * 2.0**-48
    ids = torch.topk(log_probs.double() * smaller, count, dim=-1)[1]
    return log_probs.gather(-1, ids), ids


class Functions(nn.Module):
    """The two functions of the model over flat lists: keys and values of every decoder layer by turns."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """int64 and int32 [B, S] -> 2L of [B, H, S, D]."""
        memory = self.model.encode(input_ids, attention_mask.bool())
        return _flat(self.model.cross_key_values(memory))

    def decode_step(
        self, input_ids: Tensor, past_lengths: Tensor, source_mask: Tensor, past: list[Tensor], cross: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """int64 [R, 1], int32 [R], int32 [B, S], 2L of [R, H, P, D], of [B, H, S, D] -> logits [R, V], 2L of P + 1."""
        cache = DecoderCache(past_lengths, _pairs(past), _pairs(cross), source_mask.bool())
        logits, cache = self.model.step(input_ids, cache)
        return logits, _flat(cache.self_attention)


class EncoderGraph(Functions):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        return self.encode(input_ids, attention_mask)


class DecoderGraph(Functions):
    def forward(
        self,
        input_ids: Tensor,
        past_lengths: Tensor,
        encoder_attention_mask: Tensor,
        logit_bias: Tensor,
        num_candidates: Tensor,
        past: list[Tensor],
        cross: list[Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """input_ids int64 [B, K], logit_bias float32 [1, V], num_candidates int64 [1].

        Sentences and beams are two axes here, because a tracer cannot divide R by B without taking K for more than 1.
        """
        torch._check(input_ids.shape[0] == encoder_attention_mask.shape[0])  # type: ignore[no-untyped-call]
        tokens = input_ids.reshape(-1, 1)
        logits, present = self.decode_step(tokens, past_lengths, encoder_attention_mask, past, cross)
        count: int = num_candidates.item()  # type: ignore[assignment]  # a symbol while it is traced
        torch._check(count >= 1)  # type: ignore[no-untyped-call]
        torch._check(count <= logits.shape[-1])  # type: ignore[no-untyped-call]
        return *candidates(logits, logit_bias, count), logits, present


@contextmanager
def quiet() -> Iterator[None]:
    """Hides what PyTorch warns of: that TorchScript has no future, which docs/formats.md says, and its own code."""
    with catch_warnings():
        filterwarnings("ignore", r".torch\.jit\.\w+. is (deprecated|not supported)", DeprecationWarning)
        filterwarnings("ignore", r".isinstance\(treespec, LeafSpec\). is deprecated", FutureWarning)
        yield


def encoder_example() -> tuple[Tensor, Tensor]:
    """Arguments of `Functions.encode`."""
    return torch.ones(_BATCH, _SOURCE, dtype=torch.int64), torch.ones(_BATCH, _SOURCE, dtype=torch.int32)


def step_example(config: EncoderDecoderConfig) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Arguments of `Functions.decode_step`."""
    rows, layers = _BATCH * _BEAMS, range(2 * config.num_decoder_layers)
    return (
        torch.ones(rows, 1, dtype=torch.int64),
        torch.full((rows,), _PAST, dtype=torch.int32),
        torch.ones(_BATCH, _SOURCE, dtype=torch.int32),
        [torch.zeros(rows, config.num_heads, _PAST, config.head_size) for _ in layers],
        [torch.zeros(_BATCH, config.num_heads, _SOURCE, config.head_size) for _ in layers],
    )


def _flat(pairs: list[KeyValue]) -> list[Tensor]:
    return [tensor for pair in pairs for tensor in pair]


def _pairs(flat: list[Tensor]) -> list[KeyValue]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def growing_model(
    bundle: Bundle, options: SessionOptions, encode: Callable[..., Any], step: Callable[..., Any]
) -> GrowingModel:
    """encode and step take and give what `EncoderGraph` and `DecoderGraph` do. Raises OptionError."""
    if options.parallel_batches < 1 or (options.threads is not None and options.threads < 1):
        raise OptionError("threads and parallel_batches must be at least 1")
    if options.provider != "cpu":
        raise OptionError(f"format {bundle.manifest.graph_format} runs on the CPU here; leave out --provider")
    torch.set_num_threads(options.threads or max(1, available_cores() // options.parallel_batches))
    return GrowingModel(bundle.manifest, EncoderRun(encode), DecoderRun(step, bundle.manifest))


class EncoderRun:
    """A Graph of the runtime: names and arrays around a function of tensors."""

    def __init__(self, encode: Callable[..., Any]) -> None:
        self._encode = encode

    @torch.inference_mode()
    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        ids, mask = (torch.from_numpy(input_feed[name]) for name in ("input_ids", "attention_mask"))
        return [tensor.numpy() for tensor in self._encode(ids, mask)]


class DecoderRun:
    """As EncoderRun. The layers, whose number only the manifest knows, are two lists of the function."""

    def __init__(self, step: Callable[..., Any], manifest: Manifest) -> None:
        self._step = step
        names = [tensor.name for tensor in manifest.graphs["decoder"].inputs]
        self._past, self._cross = ([n for n in names if f".{side}." in n] for side in ("decoder", "encoder"))
        self._single = [n for n in names if n not in {*self._past, *self._cross}]

    @torch.inference_mode()
    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        """The wanted ones of the first three outputs, then the cache: all that the runtime asks for."""
        single, past, cross = (
            [torch.from_numpy(input_feed[name]) for name in names] for names in (self._single, self._past, self._cross)
        )
        scores, ids, logits, present = self._step(*single, past, cross)
        found = {"candidate_scores": scores, "candidate_ids": ids, "logits": logits}
        return [tensor.numpy() for tensor in [*(found[n] for n in output_names if n in found), *present]]
