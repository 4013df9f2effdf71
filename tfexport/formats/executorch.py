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
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from tfexport.formats.format import Work, Written
from tfexport.formats.torch_graphs import checked, written
from tfexport.graphs.edge import EdgeEncoder, EdgeStep
from tfexport.graphs.flat_lists import BATCH, BEAMS, encoder_example, step_example
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport.graphs.signature import GraphSignature, TensorSignature
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.cache import Array
from tfexport_runtime.errors import BundleError, OptionError, UnavailableError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.manifest import GraphInfo
from tfexport_runtime.proposers import best_candidates
from tfexport_runtime.rules import log_softmax
from tfexport_runtime.session import SessionOptions, available_cores
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.model import EncoderDecoder

FILE = "model.pte"
MAX_SENTENCES, MAX_BEAMS = 8, 8  # of one run: memory is planned for as many

_MISSING = 'ExecuTorch is not installed; run: pip install "tfexport[executorch]"'


def write(work: Work) -> Written:
    """Raises ExportError for what the format does not have, UnavailableError where ExecuTorch is missing."""
    further = checked(work)
    with _silent():
        try:
            import executorch.exir  # noqa: F401
        except ImportError as error:
            raise UnavailableError(_MISSING) from error
        work.progress("trace graphs")
        programs = {"encoder": _trace_encoder(work.model, further), "step": _trace_step(work.model, further)}
        work.progress("lower")
        program = _lower(programs)
        work.progress("write")
        with open(work.folder / FILE, "wb") as file:
            program.write_to_file(file)
    return written(work, FILE, FILE, _step(work.checkpoint.config, further))


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
        bundle.manifest,
        EncoderRun(encoder, one_at_a_time, bundle.manifest.graphs["encoder"]),
        StepRun(step, one_at_a_time, bundle.manifest.graphs["decoder"]),
    )


def _trace_encoder(model: EncoderDecoder, further: FurtherOutputs) -> ExportedProgram:
    axes = {0: Dim("batch", max=MAX_SENTENCES), 1: Dim("source", max=model.config.max_positions)}
    return _traced(EdgeEncoder(model, further), encoder_example(), (axes, axes))


def _trace_step(model: EncoderDecoder, further: FurtherOutputs) -> ExportedProgram:
    config = model.config
    *by_rows, mask, past_rows, cross = step_example(config)
    tokens, lengths = (tensor.view(BATCH, BEAMS) for tensor in by_rows)
    arguments = (tokens, lengths, mask, [tensor.view(BATCH, BEAMS, *tensor.shape[1:]) for tensor in past_rows], cross)
    batch, beams = Dim("batch", max=MAX_SENTENCES), Dim("beams", max=MAX_BEAMS)
    source, past = Dim("source", max=config.max_positions), Dim("past", min=0, max=config.max_positions - 1)
    shapes = (
        {0: batch, 1: beams},
        {0: batch, 1: beams},
        {0: batch, 1: source},
        [{0: batch, 1: beams, 3: past}] * len(past_rows),
        [{0: batch, 2: source}] * len(cross),
    )
    return _traced(EdgeStep(model, further), arguments, shapes)


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


def _step(config: EncoderDecoderConfig, further: FurtherOutputs) -> GraphSignature:
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
            *(replace(t, shape=("batch", "beams", *t.shape[1:])) for t in further.of_decoder(config)),
        ),
    )


class _Run:
    """A method of the program, for any number of sentences: as many at a time as memory was planned for."""

    def __init__(self, method: Any, one_at_a_time: threading.Lock, info: GraphInfo) -> None:
        self._method, self._one_at_a_time = method, one_at_a_time
        self._inputs, self._outputs = ([tensor.name for tensor in some] for some in (info.inputs, info.outputs))

    def _execute(self, inputs: Sequence[Array]) -> dict[str, Array]:
        """All arrays have the sentences as their first axis."""
        parts = []
        for first in range(0, len(inputs[0]), MAX_SENTENCES):
            some = [torch.from_numpy(np.ascontiguousarray(a[first : first + MAX_SENTENCES])) for a in inputs]
            with self._one_at_a_time:
                outputs: Sequence[Tensor] = self._method.execute(some)
            parts.append([tensor.numpy() for tensor in outputs])
        whole = parts[0] if len(parts) == 1 else [np.concatenate(some) for some in zip(*parts, strict=True)]
        return dict(zip(self._outputs, whole, strict=True))


class EncoderRun(_Run):
    """A Graph of the runtime."""

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Array]:
        found = self._execute([input_feed[name] for name in self._inputs])
        return [found[name] for name in output_names]


class StepRun(_Run):
    """As EncoderRun; the candidates, which the method does not give, are ranked here."""

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
        found = {name: a.reshape(rows, *a.shape[2:]) for name, a in self._execute(inputs).items()}
        if "candidate_ids" in output_names:
            log_probs = log_softmax(found["logits"] + input_feed["logit_bias"])
            best = best_candidates(log_probs, int(input_feed["num_candidates"][0]))
            found |= {"candidate_scores": best.log_probs, "candidate_ids": best.ids}
        return [found[name] for name in output_names]


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
