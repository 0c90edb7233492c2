# SPDX-License-Identifier: Apache-2.0
"""Local functions of a library by name, from its section table; bounded, and mapped rather than read.

The section table is for linkers: a stripped file has none, and then nothing is found. Whatever it says is
checked against the file's size; a symbol whose code lies outside an executable segment is none.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterator

import numpy as np

from hotstage.probes.discovery.elf import ElfFile, Symbol
from hotstage.probes.discovery.elf_sections import SYMBOL_TABLE, read_sections

SYMBOLS_BYTES_LIMIT = 256 << 20
STRINGS_BYTES_LIMIT = 512 << 20
PLACES_LIMIT = 1024
"""How often one name may stand among the strings."""

_FUNCTION = 2
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


def local_functions(fd: int, elf: ElfFile, names: Collection[str]) -> dict[str, Symbol]:
    """Name → where it lies in the file; a second copy is called `NAME#2`, and so on. {} where none is."""
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as file:
        tables = _symbol_table(file)
        if tables is None:
            return {}
        (at, size), (strings_at, strings_size) = tables
        rows = np.frombuffer(file, _SYMBOL, count=size // _SYMBOL.itemsize, offset=at)
        functions = rows[((rows["info"] & 15) == _FUNCTION) & (rows["section"] != 0)].copy()
        del rows  # else the mapping cannot be closed
        found: dict[str, Symbol] = {}
        for name in names:
            places = list(_places(file, name.encode() + b"\0", strings_at, strings_at + strings_size))
            copies = functions[np.isin(functions["name"], places)]
            for copy in np.unique(copies["value"]):
                offset = _code_offset(elf, int(copy))
                if offset is not None:
                    count = sum(1 for known in found if known.partition("#")[0] == name)
                    called = f"{name}#{count + 1}" if count else name
                    length = int(copies["size"][copies["value"] == copy][0])
                    found[called] = Symbol(called, offset, length)
        return found


def _symbol_table(file: mmap.mmap) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """(offset, bytes) of the symbols and of their names."""
    sections = read_sections(file)
    for table in sections:
        if table.kind == SYMBOL_TABLE and table.entry_size == _SYMBOL.itemsize and table.link < len(sections):
            strings = sections[table.link]
            if 0 < table.size <= SYMBOLS_BYTES_LIMIT and 0 < strings.size <= STRINGS_BYTES_LIMIT:
                return (table.offset, table.size), (strings.offset, strings.size)
    return None


def _places(file: mmap.mmap, text: bytes, start: int, end: int) -> Iterator[int]:
    at = file.find(text, start, end)
    for _ in range(PLACES_LIMIT):
        if at < 0:
            return
        yield at - start
        at = file.find(text, at + 1, end)


def _code_offset(elf: ElfFile, address: int) -> int | None:
    for segment in elf.segments:
        if segment.is_executable and segment.address <= address < segment.address + segment.file_size:
            return address - segment.address + segment.offset
    return None
