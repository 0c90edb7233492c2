# SPDX-License-Identifier: Apache-2.0
"""Which function is at a place in a file? From its section table, bounded, by array arithmetic: a library of
a million symbols takes some 20 ms. A stripped file answers for what it exports.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.discovery.elf import ElfFile
from hotstage.probes.discovery.elf_budget import Budget
from hotstage.probes.discovery.elf_locals import (
    STRINGS_BYTES_LIMIT,
    SYMBOL_DTYPE,
    SYMBOLS_BYTES_LIMIT,
    pieces,
)
from hotstage.probes.discovery.elf_sections import EXPORTS, SYMBOL_TABLE, Section, read_sections

NAME_BYTES_LIMIT = 240
_READ_BYTES_LIMIT = SYMBOLS_BYTES_LIMIT
_FUNCTION, _FUNCTION_BY_RESOLVER = 2, 10


@dataclass(frozen=True, slots=True)
class Place:
    """Inside a function: its name as the file has it, and how far behind its first byte."""

    name: bytes
    offset: int


def functions_at(fd: int, elf: ElfFile, offsets: Collection[int]) -> dict[int, Place]:
    """File offset → the function that it lies in; those in no function of a known size are left out.

    By the first table of each kind: no linker writes a second one. Raises ElfError where they take more work
    than those of any real library.
    """
    addresses = {offset: address for offset in offsets if (address := _address(elf, offset)) is not None}
    found: dict[int, Place] = {}
    sections = read_sections(fd)
    budget = Budget(_READ_BYTES_LIMIT)
    for kind in (SYMBOL_TABLE, EXPORTS):
        left = {offset: address for offset, address in addresses.items() if offset not in found}
        table = next((section for section in sections if section.kind == kind), None)
        if table is not None:
            found |= _in_table(fd, table, sections, left, budget)
    return found


def _in_table(
    fd: int, table: Section, sections: list[Section], addresses: dict[int, int], budget: Budget
) -> dict[int, Place]:
    if not addresses or table.entry_size != SYMBOL_DTYPE.itemsize or table.link >= len(sections):
        return {}
    strings = sections[table.link]
    if not (0 < table.size <= SYMBOLS_BYTES_LIMIT and 0 < strings.size <= STRINGS_BYTES_LIMIT):
        return {}
    around: dict[int, np.void] = {}
    for _, piece in pieces(fd, table, budget):
        rows = np.frombuffer(piece, SYMBOL_DTYPE, count=len(piece) // SYMBOL_DTYPE.itemsize)
        is_function = np.isin(rows["info"] & 15, (_FUNCTION, _FUNCTION_BY_RESOLVER)) & (rows["section"] != 0)
        functions = rows[is_function]
        for offset, address in addresses.items():
            budget.take(0)
            row = _around(functions, address)
            if row is not None and (offset not in around or row["value"] > around[offset]["value"]):
                around[offset] = row.copy()
    found: dict[int, Place] = {}
    for offset, row in around.items():
        start = int(row["name"])
        length = min(NAME_BYTES_LIMIT, strings.size - start)
        name = os.pread(fd, length, strings.offset + start).split(b"\0", 1)[0] if length > 0 else b""
        if name:
            found[offset] = Place(name, addresses[offset] - int(row["value"]))
    return found


def _around(functions: NDArray[np.void], address: int) -> np.void | None:
    """The innermost function that the address lies in."""
    where = np.uint64(address)
    begins = functions["value"]
    inside = functions[(begins <= where) & (where - begins < functions["size"])]
    if not len(inside):
        return None
    innermost: np.void = inside[np.argmax(inside["value"])]
    return innermost


def _address(elf: ElfFile, offset: int) -> int | None:
    for segment in elf.segments:
        if segment.is_executable and segment.offset <= offset < segment.offset + segment.file_size:
            return offset - segment.offset + segment.address
    return None
