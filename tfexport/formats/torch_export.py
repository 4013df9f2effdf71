"""Two programs of torch.export: what PyTorch itself reads, compiles further and hands on to its other tools."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from tfexport.formats.format import Work, Written
from tfexport.formats.torch_graphs import checked, growing_model, quiet, step_signature, written
from tfexport.graphs.flat_lists import BATCH, DecoderGraph, EncoderGraph, encoder_example, step_example
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.errors import BundleError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.session import SessionOptions
from tfexport_train.model import EncoderDecoder

ENCODER, DECODER = "encoder.pt2", "decoder.pt2"

_CANDIDATES = 4  # of the example


def write(work: Work) -> Written:
    programs = export_programs(work)
    work.progress("write")
    for file, program in programs.items():
        with quiet():
            torch.export.save(program, work.folder / file)
    return written(work, ENCODER, DECODER, step_signature(work, sentences_and_beams=True))


def open_model(bundle: Bundle, options: SessionOptions) -> GrowingModel:
    """Raises BundleError for programs that do not load or have changed: reading one may run code that is in it."""
    bundle.check_graphs()
    return growing_model(bundle, options, _load(bundle, ENCODER), of_sentences(_load(bundle, DECODER)))


def export_programs(work: Work) -> dict[str, ExportedProgram]:
    """By the names of their files. Raises ExportError."""
    further = checked(work)
    work.progress("trace graphs")
    return {ENCODER: _encoder(work.model, further), DECODER: _decoder(work.model, further)}


def of_sentences(step: Any) -> Any:
    """The step of a DecoderGraph for tokens [R, 1]."""

    def by_rows(tokens: Tensor, lengths: Tensor, mask: Tensor, *others: Any) -> Any:
        return step(tokens.view(mask.shape[0], -1), lengths, mask, *others)

    return by_rows


def _encoder(model: EncoderDecoder, further: FurtherOutputs) -> ExportedProgram:
    axes = {0: Dim("batch"), 1: Dim("source", max=model.config.max_positions)}
    return _export(EncoderGraph(model, further), encoder_example(), (axes, axes))


def _decoder(model: EncoderDecoder, further: FurtherOutputs) -> ExportedProgram:
    config, layers = model.config, 2 * model.config.num_decoder_layers
    tokens, lengths, mask, past, cross = step_example(config)
    arguments = (
        tokens.view(BATCH, -1),
        lengths,
        mask,
        torch.zeros(1, config.target_vocab_size),
        torch.tensor([_CANDIDATES]),
        past,
        cross,
    )
    batch, beams, source = Dim("batch"), Dim("beams"), Dim("source", max=config.max_positions)
    rows, length = Dim.AUTO, Dim("past", min=0)  # rows: a product, for which there is no Dim
    shapes = (
        {0: batch, 1: beams},
        {0: rows},
        {0: batch, 1: source},
        None,
        None,
        [{0: rows, 2: length}] * layers,
        [{0: batch, 2: source}] * layers,
    )
    return _export(DecoderGraph(model, further), arguments, shapes)


def _export(module: torch.nn.Module, arguments: tuple[Any, ...], shapes: tuple[Any, ...]) -> ExportedProgram:
    with quiet(), torch.no_grad():
        program = torch.export.export(module.eval(), arguments, dynamic_shapes=shapes)
    for size in [size for size in program.range_constraints if not size.is_Symbol]:
        del program.range_constraints[size]  # a product, taken for 4 or more because no example has a 1
    _remove_unused_weights(program)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


def _remove_unused_weights(program: ExportedProgram) -> None:
    """The encoder's from the decoder and the other way round: a program lists all that its module has."""
    unused = {node.name: node for node in program.graph.nodes if node.op == "placeholder" and not node.users}
    weights = (InputKind.PARAMETER, InputKind.BUFFER)
    specs = program.graph_signature.input_specs
    for spec in [spec for spec in specs if spec.kind in weights and spec.arg.name in unused]:
        program.graph.erase_node(unused[spec.arg.name])
        program.state_dict.pop(spec.target, None)
        program.constants.pop(spec.target, None)
        specs.remove(spec)
    program.graph_module.recompile()


def _load(bundle: Bundle, file: str) -> Any:
    path = bundle.path(file)
    try:
        with quiet():
            return torch.export.load(path).module()
    except Exception as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BundleError(f"{path}: torch {torch.__version__} cannot load this program: {problem}") from error
