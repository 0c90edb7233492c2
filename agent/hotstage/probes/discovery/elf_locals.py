# SPDX-License-Identifier: Apache-2.0
"""Local functions of a library by name, from its section table; bounded, and read piece by piece.

The section table is for linkers: a stripped file has none, and then nothing is found. Whatever it says is
checked against the file's size; a symbol whose code lies outside an executable segment is none.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from hotstage.grouping import distinct
from hotstage.probes.discovery.elf import ElfFile, Symbol
from hotstage.probes.discovery.elf_budget import Budget
from hotstage.probes.discovery.elf_sections import SYMBOL_TABLE, Section, read_sections

SYMBOLS_BYTES_LIMIT = 256 << 20
STRINGS_BYTES_LIMIT = 512 << 20
_READ_BYTES_LIMIT = 1 << 30
"""Of everything: the strings are gone through once for each name."""
PLACES_LIMIT = 1024
"""How often one name may stand among the strings."""
COPIES_LIMIT = 4096
"""Functions of one library that are called by the names that are looked for."""

_FUNCTION = 2
SYMBOL_DTYPE = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_PIECE_BYTES = SYMBOL_DTYPE.itemsize << 16


def local_functions(fd: int, elf: ElfFile, names: Collection[str]) -> dict[str, Symbol]:
    """Name → where it lies in the file; a second copy is called `NAME#2`, and so on. {} where none is.

    Raises ElfError where the tables take more work than those of any real library.
    """
    tables = _symbol_table(fd)
    if tables is None:
        return {}
    symbols, strings = tables
    budget = Budget(_READ_BYTES_LIMIT)
    places = {name: list(_places(fd, name.encode() + b"\0", strings, budget)) for name in names}
    functions = _functions(fd, symbols, [place for found in places.values() for place in found], budget)
    found: dict[str, Symbol] = {}
    for name in names:
        copies = functions[np.isin(functions["name"], places[name])]
        count = 0
        for copy in distinct(copies["value"]):
            offset = _code_offset(elf, int(copy))
            if offset is not None:
                count += 1
                called = name if count == 1 else f"{name}#{count}"
                length = int(copies["size"][copies["value"] == copy][0])
                found[called] = Symbol(called, offset, length)
    return found


def _symbol_table(fd: int) -> tuple[Section, Section] | None:
    """The symbols and their names."""
    sections = read_sections(fd)
    for table in sections:
        if (
            table.kind == SYMBOL_TABLE
            and table.entry_size == SYMBOL_DTYPE.itemsize
            and table.link < len(sections)
        ):
            strings = sections[table.link]
            if 0 < table.size <= SYMBOLS_BYTES_LIMIT and 0 < strings.size <= STRINGS_BYTES_LIMIT:
                return table, strings
    return None


def pieces(fd: int, section: Section, budget: Budget, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
    """(place in the section, bytes) of each piece; what is left of a file that was cut short.

    Raises ElfError where the budget is spent.
    """
    for at in range(0, section.size, _PIECE_BYTES):
        length = min(_PIECE_BYTES + overlap, section.size - at)
        budget.take(length)
        yield at, os.pread(fd, length, section.offset + at)


def _functions(fd: int, symbols: Section, names: list[int], budget: Budget) -> NDArray[np.void]:
    """Rows of the functions that are called by one of the names, which are places among the strings."""
    found = [np.zeros(0, SYMBOL_DTYPE)]
    for _, piece in pieces(fd, symbols, budget):
        rows = np.frombuffer(piece, SYMBOL_DTYPE, count=len(piece) // SYMBOL_DTYPE.itemsize)
        is_function = ((rows["info"] & 15) == _FUNCTION) & (rows["section"] != 0)
        found.append(rows[is_function & np.isin(rows["name"], names)][:COPIES_LIMIT])
    return np.concatenate(found)[:COPIES_LIMIT]


def _places(fd: int, text: bytes, strings: Section, budget: Budget) -> Iterator[int]:
    """Where the name begins among the strings, at most PLACES_LIMIT times."""
    room = PLACES_LIMIT
    for start, piece in pieces(fd, strings, budget, len(text) - 1):
        at = piece.find(text)
        while at >= 0:
            yield start + at
            room -= 1
            if not room:
                return
            at = piece.find(text, at + 1)


def _code_offset(elf: ElfFile, address: int) -> int | None:
    for segment in elf.segments:
        if segment.is_executable and segment.address <= address < segment.address + segment.file_size:
            return address - segment.address + segment.offset
    return None
