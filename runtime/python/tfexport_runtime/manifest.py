"""`bundle.json`: what is in a bundle and how to run it. See SPEC.md and bundle.schema.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_type_hints

from tfexport_runtime.errors import BundleError, OptionError
from tfexport_runtime.options import TranslationOptions, check_options
from tfexport_runtime.seal import SEAL_KEY
from tfexport_runtime.step_model import Target
from tfexport_runtime.strict_json import Limits, build, build_partial, parse_json, plain, raise_all, shown
from tfexport_runtime.tokenizer import TokenizerKind

FORMAT = "tfexport-bundle"
FORMAT_VERSION = 1
MANIFEST_NAME = "bundle.json"
MAX_MANIFEST_BYTES = 16 * 2**20

# Letters, digits, dot, dash and underscore only: no separators, no drive, not hidden, the same file on every system.
FILE_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"

FileName = Annotated[str, Limits(1, 128, FILE_NAME)]
GraphName = Annotated[str, Limits(1, 128, r"[A-Za-z0-9_][A-Za-z0-9._-]{0,122}\.(onnx|ort|pt|pt2|pte)")]
ShortText = Annotated[str, Limits(0, 256)]
Count = Annotated[int, Limits(1, 2**31 - 1)]
Depth = Annotated[int, Limits(1, 1024)]
TokenId = Annotated[int, Limits(0, 2**31 - 1)]
TokenIds = Annotated[tuple[TokenId, ...], Limits(0, 2**20)]
Version = Annotated[str, Limits(1, 64)]
GraphFormat = Literal["onnx", "ort", "single", "torchscript", "torch-export", "aoti", "executorch"]
GRAPH_SUFFIXES: dict[GraphFormat, str] = {
    "onnx": ".onnx",
    "ort": ".ort",
    "single": ".onnx",
    "torchscript": ".pt",
    "torch-export": ".pt2",
    "aoti": ".pt2",
    "executorch": ".pte",
}
TensorType = Literal["float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"]
Axis = Annotated[int, Limits(0, 2**31 - 1)] | Annotated[str, Limits(1, 256)]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a graph."""

    name: Annotated[str, Limits(1, 256)]
    type: TensorType
    shape: Annotated[tuple[Axis, ...], Limits(0, 16)]  # a number is fixed, a name is a size that varies


@dataclass(frozen=True)
class GraphInfo:
    """One graph, the file that holds it, and what goes in and out of it, in its order."""

    file: GraphName
    inputs: Annotated[tuple[TensorInfo, ...], Limits(1, 8192)]
    outputs: Annotated[tuple[TensorInfo, ...], Limits(1, 8192)]


@dataclass(frozen=True)
class ModelInfo:
    """Sizes of the model. Lengths are in tokens, start and end tokens counted."""

    name: ShortText
    parameters: Annotated[int, Limits(1, 2**48)]
    d_model: Count
    num_heads: Count
    head_size: Count
    num_encoder_layers: Depth
    num_decoder_layers: Depth
    d_ff: Count
    source_vocab_size: Count
    target_vocab_size: Count
    max_source_length: Count
    max_target_length: Count


@dataclass(frozen=True)
class TokenizerInfo:
    """Which file turns text into ids."""

    kind: TokenizerKind
    file: FileName


@dataclass(frozen=True)
class SourceInfo:
    """How source text becomes `input_ids`."""

    tokenizer: TokenizerInfo
    add_bos: bool  # the start token before the text
    add_eos: bool  # the end token behind it
    pad_id: TokenId
    start_id: TokenId
    eos_id: TokenId
    unk_id: TokenId
    prefix_ids: TokenIds = ()  # before the text, behind the start token
    suffix_ids: TokenIds = ()  # behind the text and the end token


@dataclass(frozen=True)
class TargetInfo:
    """How target ids become text, and what they start and end with."""

    tokenizer: TokenizerInfo
    pad_id: TokenId
    start_id: TokenId
    eos_id: TokenId
    unk_id: TokenId
    never_generated: TokenIds  # ids that the search never picks, in any mode
    prefix_ids: TokenIds = ()  # what the decoder reads behind the start token, before every output


@dataclass(frozen=True)
class CacheInfo:
    """How the decoder remembers earlier steps.

    `in_place`: buffers of fixed capacity and a used length a row. `growing`: each step returns longer tensors.
    `fixed`: every shape is a number, and the graph returns the buffers with one position written.
    """

    form: Literal["in_place", "growing", "fixed"]


