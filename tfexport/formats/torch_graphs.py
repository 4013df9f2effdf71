"""What the formats that PyTorch writes share: what the manifest says of them, and what runs them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from warnings import catch_warnings, filterwarnings

import torch

from tfexport.errors import ExportError
from tfexport.formats.format import Work, Written, graph_info
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport.graphs.signature import GraphSignature, TensorSignature, decoder_signature, encoder_signature
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import Array
from tfexport_runtime.errors import OptionError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.manifest import CacheInfo, Manifest, Requirements
from tfexport_runtime.session import SessionOptions, available_cores


def checked(work: Work) -> FurtherOutputs:
    """The outputs on request. Raises ExportError for what these formats do not have."""
    if work.choice.precision != "fp32":
        raise ExportError(
            f"--format {work.options.format} is in float32; leave out --precision, or choose --format onnx"
        )
    return FurtherOutputs.of(work.options, work.checkpoint.config)


def step_signature(work: Work, sentences_and_beams: bool = False) -> GraphSignature:
    """sentences_and_beams: of a DecoderGraph."""
    config = work.checkpoint.config
    step = decoder_signature(config, in_place=False)
    if sentences_and_beams:
        step = replace(step, inputs=(TensorSignature("input_ids", "int64", ("batch", "beams")), *step.inputs[1:]))
    return step.with_outputs(FurtherOutputs.of(work.options, config).of_decoder(config))


def written(work: Work, encoder: str, decoder: str, step: GraphSignature) -> Written:
    """What the manifest says of files that hold their weights, or of one for both."""
    config = work.checkpoint.config
    states = FurtherOutputs.of(work.options, config).of_encoder(config)
    return Written(
        graphs={
            "encoder": graph_info(encoder, encoder_signature(config).with_outputs(states)),
            "decoder": graph_info(decoder, step),
        },
        weights=(),
        cache=CacheInfo("growing"),
        requirements=Requirements("", ()),
        operators="portable",
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Hides what PyTorch warns of: that TorchScript has no future, which docs/formats.md says, and its own code."""
    with catch_warnings():
        filterwarnings("ignore", r".torch\.jit\.\w+. is (deprecated|not supported)", DeprecationWarning)
        filterwarnings("ignore", r".isinstance\(treespec, LeafSpec\). is deprecated", FutureWarning)
        yield


def growing_model(
    bundle: Bundle, options: SessionOptions, encode: Callable[..., Any], step: Callable[..., Any]
) -> GrowingModel:
    """encode and step take and give what `EncoderGraph` and `DecoderGraph` do. Raises OptionError."""
    if options.parallel_batches < 1 or (options.threads is not None and options.threads < 1):
        raise OptionError("threads and parallel_batches must be at least 1")
    if options.provider != "cpu":
        raise OptionError(f"format {bundle.manifest.graph_format} runs on the CPU here; leave out --provider")
    torch.set_num_threads(options.threads or max(1, available_cores() // options.parallel_batches))
    return GrowingModel(bundle.manifest, EncoderRun(encode, bundle.manifest), DecoderRun(step, bundle.manifest))


class EncoderRun:
    """A Graph of the runtime: names and arrays around a function of tensors."""

    def __init__(self, encode: Callable[..., Any], manifest: Manifest) -> None:
        self._encode = encode
        self._outputs = [tensor.name for tensor in manifest.graphs["encoder"].outputs]

    @torch.inference_mode()
    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        ids, mask = (torch.from_numpy(input_feed[name]) for name in ("input_ids", "attention_mask"))
        found = dict(zip(self._outputs, self._encode(ids, mask), strict=True))
        return [found[name].numpy() for name in output_names]


class DecoderRun:
    """As EncoderRun. The layers, whose number only the manifest knows, are two lists of the function."""

    def __init__(self, step: Callable[..., Any], manifest: Manifest) -> None:
        self._step = step
        names = [tensor.name for tensor in manifest.graphs["decoder"].inputs]
        self._past, self._cross = ([n for n in names if f".{side}." in n] for side in ("decoder", "encoder"))
        self._single = [n for n in names if n not in {*self._past, *self._cross}]
        self._outputs = [tensor.name for tensor in manifest.graphs["decoder"].outputs]

    @torch.inference_mode()
    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        single, past, cross = (
            [torch.from_numpy(input_feed[name]) for name in names] for names in (self._single, self._past, self._cross)
        )
        scores, ids, logits, others = self._step(*single, past, cross)
        found = dict(zip(self._outputs, [scores, ids, logits, *others], strict=True))
        return [found[name].numpy() for name in output_names]
