"""Both graphs of a model and the search between them as one graph: token ids in, token ids out.

Letters: B sentences, K beams, R = B*K rows, S source length, P cached length, H heads, D head size.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import NameFixPass
from onnxscript import GraphBuilder, OpBuilder

from tfexport.graphs.inlining import move_weights, split_by_dependence, take_apart
from tfexport.graphs.search_result import Found, hypotheses
from tfexport.graphs.search_signature import SIGNATURE
from tfexport.graphs.search_step import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    Beams,
    LengthPenalty,
    Setting,
    search_step,
)
from tfexport.graphs.signature import Dimension, GraphSignature
from tfexport.passes.strip_metadata import strip_metadata
from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.rules import common_bias
from tfexport_runtime.search_graph import OPTIONS, options_input
from tfexport_runtime.step_model import Target

_TYPES = {"int64": INT64, "int32": INT32, "float32": FLOAT, "bool": BOOL}


def build_search(
    encoder: ir.Model,
    decoder: ir.Model,
    target: Target,
    pad_id: int,
    defaults: TranslationOptions,
    signature: GraphSignature = SIGNATURE,
) -> ir.Model:
    """The graphs are those of standard operators, in float; they are used up.

    defaults: of the input `options`. signature: a search_signature; outputs on request are those of the graphs.
    """
    graph = ir.Graph([], [], nodes=[], opset_imports=dict(decoder.graph.opset_imports), name="search")
    builder = GraphBuilder(graph)
    request = _inputs(builder, defaults)
    memory = _encode(builder, encoder, request)
    setting = _setting(builder.op, request, target)
    of_decoder = {value.name for value in decoder.graph.outputs}
    attention = {t.name: t.shape[3] for t in signature.outputs if t.name in of_decoder}
    found = _search(builder, decoder, setting, request, memory, target, attention)
    outputs = {**hypotheses(builder.op, setting, found, pad_id), **memory}
    for tensor in signature.outputs:
        value = outputs[tensor.name]
        value.shape, value.dtype = ir.Shape(tensor.shape), _TYPES[tensor.dtype]
        builder.add_output(value, tensor.name)
    model = ir.Model(graph, ir_version=decoder.ir_version)
    model.producer_name, model.producer_version = decoder.producer_name, decoder.producer_version
    return strip_metadata(NameFixPass()(model).model)[0]


@dataclass(frozen=True)
class _Request:
    """The inputs of the graph, `options` taken apart."""

    input_ids: ir.Value  # int64 [B, S]
    attention_mask: ir.Value  # int32 [B, S]
    beam_size: ir.Value  # int64 [1]
    max_length: ir.Value  # int64 [1] or [B]
    options: Mapping[str, ir.Value]  # float32 [1] each


def _inputs(builder: GraphBuilder, defaults: TranslationOptions) -> _Request:
    own = {"options": ir.tensor(options_input(defaults), name="options")}
    ids, mask, beam_size, max_length, options = (
        builder.input(tensor.name, _TYPES[tensor.dtype], list(tensor.shape), const_value=own.get(tensor.name))
        for tensor in SIGNATURE.inputs
    )
    count = len(OPTIONS)
    split = builder.op.Split(options, num_outputs=count, _outputs=count)
    return _Request(ids, mask, beam_size, max_length, dict(zip(OPTIONS, split, strict=True)))


def _encode(builder: GraphBuilder, encoder: ir.Model, request: _Request) -> dict[str, ir.Value]:
    """Keys and values of cross-attention, [B, H, S, D] each, by their names among the decoder's inputs; and the states,
    where the graph gives them."""
    move_weights(encoder.graph, builder.graph, "encoder.")
    given = {"input_ids": request.input_ids, "attention_mask": request.attention_mask}
    nodes, outputs = take_apart(encoder.graph, given)
    builder.graph.extend(nodes)
    return {name.replace("present", "past_key_values"): value for name, value in outputs.items()}


def _setting(op: OpBuilder, request: _Request, target: Target) -> Setting:
    batch, beams, options = op.Shape(request.input_ids, start=0, end=1), request.beam_size, request.options
    lowest = op.initializer(ir.tensor([-sys.float_info.max], DOUBLE, name="lowest"))
    at_once = op.Or(op.Equal(beams, 1), op.Greater(options["early_stopping"], 0.0))
    return Setting(
        beams=beams,
        looked_at=op.Mul(beams, 2),
        candidates=op.Min(op.Add(beams, 1), [target.vocab_size]),
        by_sentence=op.Concat(batch, [-1], axis=0),
        rows=op.Mul(batch, beams),
        ranks=op.Expand(_numbers(op, beams), op.Concat(batch, beams, axis=0)),
        first_rows=op.Unsqueeze(op.Mul(_numbers(op, batch), beams), [1]),
        limits=_limits(op, request, target),
        quick=op.Where(at_once, lowest, math.inf),
        penalty=_length_penalty(op, options, target.max_length),
        eos_id=target.eos_id,
        prefix_ids=target.prefix_ids,
    )


def _numbers(op: OpBuilder, count: ir.Value) -> ir.Value:
    """0, 1, … of a count [1]."""
    numbers: ir.Value = op.Range(0, op.Squeeze(count), 1)
    return numbers


def _limits(op: OpBuilder, request: _Request, target: Target) -> ir.Value:
    """Most generated tokens, int64 [B, 1]. See SPEC.md, 4.4; the graph takes a limit below 1 for 1."""
    tokens = op.ReduceSum(op.Cast(request.attention_mask, to=DOUBLE), [1], keepdims=1)
    ratio = op.Cast(request.options["max_length_ratio"], to=DOUBLE)
    by_ratio = op.Min(op.Mul(ratio, op.Max(tokens, 1.0)), float(target.max_length))
    extra = op.Cast(request.options["max_length_extra"], to=INT64)
    relative = op.Add(op.Cast(op.Floor(by_ratio), to=INT64), extra)
    absolute = op.Reshape(request.max_length, [-1, 1])
    limits: ir.Value = op.Max(op.Min(relative, absolute, [target.max_length - len(target.prefix_ids)]), [1])
    return limits


def _length_penalty(op: OpBuilder, options: Mapping[str, ir.Value], longest: int) -> LengthPenalty:
    """For every length that there can be, and one more."""
    lengths = op.initializer(ir.tensor(np.arange(longest + 2, dtype=np.float64), name="lengths"))
    alpha, offset, scale, reward = (
        op.Cast(options[name], to=DOUBLE) for name in ("alpha", "length_offset", "length_scale", "word_reward")
    )
    divisors = op.Pow(op.Div(op.Add(lengths, offset), scale), alpha)
    return LengthPenalty(divisors, op.Mul(lengths, reward))


@dataclass(frozen=True)
class _Decoder:
    """The step graph, ready to be put into the body of a loop."""

    nodes: list[ir.Node]
    outputs: Mapping[str, ir.Value]
    tokens: ir.Value  # int64 [R, 1]
    past_lengths: ir.Value  # int32 [R]
    bias: ir.Value  # float32 [1, V]
    past: list[ir.Value]  # [R, H, P, D], keys and values by turns


def _search(
    builder: GraphBuilder,
    decoder: ir.Model,
    setting: Setting,
    request: _Request,
    memory: Mapping[str, ir.Value],
    target: Target,
    attention: Mapping[str, Dimension],
) -> Found:
    """The loop over steps; in front of it what does not change. attention: outputs that are kept, and their heads."""
    op = builder.op
    constant = {**memory, "encoder_attention_mask": request.attention_mask, "num_candidates": setting.candidates}
    model = _decoder(builder, decoder, constant)
    first = _first_beams(op, setting, request.attention_mask, target)
    bias, bias_without_eos = _biases(op, target)
    min_length = op.Add(op.Cast(request.options["min_length"], to=INT64), len(target.prefix_ids))

    def body(op: OpBuilder, step: ir.Value, _: ir.Value, *state: ir.Value) -> list[ir.Value]:
        beams = Beams(*state[: -len(model.past)])
        inputs = {
            model.tokens: beams.tokens,
            model.past_lengths: op.Expand(op.Cast(step, to=INT32), setting.rows),
            model.bias: op.Where(op.Less(step, min_length), bias_without_eos, bias),
        }
        ir.convenience.replace_all_uses_with(list(inputs), list(inputs.values()))
        op.builder.graph.extend(model.nodes)
        found = model.outputs
        stepped = search_step(op, setting, step, beams, found["candidate_scores"], found["candidate_ids"])
        cache = [op.Gather(found[_present(past)], stepped.rows, axis=0) for past in model.past]
        nodes = [stepped.tokens, stepped.log_probs, stepped.parents]
        seen = [stepped.ranks, *(op.Reshape(found[name], [-1]) for name in attention)] if attention else []
        return [stepped.go_on, *stepped.beams.values(), *cache, *nodes, *seen]

    state = [
        *(
            ir.Value(name=field.name, type=value.type)
            for field, value in zip(fields(first), first.values(), strict=True)
        ),
        *model.past,
    ]
    carried = [ir.Value(name=f"next.{value.name}") for value in state]
    kept = ("tokens", "log_probs", "parents", *(("ranks", *attention) if attention else ()))
    scanned = [ir.Value(name=f"node.{name}") for name in kept]
    graph = builder.subgraph(
        body,
        [_scalar("step", INT64), _scalar("may_go_on", BOOL), *state],
        [ir.Value(name="go_on"), *carried, *scanned],
        name="step",
    )
    most = op.ReduceMax(op.Add(setting.limits, len(target.prefix_ids)), keepdims=0)
    start = [*first.values(), *_empty_cache(op, setting, model)]
    results = op.Loop(most, True, *start, body=graph, _outputs=len(carried) + len(scanned))
    beams = Beams(*results[: -len(model.past) - len(scanned)])
    tokens, log_probs, parents, *seen = results[len(carried) :]
    if not attention:
        return Found(beams, tokens, log_probs, parents)
    ranks, *weights = seen
    source = op.Shape(request.input_ids, start=1, end=2)
    by_row = {
        name: op.Reshape(flat, op.Concat([-1], setting.rows, [heads], source, axis=0))
        for (name, heads), flat in zip(attention.items(), weights, strict=True)
    }
    return Found(beams, tokens, log_probs, parents, ranks, by_row)


def _decoder(builder: GraphBuilder, decoder: ir.Model, constant: Mapping[str, ir.Value]) -> _Decoder:
    """Takes the step graph apart; what only depends on the source goes into the graph around the loop."""
    move_weights(decoder.graph, builder.graph, "decoder.")
    varying = {value.name or "": value for value in decoder.graph.inputs if value.name not in constant}
    nodes, outputs = take_apart(decoder.graph, {**constant, **varying})
    fixed, nodes = split_by_dependence(nodes, list(varying.values()))
    builder.graph.extend(fixed)
    past = [value for name, value in varying.items() if name.startswith("past_key_values.")]
    return _Decoder(nodes, outputs, varying["input_ids"], varying["past_lengths"], varying["logit_bias"], past)


def _present(past: ir.Value) -> str:
    return (past.name or "").replace("past_key_values", "present")


def _biases(op: OpBuilder, target: Target) -> tuple[ir.Value, ir.Value]:
    """Of steps that may end a hypothesis, and of those that may not: float32 [1, V]."""
    options = TranslationOptions(min_length=1)
    with_eos, without_eos = (common_bias(options, target, generated)[None] for generated in (1, 0))
    return (
        op.initializer(ir.tensor(with_eos, name="logit_bias")),
        op.initializer(ir.tensor(without_eos, name="logit_bias_without_eos")),
    )


def _first_beams(op: OpBuilder, setting: Setting, mask: ir.Value, target: Target) -> Beams:
    """Only beam 0 lives; of an empty text none, whose hypothesis without tokens is kept already."""
    zero = op.initializer(ir.tensor(0.0, DOUBLE, name="zero"))
    empty = op.Equal(op.ReduceMax(mask, [1], keepdims=1), 0)  # bool [B, 1]
    first = op.Equal(setting.ranks, 0)  # bool [B, K]
    sums = op.Where(op.And(first, op.Not(empty)), zero, -math.inf)
    root = op.Mul(setting.ranks, 0)
    return Beams(
        tokens=op.Expand([target.start_id], op.Concat(setting.rows, [1], axis=0)),
        sums=sums,
        nodes=root,
        kept_scores=op.Where(op.And(first, empty), zero, -math.inf),
        kept_nodes=root,
        cut_sums=sums,
        cut_nodes=root,
        searching=op.Not(empty),
    )


def _empty_cache(op: OpBuilder, setting: Setting, model: _Decoder) -> list[ir.Value]:
    """As before the first step: [R, H, 0, D]."""
    past = model.past[0].shape
    assert past is not None
    shape = op.Concat(setting.rows, [past[1], 0, past[3]], axis=0)
    return [op.ConstantOfShape(shape)] * len(model.past)


def _scalar(name: str, dtype: ir.DataType) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([]))
