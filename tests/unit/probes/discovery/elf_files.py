# SPDX-License-Identifier: Apache-2.0
"""Small ELF libraries made by hand, byte by byte, so that a test can break any field of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

CODE_OFFSET = 0x1000
CODE_ADDRESS = 0x3000
"""Code is loaded at another address than its file offset, as linkers do."""


@dataclass(frozen=True)
class Layout:
    """Where things lie in the file that `make_elf` made."""

    dynamic: int
    symbols: int
    hash: int
    note: int


def make_elf(
    names: Sequence[str], *, build_id: bytes = bytes(range(20)), gnu_hash: bool = False, machine: int = 62
) -> tuple[bytearray, Layout]:
    """A library that exports `names`, each 16 bytes after the one before, code at CODE_ADDRESS."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    symbols = bytes(24)
    at = 1
    for index, name in enumerate(names):
        symbols += struct.pack("<IBBHQQ", at, 0x12, 0, 9, CODE_ADDRESS + 16 * index, 16)
        at += len(name) + 1
    table = (
        _gnu_hash(len(names))
        if gnu_hash
        else struct.pack("<III", 1, len(names) + 1, 0) + bytes(4 * (len(names) + 1))
    )
    note = struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id
    start = 64 + 4 * 56
    layout = Layout(
        note=start,
        hash=(start + len(note) + 7) & ~7,
        symbols=0x400,
        dynamic=0x200,
    )
    assert layout.hash + len(table) <= layout.dynamic
    strings_at = layout.symbols + len(symbols)
    data = bytearray(CODE_OFFSET + 16 * max(len(names), 1))
    dynamic = struct.pack(
        "<12Q",
        *(0x6FFFFEF5 if gnu_hash else 4, layout.hash),
        6,
        layout.symbols,
        5,
        strings_at,
        10,
        len(strings),
        11,
        24,
        0,
        0,
    )
    data[:64] = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0
    )
    headers = (
        (1, 4, 0, 0, 0, CODE_OFFSET, CODE_OFFSET, 0x1000),
        (
            1,
            5,
            CODE_OFFSET,
            CODE_ADDRESS,
            CODE_ADDRESS,
            len(data) - CODE_OFFSET,
            len(data) - CODE_OFFSET,
            0x1000,
        ),
        (2, 6, layout.dynamic, layout.dynamic, 0, len(dynamic), len(dynamic), 8),
        (4, 4, layout.note, layout.note, 0, len(note), len(note), 4),
    )
    data[64:start] = b"".join(struct.pack("<IIQQQQQQ", *header) for header in headers)
    for offset, part in (
        (layout.note, note),
        (layout.hash, table),
        (layout.dynamic, dynamic),
        (layout.symbols, symbols),
        (strings_at, strings),
    ):
        data[offset : offset + len(part)] = part
    data[CODE_OFFSET:] = b"\x55\x48\x89\xe5\x5d\xc3" * ((len(data) - CODE_OFFSET) // 6) + bytes(
        (len(data) - CODE_OFFSET) % 6
    )
    return data, layout


def _gnu_hash(count: int) -> bytes:
    """One bucket, one chain over all symbols from index 1 on; the last carries the end bit."""
    chain = b"".join(struct.pack("<I", 2 if index < count - 1 else 3) for index in range(count))
    return struct.pack("<IIII", 1, 1, 1, 0) + bytes(8) + struct.pack("<I", 1 if count else 0) + chain
