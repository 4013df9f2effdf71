"""One ExecuTorch program with the methods `encoder` and `step`, XNNPACK inside: for apps on phones and boards.

Letters: B sentences, K beams, R = B*K rows, S source length, P cached length, H heads, D head size.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tfexport.errors import ExportError
from tfexport.formats.format import Work, Written, graph_info
from tfexport.graphs.edge import EdgeEncoder, EdgeStep
from tfexport.graphs.signature import GraphSignature, TensorSignature, encoder_signature
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import Array
from tfexport_runtime.errors import BundleError, OptionError, UnavailableError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.manifest import CacheInfo, Manifest, Requirements
from tfexport_runtime.proposers import best_candidates
from tfexport_runtime.rules import log_softmax
from tfexport_runtime.session import SessionOptions, available_cores
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder

FILE = "model.pte"
MAX_SENTENCES, MAX_BEAMS = 8, 8  # of one run: memory is planned for as many

# Sizes of the examples: all different, none 0 or 1, which a tracer takes as constants.
_BATCH, _BEAMS, _SOURCE, _PAST = 3, 2, 7, 5
_MISSING = 'ExecuTorch is not installed; run: pip install "tfexport[executorch]"'


def write(work: Work) -> Written:
    """Raises ExportError for what the format does not have, UnavailableError where ExecuTorch is missing."""
    _check(work)
    config = work.checkpoint.config
    with _silent():
        try:
            import executorch.exir  # noqa: F401
        except ImportError as error:
            raise UnavailableError(_MISSING) from error
        work.progress("trace graphs")
        programs = {"encoder": _trace_encoder(work.model), "step": _trace_step(work.model)}
        work.progress("lower")
        program = _lower(programs)
        work.progress("write")
        with open(work.folder / FILE, "wb") as file:
            program.write_to_file(file)
    return Written(
        graphs={"encoder": graph_info(FILE, encoder_signature(config)), "decoder": graph_info(FILE, _step(config))},
        weights=(),
        cache=CacheInfo("growing"),
        requirements=Requirements("", ()),
        operators="portable",
    )


def open_model(bundle: Bundle, options: SessionOptions) -> GrowingModel:
    """Raises BundleError for a program that does not load, OptionError, UnavailableError without ExecuTorch."""
    if options.provider != "cpu":
        raise OptionError("format executorch runs on the processor here; leave out --provider")
    path = bundle.path(bundle.manifest.graphs["encoder"].file)
    with _silent():
        try:
            from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
            from executorch.runtime import Runtime
        except ImportError as error:
            raise UnavailableError(_MISSING) from error
        _unsafe_reset_threadpool(options.threads or max(1, available_cores() // options.parallel_batches))
        try:
            program = Runtime.get().load_program(path)
            encoder, step = (program.load_method(name) for name in ("encoder", "step"))
        except RuntimeError as error:
            raise BundleError(f"{path}: ExecuTorch cannot load this program: {str(error).splitlines()[0]}") from error
    one_at_a_time = threading.Lock()  # the methods share the memory that they compute in
    return GrowingModel(
        bundle.manifest, EncoderRun(encoder, one_at_a_time), StepRun(step, one_at_a_time, bundle.manifest)
    )


def _check(work: Work) -> None:
    options = work.options
    if work.choice.precision != "fp32":
        raise ExportError("--format executorch is in float32; leave out --precision, or choose --format onnx")
    if options.attention or options.encoder_state:
        raise ExportError("--format executorch has no further outputs; leave out --with, or choose --format onnx")


def _trace_encoder(model: EncoderDecoder) -> ExportedProgram:
    source = torch.ones(_BATCH, _SOURCE, dtype=torch.int64)
    axes = {0: Dim("batch", max=MAX_SENTENCES), 1: Dim("source", max=model.config.max_positions)}
    return _traced(EdgeEncoder(model), (source, source.int()), (axes, axes))


def _trace_step(model: EncoderDecoder) -> ExportedProgram:
    config, layers = model.config, range(2 * model.config.num_decoder_layers)
    batch, beams = Dim("batch", max=MAX_SENTENCES), Dim("beams", max=MAX_BEAMS)
    source, past = Dim("source", max=config.max_positions), Dim("past", min=0, max=config.max_positions - 1)
    tokens = torch.ones(_BATCH, _BEAMS, dtype=torch.int64)
    arguments = (
        tokens,
        tokens.int(),
        torch.ones(_BATCH, _SOURCE, dtype=torch.int32),
        [torch.zeros(_BATCH, _BEAMS, config.num_heads, _PAST, config.head_size) for _ in layers],
        [torch.zeros(_BATCH, config.num_heads, _SOURCE, config.head_size) for _ in layers],
    )
    shapes = (
        {0: batch, 1: beams},
        {0: batch, 1: beams},
        {0: batch, 1: source},
        [{0: batch, 1: beams, 3: past} for _ in layers],
        [{0: batch, 2: source} for _ in layers],
    )
    return _traced(EdgeStep(model), arguments, shapes)


def _traced(module: nn.Module, arguments: tuple[Any, ...], shapes: tuple[Any, ...]) -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module.eval(), arguments, dynamic_shapes=shapes, strict=False)


def _lower(programs: Mapping[str, ExportedProgram]) -> Any:
    """XNNPACK takes what it can; inputs and outputs lie in memory of the caller."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.utils.configs import get_xnnpack_edge_compile_config
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    lowered = to_edge_transform_and_lower(
        dict(programs), partitioner=[XnnpackPartitioner()], compile_config=get_xnnpack_edge_compile_config()
    )
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


