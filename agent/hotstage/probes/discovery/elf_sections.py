# SPDX-License-Identifier: Apache-2.0
"""The section table of a library, bounded: what linkers and debuggers read and the dynamic loader does not.

A stripped file may have none; whatever it says is checked against the file's size.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

SECTIONS_LIMIT = 4096

SYMBOL_TABLE, NOTES = 2, 7


@dataclass(frozen=True, slots=True)
class Section:
    """`offset` and `size` lie inside the file; `kind` is sh_type, `link` another section's index."""

    kind: int
    offset: int
    size: int
    link: int
    entry_size: int


def read_sections(file: mmap.mmap) -> list[Section]:
    """All sections in their order, those that do not lie inside the file with size 0; [] where none are."""
    if len(file) < 64:
        return []
    (start,) = struct.unpack_from("<Q", file, 40)
    entry_size, count = struct.unpack_from("<HH", file, 58)
    if entry_size != 64 or not 0 < count <= SECTIONS_LIMIT or start + count * 64 > len(file):
        return []
    found: list[Section] = []
    for _, kind, _, _, offset, size, link, _, _, item in struct.iter_unpack(
        "<IIQQQQIIQQ", file[start : start + count * 64]
    ):
        is_inside = offset + size <= len(file)
        found.append(Section(kind, offset, size if is_inside else 0, link, item))
    return found
