"""An ONNX graph of one node, written byte by byte: what moves keys and values inside a device's memory.

The runtime has no ONNX library, and needs none for 200 bytes. The encoding is that of Protocol Buffers, the numbers of
the fields are those of onnx.proto.
"""

from __future__ import annotations

IR_VERSION, OPSET = 8, 13
ELEMENTS = {1: 3, 2: 5, 4: 6, 8: 7}  # bytes of a word: its TensorProto.DataType, int8 to int64
INDICES = 7  # int64


def gather_graph(word: int) -> bytes:
    """gathered [A, M, W] = data [A, N, W][:, indices [M]]; elements of `word` bytes, 1, 2, 4 or 8."""
    axis = _text(1, "axis") + _number(3, 1) + _number(20, 2)  # name, i, type INT
    node = _text(1, "data") + _text(1, "indices") + _text(2, "gathered") + _text(4, "Gather") + _bytes(5, axis)
    data = _tensor("data", ELEMENTS[word], "A", "N", "W")
    gathered = _tensor("gathered", ELEMENTS[word], "A", "M", "W")
    inputs = _bytes(11, data) + _bytes(11, _tensor("indices", INDICES, "M"))
    graph = _bytes(1, node) + _text(2, "gather") + inputs + _bytes(12, gathered)
    return _number(1, IR_VERSION) + _bytes(7, graph) + _bytes(8, _number(2, OPSET))


def _tensor(name: str, element: int, *axes: str) -> bytes:
    """A ValueInfoProto: the name, and a type that holds a shape of named axes."""
    shape = b"".join(_bytes(1, _text(2, axis)) for axis in axes)
    return _text(1, name) + _bytes(2, _bytes(1, _number(1, element) + _bytes(2, shape)))


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _bytes(field: int, content: bytes) -> bytes:
    """Wire type 2: the length, then the content."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    """Wire type 0."""
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; all but the last have the highest bit set."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
