"""The search graph with SentencePiece around it: texts in, texts out. Needs the operators of onnxruntime-extensions.

Letters: B sentences, K beams, S source length, N pieces of all sentences together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import NameFixPass
from onnxscript import GraphBuilder, OpBuilder

from tfexport.graphs.inlining import move_weights, take_apart
from tfexport.graphs.search_step import BOOL, FLOAT, INT32, INT64
from tfexport.passes.strip_metadata import strip_metadata
from tfexport_runtime.tokenizer import WHITE_SPACE

DOMAIN = "ai.onnx.contrib"
TEXT, TRANSLATION, SCORE = "text", "translation", "score"
STRING = ir.DataType.STRING


@dataclass(frozen=True)
class SourceText:
    """How texts become what the encoder reads. See SPEC.md, "Tokenizers"."""

    before: tuple[int, ...]  # ids in front of every text
    after: tuple[int, ...]  # ids behind it
    longest: int  # ids that the encoder takes, those included; longer texts are cut
    vocab_size: int  # ids from there on are unknown
    unk_id: int
    pad_id: int


def build_text_search(search: ir.Model, source: SourceText, source_model: bytes, target_model: bytes) -> Any:
    """The whole as an onnx.ModelProto, because the tokenizers are bytes. The search graph is used up.

    Inputs: `text` string [B], then the others of the search. Outputs: the best translations, string [B], and their
    scores, float32 [B].
    """
    graph = ir.Graph([], [], nodes=[], opset_imports={**search.graph.opset_imports, DOMAIN: 1}, name="text_search")
    builder = GraphBuilder(graph)
    text = builder.input(TEXT, STRING, ["batch"])
    own = _own_inputs(builder, search)
    move_weights(search.graph, graph, "search.")
    ids, mask = _encode(builder.op, text, source)
    given = {"input_ids": ids, "attention_mask": mask, **own}
    nodes, outputs = take_apart(search.graph, given)
    graph.extend(nodes)
    for name, value in _best(builder.op, outputs).items():
        builder.add_output(value, name)
    model = ir.Model(graph, ir_version=search.ir_version)
    model.producer_name, model.producer_version = search.producer_name, search.producer_version
    proto = ir.to_proto(strip_metadata(NameFixPass()(model).model)[0])
    _add_tokenizers(proto.graph, {"SentencepieceTokenizer": source_model, "SentencepieceDecoder": target_model})
    return proto


def _own_inputs(builder: GraphBuilder, search: ir.Model) -> dict[str, ir.Value]:
    """Those of the search that are not ids; what has a value of its own keeps it."""
    own = {}
    for value in search.graph.inputs:
        name, tensor = value.name or "", value.const_value
        if name not in ("input_ids", "attention_mask"):
            search.graph.initializers.pop(name, None)
            own[name] = builder.input(name, value.dtype, value.shape, const_value=tensor)
    return own


def _encode(op: OpBuilder, text: ir.Value, source: SourceText) -> tuple[ir.Value, ir.Value]:
    """Ids int64 and mask int32 [B, S]. A text without pieces has a mask of zeros."""
    pieces, starts = _pieces(op, text, source)
    begin, end = op.Slice(starts, [0], [-1]), op.Slice(starts, [1], [2**31])
    room = source.longest - len(source.before) - len(source.after)
    lengths = op.Unsqueeze(op.Min(op.Sub(end, begin), [room]), [1])  # [B, 1]
    longest = op.Add(op.ReduceMax(lengths, keepdims=0), len(source.after))
    places = op.Unsqueeze(op.Range(0, longest, 1), [0])  # [1, S without what stands before]
    in_text = op.Less(places, lengths)
    last = op.Sub(op.Shape(pieces), 1)  # behind the pieces stands one of padding
    ids = op.Gather(pieces, op.Where(in_text, op.Add(op.Unsqueeze(begin, [1]), places), last))
    behind = op.Sub(places, lengths)
    for i, after in enumerate(source.after):
        ids = op.Where(op.Equal(behind, i), after, ids)
    used = op.And(op.Less(behind, len(source.after)), op.Greater(lengths, 0))
    if source.before:
        rows = op.Shape(text)
        ids = op.Concat(op.Expand(list(source.before), op.Concat(rows, [len(source.before)], axis=0)), ids, axis=1)
        any_text = op.Expand(op.Greater(lengths, 0), op.Concat(rows, [len(source.before)], axis=0))
        used = op.Concat(any_text, used, axis=1)
    return ids, op.Cast(used, to=INT32)


def _pieces(op: OpBuilder, text: ir.Value, source: SourceText) -> tuple[ir.Value, ir.Value]:
    """Ids of all texts in a row, int64 [N + 1], with padding behind them; where each text begins and ends: [B + 1]."""
    no = op.initializer(ir.tensor([False], BOOL, name="no"))
    alpha = op.initializer(ir.tensor([0.0], FLOAT, name="sampling_alpha"))
    inputs = [_without_blank(op, text), [0], alpha, no, no, no]
    tokens, starts, _ = op.SentencepieceTokenizer(*inputs, _domain=DOMAIN, _version=1, _outputs=3)
    tokens.dtype, starts.dtype = INT32, INT64
    tokens.shape, starts.shape = ir.Shape(["pieces"]), ir.Shape(["starts"])
    ids = op.Cast(tokens, to=INT64)
    ids = op.Where(op.Less(ids, source.vocab_size), ids, source.unk_id)
    return op.Concat(ids, [source.pad_id], axis=0), starts


def _without_blank(op: OpBuilder, text: ir.Value) -> ir.Value:
    """A text of white space alone becomes empty: a model may have tokens for some of it."""
    escaped = "".join(f"\\x{{{ord(character):x}}}" for character in WHITE_SPACE)
    pattern, nothing = (
        op.initializer(ir.StringTensor([string.encode()], shape=ir.Shape([1]), name=name))
        for name, string in (("blank", f"^[{escaped}]+$"), ("empty", ""))
    )
    stripped: ir.Value = op.StringRegexReplace(text, pattern, nothing, _domain=DOMAIN, _version=1)
    stripped.dtype, stripped.shape = STRING, ir.Shape(["batch"])
    return stripped


def _best(op: OpBuilder, outputs: Mapping[str, ir.Value]) -> dict[str, ir.Value]:
    """The first hypothesis of each sentence. The operator decodes one at a time."""
    sequences, lengths = outputs["sequences"], outputs["lengths"]

    def body(op: OpBuilder, i: ir.Value, go_on: ir.Value, done: ir.Value) -> list[ir.Value]:
        ids = op.Slice(op.Gather(op.Gather(sequences, i), 0), [0], op.Slice(op.Gather(lengths, i), [0], [1]))
        text = op.SentencepieceDecoder(ids, _domain=DOMAIN, _version=1)
        text.dtype, text.shape = STRING, ir.Shape([1])
        return [op.Identity(go_on), op.Concat(done, text, axis=0)]

    graph = op.builder.subgraph(
        body,
        [
            ir.Value(name="sentence", type=ir.TensorType(INT64), shape=ir.Shape([])),
            ir.Value(name="decoding", type=ir.TensorType(BOOL), shape=ir.Shape([])),
            ir.Value(name="decoded", type=ir.TensorType(STRING), shape=ir.Shape(["done"])),
        ],
        [ir.Value(name="decoding_goes_on"), ir.Value(name="more_decoded")],
        name="decode",
    )
    nothing = op.initializer(ir.StringTensor([], shape=ir.Shape([0]), name="nothing"))
    count = op.Squeeze(op.Shape(sequences, start=0, end=1))
    texts = op.Loop(count, True, nothing, body=graph)
    scores = op.Gather(outputs["scores"], 0, axis=1)
    texts.dtype, scores.dtype = STRING, FLOAT
    texts.shape = scores.shape = ir.Shape(["batch"])
    return {TRANSLATION: texts, SCORE: scores}


def _add_tokenizers(graph: Any, models: Mapping[str, bytes]) -> None:
    """As an attribute of bytes, which only the file format has."""
    for node in graph.node:
        if node.op_type in models:
            attribute = node.attribute.add()
            attribute.name, attribute.type, attribute.s = "model", attribute.STRING, models[node.op_type]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _add_tokenizers(attribute.g, models)
