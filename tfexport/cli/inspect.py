"""`tfexport inspect BUNDLE` or `tfexport inspect CKPT`."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfexport.cli.checkpoint_view import imported_json, missing_json, show_imported, show_missing
from tfexport.cli.console import megabytes, print_json, print_table
from tfexport.cli.import_flags import import_options, with_import_flags

if TYPE_CHECKING:
    from tfexport.mobile import MobileVerdict
    from tfexport_runtime.bundle import Bundle
    from tfexport_runtime.manifest import GraphInfo, Manifest


@with_import_flags
def inspect(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE_OR_CKPT", help="A bundle, or a checkpoint of any kind.")],
    mobile: Annotated[
        bool,
        typer.Option("--mobile", help="Of a bundle: what NNAPI and Core ML would take, by ONNX Runtime's checker."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    *,
    importing: Mapping[str, Any],
) -> None:
    """Show what is in a bundle: model, graphs, operators, tokenizers, files, parity.

    Of a checkpoint: its kind, the configuration that it would be exported with, its shapes, and what is missing.
    """
    if _is_checkpoint(path):
        _inspect_checkpoint(path, importing, as_json)
    else:
        _inspect_bundle(path, mobile, as_json)


def _is_checkpoint(path: Path) -> bool:
    """PyTorch's files are zips as well; they hold data.pkl in a folder."""
    if path.is_dir():
        return not (path / "bundle.json").exists() and not (path / "encoder.onnx").exists()
    if not path.is_file() or path.suffix == ".zip":
        return False
    if not zipfile.is_zipfile(path):
        return True
    with zipfile.ZipFile(path) as archive:
        return "bundle.json" not in archive.namelist()


def _inspect_checkpoint(path: Path, importing: Mapping[str, Any], as_json: bool) -> None:
    from tfexport.checkpoints import open_checkpoint
    from tfexport.checkpoints.imported import MissingFacts

    try:
        imported = open_checkpoint(path, import_options(path, importing))
    except MissingFacts as error:
        print_json(missing_json(error)) if as_json else show_missing(error)
        return
    print_json(imported_json(imported)) if as_json else show_imported(imported)


def _inspect_bundle(bundle: Path, mobile: bool, as_json: bool) -> None:
    from tfexport_runtime.bundle import read_bundle

    opened = read_bundle(bundle)
    graphs = opened.manifest.graphs
    operators = {name: _operators(opened, name) for name in graphs}
    verdicts = _mobile_verdicts(opened) if mobile else []
    if as_json:
        more = {"mobile": [asdict(verdict) for verdict in verdicts]} if mobile else {}
        print_json({**opened.manifest.to_dict(), "operator_counts": operators, **more})
        return
    _show_summary(opened)
    for name, graph in graphs.items():
        _show_graph(name, graph)
        if counts := sorted(operators[name].items(), key=lambda item: (-item[1], item[0])):
            print_table(f"Operators of the {name}", ["operator", "count"], [[op, str(n)] for op, n in counts])
    if verdicts:
        _show_verdicts(verdicts)
    files = opened.manifest.files
    total = megabytes(sum(f.bytes for f in files.values()))
    rows = [[name, megabytes(f.bytes), f.sha256[:16]] for name, f in files.items()]
    print_table("Files", ["file", "size", "SHA-256"], [*rows, ["all of them", total, ""]])


def _operators(bundle: Bundle, graph: str) -> dict[str, int]:
    """How often each operator occurs, subgraphs counted; none where another engine runs the graph."""
    from collections import Counter

    import onnx_ir as ir

    from tfexport.formats.read_graph import is_readable, read_graph

    if not is_readable(bundle, graph):
        return {}
    nodes = ir.traversal.RecursiveGraphIterator(read_graph(bundle, graph).graph)
    found = Counter(f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in nodes)
    return dict(sorted(found.items()))


