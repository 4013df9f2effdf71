"""Every place of a graph that can point at another file is found."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.runtime.bundle_fixture import external_tensor, onnx_model, problem_of
from tfexport_runtime.errors import BundleError
from tfexport_runtime.external_data import _MESSAGES, external_locations


def located(model: onnx.ModelProto) -> set[str]:
    return external_locations(model.SerializeToString())


def add_attribute(model: onnx.ModelProto, name: str) -> onnx.AttributeProto:
    return model.graph.node[0].attribute.add(name=name)


def test_initializers() -> None:
    assert located(onnx_model(external_tensor("a"), external_tensor("b", "v"))) == {"a", "b"}


def test_inline_weights_have_no_location() -> None:
    inline = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    assert located(onnx_model(inline)) == set()


def test_other_keys_are_not_locations() -> None:
    tensor = external_tensor("a")
    tensor.external_data.add(key="checksum", value="b")
    assert located(onnx_model(tensor)) == {"a"}


def test_tensor_attributes_of_nodes() -> None:
    model = onnx_model()
    add_attribute(model, "one").t.CopyFrom(external_tensor("a"))
    add_attribute(model, "many").tensors.extend([external_tensor("b"), external_tensor("c")])
    assert located(model) == {"a", "b", "c"}


def test_sparse_tensors() -> None:
    model = onnx_model()
    model.graph.sparse_initializer.add(values=external_tensor("a"), indices=external_tensor("b"))
    add_attribute(model, "one").sparse_tensor.values.CopyFrom(external_tensor("c"))
    add_attribute(model, "many").sparse_tensors.add(indices=external_tensor("d"))
    assert located(model) == {"a", "b", "c", "d"}


def test_subgraphs_at_any_depth() -> None:
    inner = onnx_model(external_tensor("inner"))
    middle = onnx_model(external_tensor("middle"))
    add_attribute(middle, "body").g.CopyFrom(inner.graph)
    outer = onnx_model(external_tensor("outer"))
    add_attribute(outer, "branches").graphs.extend([middle.graph])
    assert located(outer) == {"inner", "middle", "outer"}


def test_functions_and_training_graphs() -> None:
    model = onnx_model()
    node = helper.make_node("Constant", [], ["c"], value=external_tensor("a"))
    function = helper.make_function("f", "F", [], ["c"], [node], [helper.make_opsetid("", 18)])
    function.attribute_proto.add(name="default").t.CopyFrom(external_tensor("b"))
    model.functions.append(function)
    training = model.training_info.add()
    training.initialization.initializer.append(external_tensor("c"))
    training.algorithm.initializer.append(external_tensor("d"))
    assert located(model) == {"a", "b", "c", "d"}


def test_every_message_that_holds_a_tensor_is_followed() -> None:
    """The table of field numbers against the definition in the onnx package."""
    tensor = onnx.TensorProto.DESCRIPTOR
    children = {}
    waiting = [onnx.ModelProto.DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        if message.full_name in children:
            continue
        children[message.full_name] = {f.number: f.message_type for f in message.fields if f.message_type}
        waiting += children[message.full_name].values()
    holders = {tensor.full_name}
    while True:
        more = {m for m, fields in children.items() if any(f.full_name in holders for f in fields.values())}
        if more <= holders:
            break
        holders |= more
    reached = {
        name: {n: f.full_name for n, f in children[name].items() if f.full_name in holders}
        for name in holders - {tensor.full_name}
    }
    ours = {
        "model": "ModelProto",
        "training": "TrainingInfoProto",
        "graph": "GraphProto",
        "function": "FunctionProto",
        "node": "NodeProto",
        "attribute": "AttributeProto",
        "sparse_tensor": "SparseTensorProto",
        "tensor": "TensorProto",
    }
    expected = {
        f"onnx.{ours[message]}": {number: f"onnx.{ours[child]}" for number, child in fields.items()}
        for message, fields in _MESSAGES.items()
        if message != "tensor"
    }
    assert reached == expected
    assert tensor.fields_by_name["external_data"].number in _MESSAGES["tensor"]


def test_graph_given_twice_is_merged_as_readers_do() -> None:
    first, second = onnx_model(external_tensor("a")), onnx_model(external_tensor("b"))
    both = first.SerializeToString() + second.SerializeToString()
    assert external_locations(both) == {t for m in (first, second) for t in located(m)} == {"a", "b"}


def test_last_value_of_an_entry_counts_as_for_protobuf() -> None:
    entry = b"\x0a\x08location\x12\x01a\x12\x01b"
    tensor = b"\x6a" + bytes([len(entry)]) + entry
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    model = b"\x3a" + bytes([len(graph)]) + graph
    parsed = onnx.ModelProto.FromString(model)
    assert parsed.graph.initializer[0].external_data[0].value == "b"
    assert external_locations(model) == {"b"}


def test_deep_nesting_is_refused() -> None:
    model = b""
    for _ in range(200):  # graph 7, then node 1, attribute 5, graph 6 again and again
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            model = tag + _varint(len(model)) + model
    with pytest.raises(BundleError, match="nested too deep"):
        external_locations(b"\x3a" + _varint(len(model)) + model)


def test_deepest_nesting_that_protobuf_reads_is_followed() -> None:
    graph = onnx_model(external_tensor("deep")).graph
    for _ in range(30):
        outer = onnx_model()
        add_attribute(outer, "body").g.CopyFrom(graph)
        graph = outer.graph
    model = onnx_model()
    model.graph.CopyFrom(graph)
    data = model.SerializeToString()
    onnx.ModelProto.FromString(data)
    assert external_locations(data) == {"deep"}


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01",  # field 0
        b"\x3a\x05\x00",  # longer than the rest
        b"\x3a",  # no length
        b"\x3b",  # a group
        b"\x3e\x00",  # wire type 6
        b"\x08" + b"\xff" * 10 + b"\x01",  # a number of more than 64 bits
        b"\xba\x80\x80\x80\x80\x01\x00",  # a field number of more than 29 bits
        b"\x09\x00",  # a cut double
        b"\x0d\x00",  # a cut float
    ],
)
def test_broken_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BundleError, match="not an ONNX graph"):
        external_locations(data)


def test_location_that_is_not_utf8_is_refused() -> None:
    data = onnx_model(external_tensor("@@")).SerializeToString().replace(b"@@", b"\xff\xff")
    with pytest.raises(BundleError, match="not UTF-8"):
        external_locations(data)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_protobuf_reads_is_found(data: st.DataObject) -> None:
    """Random damage: either refused, or the same locations as the onnx package sees."""
    model = onnx_model(external_tensor("a"), external_tensor("bb", "v"))
    add_attribute(model, "one").t.CopyFrom(external_tensor("ccc"))
    damaged = bytearray(model.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        stop = place + data.draw(st.integers(0, 2))
        damaged[place:stop] = data.draw(st.binary(max_size=2))
    try:
        ours = external_locations(bytes(damaged))
        parsed = onnx.ModelProto.FromString(bytes(damaged))
    except (BundleError, DecodeError):
        return
    tensors = [*parsed.graph.initializer, *(a.t for n in parsed.graph.node for a in n.attribute)]
    theirs = {e.value for t in tensors for e in t.external_data if e.key == "location"}
    assert theirs <= ours


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_never_fails_in_another_way(data: bytes) -> None:
    assert "\n" not in problem_of(lambda: external_locations(data))


def _varint(value: int) -> bytes:
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
