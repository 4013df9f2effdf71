"""Which files an ONNX graph reads its tensors from, found without the onnx package.

A walk over the protobuf wire format (https://protobuf.dev/programming-guides/encoding) that looks only into messages
that can hold a tensor. Field numbers are those of onnx.proto3. Time is linear in the size of the file, memory in the
depth of nesting, which is bounded.
"""

from __future__ import annotations

from tfexport_runtime.errors import BundleError

MAX_DEPTH = 100  # of nested messages: the limit of protobuf itself

# message -> field number -> message in that field
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse_tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse_tensor", 23: "sparse_tensor"},
    "sparse_tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_KEY, _VALUE = 1, 2  # fields of an entry of external_data
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


def external_locations(model: bytes) -> set[str]:
    """Every `location` of external data in a serialised ModelProto. Raises BundleError for bytes that are not one."""
    locations: set[str] = set()
    stack = [("model", 0, len(model))]  # message, position of its next field, its end
    while stack:
        message, position, end = stack.pop()
        if message == "entry":
            locations |= _location(model, position, end)
            continue
        inside = _MESSAGES[message]
        while position < end:
            number, start, position = _field(model, position, end)
            if number in inside:  # go down, and come back to the rest of this message later
                stack += [(message, position, end), (inside[number], start, position)]
                break
        if len(stack) > MAX_DEPTH:
            raise BundleError("not an ONNX graph: nested too deep")
    return locations


def _location(model: bytes, position: int, end: int) -> set[str]:
    """The value of a key-value pair whose key is `location`. A field given twice counts as its last value."""
    parts = {_KEY: b"", _VALUE: b""}
    while position < end:
        number, start, position = _field(model, position, end)
        if number in parts:
            parts[number] = model[start:position]
    if parts[_KEY] != b"location":
        return set()
    try:
        return {parts[_VALUE].decode("utf-8")}
    except UnicodeDecodeError as error:
        raise BundleError("not an ONNX graph: a location of external data is not UTF-8") from error


def _field(model: bytes, position: int, end: int) -> tuple[int, int, int]:
    """(number, start, end) of the field at `position`; number 0 for one that is not length-delimited."""
    tag, position = _varint(model, position, end)
    number, wire_type = tag >> 3, tag & 7
    if number == 0 or tag >= 2**32:  # readers cut a longer tag in different ways
        raise BundleError(f"not an ONNX graph: impossible field at byte {position}")
    if wire_type == _BYTES:
        length, start = _varint(model, position, end)
        stop = start + length
    elif wire_type == _VARINT:
        number, start = 0, position
        stop = _varint(model, position, end)[1]
    elif wire_type in (_FIXED64, _FIXED32):
        number, start = 0, position
        stop = position + (8 if wire_type == _FIXED64 else 4)
    else:
        raise BundleError(f"not an ONNX graph: unknown wire type {wire_type} at byte {position}")
    if stop > end:
        raise BundleError(f"not an ONNX graph: cut short at byte {position}")
    return number, start, stop


def _varint(model: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = model[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise BundleError(f"not an ONNX graph: broken number at byte {position}")