def _step(config: EncoderDecoderConfig) -> GraphSignature:
    """Inputs and outputs of the method `step`, in its order."""
    own = ("batch", "beams", config.num_heads, "past", config.head_size)
    present = ("batch", "beams", config.num_heads, "past_plus_one", config.head_size)
    memory = ("batch", config.num_heads, "source", config.head_size)
    names = [f"{i}.{{}}.{part}" for i in range(config.num_decoder_layers) for part in ("key", "value")]
    return GraphSignature(
        (
            TensorSignature("input_ids", "int64", ("batch", "beams")),
            TensorSignature("past_lengths", "int32", ("batch", "beams")),
            TensorSignature("encoder_attention_mask", "int32", ("batch", "source")),
            *(TensorSignature(f"past_key_values.{name.format('decoder')}", "float32", own) for name in names),
            *(TensorSignature(f"past_key_values.{name.format('encoder')}", "float32", memory) for name in names),
        ),
        (
            TensorSignature("logits", "float32", ("batch", "beams", config.target_vocab_size)),
            *(TensorSignature(f"present.{name.format('decoder')}", "float32", present) for name in names),
        ),
    )


class _Run:
    """A method of the program, for any number of sentences: as many at a time as memory was planned for."""

    def __init__(self, method: Any, one_at_a_time: threading.Lock) -> None:
        self._method, self._one_at_a_time = method, one_at_a_time

    def _execute(self, inputs: Sequence[Array]) -> list[Array]:
        """All arrays have the sentences as their first axis."""
        parts = []
        for first in range(0, len(inputs[0]), MAX_SENTENCES):
            some = [torch.from_numpy(np.ascontiguousarray(a[first : first + MAX_SENTENCES])) for a in inputs]
            with self._one_at_a_time:
                outputs: Sequence[Tensor] = self._method.execute(some)
            parts.append([tensor.numpy() for tensor in outputs])
        return parts[0] if len(parts) == 1 else [np.concatenate(some) for some in zip(*parts, strict=True)]


class EncoderRun(_Run):
    """A Graph of the runtime."""

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        return self._execute([input_feed["input_ids"], input_feed["attention_mask"]])


class StepRun(_Run):
    """As EncoderRun; the candidates, which the method does not give, are ranked here."""

    def __init__(self, method: Any, one_at_a_time: threading.Lock, manifest: Manifest) -> None:
        super().__init__(method, one_at_a_time)
        self._inputs = [tensor.name for tensor in manifest.graphs["decoder"].inputs]

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        """Rows become sentences and beams, and the other way round. Raises OptionError for too many beams."""
        batch, rows = len(input_feed["encoder_attention_mask"]), len(input_feed["input_ids"])
        beams = rows // batch
        if beams > MAX_BEAMS:
            raise OptionError(f"format executorch was written for at most {MAX_BEAMS} beams, not {beams}")
        inputs = []
        for name in self._inputs:
            array = input_feed[name]
            if name == "input_ids" or name == "past_lengths":
                array = array.reshape(batch, beams)
            elif ".decoder." in name:
                array = array.reshape(batch, beams, *array.shape[1:])
            inputs.append(array)
        logits, *present = (a.reshape(rows, *a.shape[2:]) for a in self._execute(inputs))
        found = {"logits": logits}
        if "candidate_ids" in output_names:
            log_probs = log_softmax(logits + input_feed["logit_bias"])
            best = best_candidates(log_probs, int(input_feed["num_candidates"][0]))
            found |= {"candidate_scores": best.log_probs, "candidate_ids": best.ids}
        return [*(found[name] for name in output_names if name in found), *present]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """ExecuTorch warns about itself and the machine, some of it from C++; errors still come through."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
