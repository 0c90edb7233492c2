# SPDX-License-Identifier: Apache-2.0
"""The section table of a library, bounded: what linkers and debuggers read and the dynamic loader does not.

A stripped file may have none; whatever it says is checked against the file's size. It is read, never mapped:
who owns the file may cut it short at any moment, and a mapping would end the agent by SIGBUS.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

SECTIONS_LIMIT = 4096

SYMBOL_TABLE, NOTES, EXPORTS = 2, 7, 11


@dataclass(frozen=True, slots=True)
class Section:
    """`offset` and `size` lie inside the file; `kind` is sh_type, `link` another section's index."""

    kind: int
    offset: int
    size: int
    link: int
    entry_size: int


def read_sections(fd: int) -> list[Section]:
    """All sections in their order, those that do not lie inside the file with size 0; [] where none are."""
    file_size = os.fstat(fd).st_size
    head = os.pread(fd, 64, 0)
    if len(head) < 64:
        return []
    (start,) = struct.unpack_from("<Q", head, 40)
    entry_size, count = struct.unpack_from("<HH", head, 58)
    if entry_size != 64 or not 0 < count <= SECTIONS_LIMIT or start + count * 64 > file_size:
        return []
    table = os.pread(fd, count * 64, start)
    if len(table) < count * 64:
        return []
    found: list[Section] = []
    for _, kind, _, _, offset, size, link, _, _, item in struct.iter_unpack("<IIQQQQIIQQ", table):
        is_inside = offset + size <= file_size
        found.append(Section(kind, offset, size if is_inside else 0, link, item))
    return found