def _mobile_verdicts(bundle: Bundle) -> list[MobileVerdict]:
    from tfexport.mobile import mobile_verdicts

    return mobile_verdicts(bundle)


def _show_verdicts(verdicts: Sequence[MobileVerdict]) -> None:
    rows = [
        [
            v.graph,
            v.provider,
            v.verdict,
            f"{v.taken} of {v.nodes}",
            str(v.partitions),
            ", ".join(v.unsupported),
            v.advice,
        ]
        for v in verdicts
    ]
    title = "On phones, by ONNX Runtime's mobile usability checker (its tables; no phone was asked)"
    print_table(title, ["graph", "accelerator", "verdict", "nodes", "pieces", "not taken", "advice"], rows)
    if any(v.taken_if_fixed is not None for v in verdicts):
        typer.echo("Shapes are open here. With numbers for them, of export --static, more is taken.")


def _show_summary(bundle: Bundle) -> None:
    from tfexport.bench import size_on_disk

    m = bundle.manifest
    rows = {
        "name": m.model.name,
        "parameters": f"{m.model.parameters:,}",
        "layers": f"{m.model.num_encoder_layers} encoder, {m.model.num_decoder_layers} decoder",
        "width": f"d_model {m.model.d_model}, {m.model.num_heads} heads of {m.model.head_size}, d_ff {m.model.d_ff}",
        "vocabulary": f"{m.model.source_vocab_size} source, {m.model.target_vocab_size} target",
        "longest": f"{m.model.max_source_length} source, {m.model.max_target_length} target tokens",
        "tokenizers": f"{m.source.tokenizer.kind} ({m.source.tokenizer.file}, {m.target.tokenizer.file})",
        "precision": m.precision,
        "format": m.graph_format,
        "operators": f"{m.operators}, {_versions(m)}cache {m.cache.form}",
        "needs": _engine(m),
        "weights": _weights(m),
        "size": megabytes(size_on_disk(bundle.origin)),
        "made with": ", ".join(f"{name} {version}" for name, version in m.producer.items()),
        "generation": ", ".join(f"{name} {value}" for name, value in m.generation.items()) or "the runtime's defaults",
        "parity": _parity(m.parity),
    }
    print_table(str(bundle.origin), ["", ""], [[name, value] for name, value in rows.items()])


def _versions(manifest: Manifest) -> str:
    return f"opset {manifest.opset}, IR {manifest.ir_version}, " if manifest.opset else ""


def _engine(manifest: Manifest) -> str:
    version = manifest.requirements.onnxruntime
    return f"onnxruntime {version} or newer" if version else f"the engine of {manifest.graph_format}"


def _weights(manifest: Manifest) -> str:
    """Their files and the sum of their sizes."""
    if not manifest.weights:
        return "inside the graphs"
    total = megabytes(sum(manifest.files[name].bytes for name in manifest.weights))
    return f"{total} in {manifest.weights[0] if len(manifest.weights) == 1 else f'{len(manifest.weights)} files'}"


def _parity(parity: Mapping[str, Any]) -> str:
    """The summary that the export wrote; it is for people, so nothing relies on its form."""
    rows = parity.get("rows")
    if "passed" not in parity or not isinstance(rows, list):
        return "not checked"
    verdict = "passed" if parity["passed"] is True else "FAILED"
    found = [f"{row['name']} {row['difference']:.2g}" for row in rows if _is_row(row)]
    return "\n".join([verdict, *found])


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and "name" in row and isinstance(row.get("difference"), int | float)


def _show_graph(name: str, graph: GraphInfo) -> None:
    tensors = [("in", tensor) for tensor in graph.inputs] + [("out", tensor) for tensor in graph.outputs]
    rows = [[way, t.name, t.type, "[" + ", ".join(map(str, t.shape)) + "]"] for way, t in tensors]
    print_table(f"The {name}: {graph.file}", ["", "tensor", "type", "shape"], rows)
