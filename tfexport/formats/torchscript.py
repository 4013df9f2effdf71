"""One TorchScript module with the search inside: what libtorch runs with no Python."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from tfexport.formats.format import Work, Written
from tfexport.formats.scripted_search import ScriptedTranslator
from tfexport.formats.torch_graphs import checked, growing_model, quiet, step_signature, written
from tfexport.graphs.flat_lists import Functions, encoder_example, step_example
from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport_runtime.bundle import Bundle
from tfexport_runtime.errors import BundleError
from tfexport_runtime.graph_pair import GrowingModel
from tfexport_runtime.session import SessionOptions
from tfexport_train.checkpoint import Checkpoint
from tfexport_train.evaluate import search_target
from tfexport_train.model import EncoderDecoder

FILE = "model.pt"


def write(work: Work) -> Written:
    further = checked(work)
    work.progress("trace graphs")
    module = scripted_translator(work.checkpoint, work.model, further)
    work.progress("write")
    _save(module, work.folder / FILE)
    return written(work, FILE, FILE, step_signature(work))


def open_model(bundle: Bundle, options: SessionOptions) -> GrowingModel:
    module = load_translator(bundle)
    return growing_model(bundle, options, module.encode, module.step)


def load_translator(bundle: Bundle) -> Any:
    """The module with its methods `encode`, `step`, `greedy` and `beam`. Raises BundleError."""
    path = bundle.path(FILE)
    try:
        with quiet():
            return torch.jit.load(path, map_location="cpu").eval()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise BundleError(
            f"{path}: torch {torch.__version__} cannot load this module: {str(error).splitlines()[0]}"
        ) from error


def scripted_translator(checkpoint: Checkpoint, model: EncoderDecoder, further: FurtherOutputs) -> Any:
    """The model's functions traced, the search around them compiled."""
    config, side = checkpoint.config, checkpoint.target
    target = search_target(config, side.tokenizer(config.unk_id).size, side.prefix_ids)
    inputs = {"encode": encoder_example(), "decode_step": step_example(config)}
    with quiet(), torch.no_grad():
        # One module, so that its weights are in the file once. strict=False: lists may come in and go out.
        functions = Functions(model, further).eval()
        graphs = torch.jit.trace_module(functions, inputs, strict=False, check_trace=False)  # type: ignore[no-untyped-call]
        shape = (config.num_decoder_layers, config.num_heads, config.head_size)
        module = torch.jit.script(ScriptedTranslator(graphs, target, config.pad_id, shape).eval())
        # Weights become constants: it starts sooner, and nothing asks for gradients.
        return torch.jit.freeze(module, preserved_attrs=["encode", "step", "greedy", "beam"])


def _save(module: torch.jit.ScriptModule, path: Path) -> None:
    """Without the records for debuggers: half of what is not weights, and full of this machine's paths."""
    whole = io.BytesIO()
    with quiet():
        torch.jit.save(module, whole)
    whole.seek(0)
    reader, writer = torch._C.PyTorchFileReader(whole), torch._C.PyTorchFileWriter(str(path))
    records = reader.get_all_records()
    # Operators are read as of this version; the writer would put down the oldest. It lies at one of two places.
    (version,) = (name for name in records if name in ("version", ".data/version"))
    writer.set_min_version(int(reader.get_record(version)))
    for name in records:
        if name != version and not name.endswith(".debug_pkl") and not name.startswith(".data/"):
            record = reader.get_record(name)
            writer.write_record(name, record, len(record))
    writer.write_end_of_file()
