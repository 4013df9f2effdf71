"""One decoder graph for the first step and for all later ones."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir


def merge_with_cross(steps: ir.Model, cross: ir.Model) -> ir.Model:
    """`steps` with an If in front: the source's keys and values as they are given, or computed by `cross`.

    Adds the inputs encoder_hidden_states and use_cache_branch, bool [1], and the source's keys and values as outputs,
    each behind the target's of its layer. Changes both models and returns the first.
    """
    graph, computed = steps.graph, cross.graph
    given = [value for value in graph.inputs if ".encoder." in (value.name or "")]
    (hidden,) = computed.inputs
    use_cache = ir.Value(name="use_cache_branch", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.BOOL))
    chosen = ir.node("If", [use_cache], num_outputs=len(given))
    for value, output, template in zip(given, chosen.outputs, computed.outputs, strict=True):
        output.name = (value.name or "").replace("past_key_values", "present")
        output.shape, output.type = template.shape, template.type
        ir.convenience.replace_all_uses_with(value, output)
    _move_weights(computed, graph)
    chosen.attributes.add(ir.AttrGraph("then_branch", _as_given(given)))
    chosen.attributes.add(ir.AttrGraph("else_branch", _as_computed(computed)))
    graph.insert_before(graph[0], chosen)
    graph.inputs.insert(2, hidden)
    graph.inputs.append(use_cache)
    _put_behind_own_layer(graph, chosen.outputs)
    return steps


def _move_weights(computed: ir.Graph, graph: ir.Graph) -> None:
    """Weights of a branch lie in the outer graph, which is where other programs look for them."""
    taken = {*graph.initializers, *(output.name for node in graph for output in node.outputs)}
    for name in list(computed.initializers):
        weight = computed.initializers.pop(name)
        if name in taken:
            weight.name = f"cross.{name}"
        graph.register_initializer(weight)


def _as_given(values: Sequence[ir.Value]) -> ir.Graph:
    nodes = [ir.node("Identity", [value]) for value in values]
    for node, value in zip(nodes, values, strict=True):
        output = node.outputs[0]
        output.name, output.shape, output.type = f"given.{value.name}", value.shape, value.type
    return ir.Graph([], [node.outputs[0] for node in nodes], nodes=nodes, name="given")


def _as_computed(computed: ir.Graph) -> ir.Graph:
    nodes, outputs = list(computed), list(computed.outputs)
    computed.inputs.clear()
    computed.outputs.clear()
    computed.remove(nodes)
    for node in nodes:
        for output in node.outputs:  # names must not meet those of the outer graph
            output.name = f"cross.{output.name}"
        node.name = f"cross.{node.name}"
    return ir.Graph([], outputs, nodes=nodes, name="computed")


def _put_behind_own_layer(graph: ir.Graph, source: Sequence[ir.Value]) -> None:
    """Outputs: logits, then of each layer the target's key and value, and the source's."""
    logits, *target = list(graph.outputs)
    graph.outputs.clear()
    graph.outputs.append(logits)
    for i in range(0, len(target), 2):
        graph.outputs.extend([*target[i : i + 2], *source[i : i + 2]])
