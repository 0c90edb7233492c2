# SPDX-License-Identifier: Apache-2.0
"""The smallest model that ONNX Runtime runs: y = x + x, four floats; written field by field (onnx.proto)."""

from __future__ import annotations

_FLOAT = 1


def _varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _tensor(name: str) -> bytes:
    """ValueInfoProto: its name, and a type of four floats."""
    shape = _field(1, _field(1, 4))
    return _field(1, name) + _field(2, _field(1, _field(1, _FLOAT) + _field(2, shape)))


def tiny_model() -> bytes:
    """ModelProto: IR version 8, operators of version 13, one node."""
    node = _field(1, "x") + _field(1, "x") + _field(2, "y") + _field(4, "Add")
    graph = _field(1, node) + _field(2, "tiny") + _field(11, _tensor("x")) + _field(12, _tensor("y"))
    return _field(1, 8) + _field(7, graph) + _field(8, _field(2, 13))