@dataclass(frozen=True)
class Requirements:
    """What a runtime must offer."""

    onnxruntime: ShortText  # the lowest version that runs the graphs; empty: another engine runs them
    domains: Annotated[tuple[ShortText, ...], Limits(0, 64)]  # operator domains of ONNX graphs; "" is standard ONNX


@dataclass(frozen=True)
class FileInfo:
    """Size and digest of a file of the bundle."""

    sha256: Annotated[str, Limits(64, 64, "[0-9a-f]{64}")]
    bytes: Annotated[int, Limits(0, 2**48)]


# Defaults of a bundle may not ask for unreasonable memory; a caller may still do so.
_GENERATION: dict[str, Any] = {
    name: kind for name, kind in get_type_hints(TranslationOptions).items() if name != "callback"
} | {
    "beam_size": Annotated[int, Limits(1, 1024)],
    "n_best": Annotated[int, Limits(1, 1024)],
    "max_batch_tokens": Annotated[int, Limits(1, 2**24)],
    "suppress_tokens": TokenIds,
}


@dataclass(frozen=True)
class Manifest:
    """The whole of `bundle.json` but for its first line, `format`."""

    producer: Annotated[Mapping[str, Version], Limits(1, 64, "[A-Za-z0-9._-]{1,64}")]  # package name to version
    model: ModelInfo
    source: SourceInfo
    target: TargetInfo
    # The encoder runs once a batch, the decoder once a step; `search` alone does all of it.
    graphs: Annotated[Mapping[str, GraphInfo], Limits(1, 2, "encoder|decoder|search")]
    weights: Annotated[tuple[FileName, ...], Limits(0, 256)]  # external data of the graphs; none: inside them
    cache: CacheInfo
    precision: Annotated[str, Limits(1, 32, "[a-z0-9_-]+")]  # fp32, fp16, ...
    operators: Literal["ort", "portable"]  # ort: contributed operators of ONNX Runtime; portable: standard ones only
    opset: Annotated[int, Limits(0, 1000)]  # 0: not ONNX; the same for ir_version
    ir_version: Annotated[int, Limits(0, 1000)]
    requirements: Requirements
    files: Annotated[Mapping[str, FileInfo], Limits(1, 1024, FILE_NAME)]  # every file but bundle.json itself
    generation: Mapping[str, Any] = field(default_factory=dict)  # defaults, by names of TranslationOptions
    graph_format: GraphFormat = "onnx"  # of the graphs' files; decides which engine runs them
    parity: Mapping[str, Any] = field(default_factory=dict)  # summary of the check at export, for people
    format_version: int = FORMAT_VERSION

    @classmethod
    def from_json(cls, data: bytes | str, origin: str = MANIFEST_NAME) -> Manifest:
        """`origin` names the file in errors. Raises BundleError, with every problem at once."""
        if len(data) > MAX_MANIFEST_BYTES:
            raise BundleError(f"{origin}: larger than {MAX_MANIFEST_BYTES // 2**20} MiB, not a manifest")
        return cls.from_dict(parse_json(data, origin), origin)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], origin: str = MANIFEST_NAME) -> Manifest:
        """Raises BundleError, with every problem at once."""
        _check_format(values, origin)
        manifest = build(cls, {name: v for name, v in values.items() if name not in ("format", SEAL_KEY)}, origin)
        generation = build_partial(_GENERATION, manifest.generation, "generation", origin)
        raise_all(list(_contradictions(manifest)), origin)
        try:
            check_options(TranslationOptions().with_changes(generation), manifest.search_target())
        except OptionError as error:
            raise BundleError(f"{origin}: generation: {error}") from error
        return manifest

    def to_dict(self) -> dict[str, Any]:
        values = plain(self)
        return {"format": FORMAT, "format_version": values.pop("format_version"), **values}

    def to_json(self) -> str:
        """Raises BundleError for NaN and infinity, which JSON does not have."""
        try:
            return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        except ValueError as error:
            raise BundleError(f"{MANIFEST_NAME}: cannot be written: {error}") from error

    def search_target(self) -> Target:
        """What the search must know of this model."""
        target, model = self.target, self.model
        return Target(
            model.target_vocab_size,
            target.start_id,
            target.eos_id,
            target.never_generated,
            model.max_target_length,
            target.prefix_ids,
        )

    def default_options(self) -> TranslationOptions:
        """The runtime's defaults with those of this bundle laid over."""
        return TranslationOptions().with_changes(self.generation)


