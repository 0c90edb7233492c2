# SPDX-License-Identifier: Apache-2.0
"""Which addresses does a piece of code take? `lea` relative to the instruction on x86-64, `adrp` and `add` on
arm64: what compilers write where a function hands out a table or a text of its own library.

On x86-64 every byte is tried as a beginning, so an answer may be nonsense: it is a candidate, and who asks
knows what must stand at the place.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_LEA = re.compile(rb"(?=[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4}))", re.DOTALL)
_LEA_BYTES = 7
_PAGE = 0xFFF


def references(code: bytes, address: int, machine: str) -> Iterator[int]:
    """Of code that is loaded at `address`, in its order."""
    return _x86(code, address) if machine == "x86_64" else _arm(code, address)


def _x86(code: bytes, address: int) -> Iterator[int]:
    for match in _LEA.finditer(code):
        yield address + match.start() + _LEA_BYTES + int.from_bytes(match[1], "little", signed=True)


def _arm(code: bytes, address: int) -> Iterator[int]:
    pages: dict[int, int] = {}
    for at, (word,) in enumerate(struct.iter_unpack("<I", code[: len(code) & ~3])):
        if word & 0x9F000000 == 0x90000000:  # adrp xN, page
            distance = (word >> 29 & 3) | (word >> 5 & 0x7FFFF) << 2
            signed = distance - (1 << 21) if distance >> 20 else distance
            pages[word & 31] = (address + 4 * at & ~_PAGE) + (signed << 12)
        elif word & 0xFFC00000 == 0x91000000 and word >> 5 & 31 in pages:  # add xM, xN, #low
            yield pages[word >> 5 & 31] + (word >> 10 & _PAGE)