def is_file_name(name: str) -> bool:
    """Whether a file of a bundle may be called so."""
    return re.fullmatch(FILE_NAME, name) is not None


def _check_format(values: object, origin: str) -> None:
    if not isinstance(values, Mapping) or values.get("format") != FORMAT:
        raise BundleError(f"{origin}: not the manifest of a tfexport bundle; make one with `tfexport export`")
    version = values.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise BundleError(f"{origin}: format_version must be a whole number from 1, not {shown(version)}")
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{origin}: bundle format {shown(version)} is newer than this runtime reads ({FORMAT_VERSION}); "
            "upgrade tfexport_runtime: pip install -U tfexport"
        )


def _contradictions(m: Manifest) -> Iterator[str]:
    if MANIFEST_NAME in {name.lower() for name in m.files}:
        yield f"files: {MANIFEST_NAME} cannot list itself"
    if len({name.lower() for name in m.files}) != len(m.files):
        yield "files: two names differ only in upper and lower case"
    roles = {
        "source.tokenizer.file": m.source.tokenizer.file,
        "target.tokenizer.file": m.target.tokenizer.file,
        **{f"graphs.{name}.file": graph.file for name, graph in m.graphs.items()},
        **{f"weights[{i}]": name for i, name in enumerate(m.weights)},
    }
    wanted = {"search"} if m.graph_format == "single" else {"encoder", "decoder"}
    if m.graphs.keys() != wanted:
        yield f"graphs of format {m.graph_format} must be {' and '.join(sorted(wanted))}"
    yield from (f"{role} {name} is not listed in files" for role, name in roles.items() if name not in m.files)
    suffix = GRAPH_SUFFIXES[m.graph_format]
    for name, graph in m.graphs.items():
        if not graph.file.endswith(suffix):
            yield f"graphs.{name}.file {graph.file} must end with {suffix}, as of format {m.graph_format}"
    if m.source.tokenizer.file == m.target.tokenizer.file and m.source.tokenizer.kind != m.target.tokenizer.kind:
        yield "source and target give one tokenizer file two kinds"
    for side, text, size in (
        ("source", m.source, m.model.source_vocab_size),
        ("target", m.target, m.model.target_vocab_size),
    ):
        ids = {name: getattr(text, name) for name in ("pad_id", "start_id", "eos_id", "unk_id")}
        yield from (f"{side}.{n} {i} is outside the vocabulary of {size}" for n, i in ids.items() if i >= size)
    for name, held, size in (
        ("source.prefix_ids", m.source.prefix_ids, m.model.source_vocab_size),
        ("source.suffix_ids", m.source.suffix_ids, m.model.source_vocab_size),
        ("target.prefix_ids", m.target.prefix_ids, m.model.target_vocab_size),
        ("target.never_generated", m.target.never_generated, m.model.target_vocab_size),
    ):
        if any(i >= size for i in held):
            yield f"{name} holds ids outside the vocabulary of {size}"
    if m.cache.form == "fixed":
        yield from _not_fixed(m)
    if m.target.eos_id in m.target.never_generated:
        yield "target.never_generated holds eos_id, so nothing could end"


def _not_fixed(m: Manifest) -> Iterator[str]:
    """What contradicts the form of the cache whose every shape is a number."""
    for graph, info in m.graphs.items():
        for tensor in (*info.inputs, *info.outputs):
            if wrong := [axis for axis in tensor.shape if isinstance(axis, str) or axis == 0]:
                yield (
                    f"cache.form is fixed, so every axis is a number above 0, "
                    f"but {tensor.name} of the {graph} has {shown(wrong[0])}"
                )
    for graph, name, axis, longest in (
        ("encoder", "input_ids", 1, "max_source_length"),
        ("decoder", "past_key_values.0.decoder.key", 2, "max_target_length"),
    ):
        shapes = [t.shape for t in m.graphs[graph].inputs if t.name == name] if graph in m.graphs else []
        wanted = getattr(m.model, longest)
        if any(len(shape) > axis and isinstance(shape[axis], int) and shape[axis] != wanted for shape in shapes):
            yield f"model.{longest} is {wanted}, but {name} of the {graph} has another length in its shape"
