# SPDX-License-Identifier: Apache-2.0
"""Which addresses of its own the dynamic loader writes into a library's data: tables of functions, read from
the file, with nothing loaded and nothing run.

By its relocations: relative ones (plain or packed, DT_RELR), and those to symbols that it defines itself.
Everything is bounded and done by whole columns, piece by piece: a library of 36,000 relocations takes some
milliseconds, one of a million less than 50 MB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.discovery.elf import (
    SYMBOLS_LIMIT,
    ElfError,
    ElfFile,
    Segment,
    dynamic_entries,
    file_offset,
    program_headers,
    read_layout,
    read_part,
)
from hotstage.probes.discovery.elf_budget import Budget
from hotstage.probes.discovery.elf_locals import SYMBOL_DTYPE

RELOCATIONS_LIMIT = 1 << 20
PACKED_WORDS_LIMIT = 1 << 16
READ_BYTES_LIMIT = 128 << 20
"""Of relocations, symbols, and the windows of data that packed relocations change in place."""

_DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_RELRSZ, _DT_RELR = 6, 7, 8, 35, 36
# R_X86_64_RELATIVE and _64, R_AARCH64_RELATIVE and _ABS64 (elf.h)
_RELATIVE, _ABSOLUTE = {"x86_64": 8, "aarch64": 1027}, {"x86_64": 1, "aarch64": 257}
_RELA = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<u8")])
_PACKED_BITS = 63
_PIECE = 1 << 16
_BITMAPS_PIECE = 1 << 12
_WINDOW_BYTES = 1 << 20
_NO_ADDRESS = (1 << 64) - 8

Addresses = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Pointers:
    """`targets[i]` is written to `slots[i]`; both as linked, `slots` sorted and each once."""

    slots: Addresses
    targets: Addresses

    def at(self, slot: int) -> int | None:
        """What is written there; None where nothing of the library's own is."""
        found = self.run(slot, 1)
        return found[0] if found else None

    def run(self, slot: int, limit: int) -> list[int]:
        """What is written there and right behind it, until something else stands there."""
        if not 0 <= slot < 1 << 62:
            return []
        first = int(np.searchsorted(self.slots, np.uint64(slot)))
        wanted = np.arange(slot, slot + 8 * limit, 8, dtype=np.uint64)[: len(self.slots) - first]
        differs = np.flatnonzero(self.slots[first : first + len(wanted)] != wanted)
        count = int(differs[0]) if len(differs) else len(wanted)
        return [int(target) for target in self.targets[first : first + count]]


def read_pointers(fd: int) -> Pointers:
    """Raises ElfError for more relocations than any real library has, such as do not lie in the file, and
    those that take more work than a real library's.
    """
    size = os.fstat(fd).st_size
    layout = read_layout(fd)
    dynamic = dynamic_entries(fd, size, program_headers(fd, size)[1])
    budget = Budget(READ_BYTES_LIMIT)
    packed = _packed_slots(fd, size, layout, dynamic)
    count = len(packed) + dynamic.get(_DT_RELASZ, 0) // _RELA.itemsize
    if count > RELOCATIONS_LIMIT:
        raise ElfError(f"{count} relocations")
    found = list(_in_place(fd, size, layout.segments, packed, budget))
    found += _written(fd, size, layout, dynamic, budget)
    slots = np.concatenate([np.zeros(0, np.uint64), *(slots for slots, _ in found)])
    targets = np.concatenate([np.zeros(0, np.uint64), *(targets for _, targets in found)])
    del found, packed
    order = np.argsort(slots, kind="stable")
    slots = slots[order]
    targets = targets[order]
    del order
    # the packed ones came first, as the loader has them: what is written last stays
    is_last = np.append(slots[1:] != slots[:-1], np.ones(len(slots[:1]), np.bool_))
    return Pointers(slots[is_last], targets[is_last])


def _written(
    fd: int, size: int, layout: ElfFile, dynamic: Mapping[int, int], budget: Budget
) -> Iterator[tuple[Addresses, Addresses]]:
    """(slots, what is written there) of plain relocations, in the file's order, piece by piece."""
    relative, absolute = _RELATIVE[layout.machine], _ABSOLUTE[layout.machine]
    count = dynamic.get(_DT_RELASZ, 0) // _RELA.itemsize
    if _DT_RELA not in dynamic or not count:
        return
    start = file_offset(layout.segments, dynamic[_DT_RELA])
    for first in range(0, count, _PIECE):
        length = min(_PIECE, count - first) * _RELA.itemsize
        budget.take(length)
        rows = np.frombuffer(
            read_part(fd, start + first * _RELA.itemsize, length, size, "a relocation"), _RELA
        )
        is_own, values = rows["kind"] == relative, rows["addend"].copy()
        symbolic = np.flatnonzero(rows["kind"] == absolute)
        if len(symbolic):
            wanted = rows["symbol"][symbolic]
            addresses, is_own[symbolic] = _own_symbols(fd, size, layout.segments, dynamic, wanted, budget)
            values[symbolic] += addresses
        yield rows["offset"][is_own], values[is_own]


def _packed_slots(fd: int, size: int, layout: ElfFile, dynamic: Mapping[int, int]) -> Addresses:
    """Sorted, each once. An even word is a slot; an odd one says by its other bits which of the 63 slots
    behind are, too.
    """
    count = dynamic.get(_DT_RELRSZ, 0) // 8
    if _DT_RELR not in dynamic or not count:
        return np.zeros(0, np.uint64)
    if count > PACKED_WORDS_LIMIT:
        raise ElfError(f"{count} packed relocations")
    start = file_offset(layout.segments, dynamic[_DT_RELR])
    words: Addresses = np.frombuffer(read_part(fd, start, count * 8, size, "a packed relocation"), "<u8")
    is_slot = (words & np.uint64(1)) == 0
    if not is_slot[0]:
        raise ElfError("packed relocations that begin nowhere")
    bits_set = np.unpackbits((words[~is_slot] >> np.uint64(1)).view(np.uint8)).sum(dtype=np.int64)
    if bits_set > RELOCATIONS_LIMIT:
        raise ElfError(f"packed relocations of {bits_set} slots")
    rows = np.arange(count)
    last = np.maximum.accumulate(np.where(is_slot, rows, 0))
    base = words[last] + 8 + (rows - last - 1).astype(np.uint64) * np.uint64(_PACKED_BITS * 8)
    slots = np.concatenate([words[is_slot], *_named(words[~is_slot], base[~is_slot])])
    slots.sort()
    once: Addresses = slots[np.append(np.ones(1, np.bool_), slots[1:] != slots[:-1])]
    return once


def _named(bitmaps: Addresses, bases: Addresses) -> Iterator[Addresses]:
    for first in range(0, len(bitmaps), _BITMAPS_PIECE):
        part, base = bitmaps[first : first + _BITMAPS_PIECE], bases[first : first + _BITMAPS_PIECE]
        bits = np.unpackbits(part.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        # (bitmaps, 63): the slots that each of them could name
        could = base[:, None] + np.arange(_PACKED_BITS, dtype=np.uint64) * np.uint64(8)
        yield could[bits[:, 1:].astype(bool)]


def _in_place(
    fd: int, size: int, segments: tuple[Segment, ...], slots: Addresses, budget: Budget
) -> Iterator[tuple[Addresses, Addresses]]:
    """(slots, what the file has there), only aligned ones that lie in a writable segment of the file: as
    segments share no byte, each slot once. Of the file only the windows that have slots are read.
    """
    for segment in segments:
        begin, end = segment.address + 7 & ~7, min(segment.address + segment.file_size, _NO_ADDRESS) & ~7
        if not segment.is_writable or begin >= end:
            continue
        first, behind = np.searchsorted(slots, np.array([begin, end], np.uint64))
        while first < behind:
            window = begin + (int(slots[first]) - begin) // _WINDOW_BYTES * _WINDOW_BYTES
            length = min(_WINDOW_BYTES, end - window)
            next_first = int(np.searchsorted(slots, np.uint64(window + length)))
            inside = slots[first:next_first]
            inside = inside[(inside & np.uint64(7)) == 0]
            budget.take(length)
            at = segment.offset + window - segment.address
            words = np.frombuffer(read_part(fd, at, length, size, "data"), "<u8")
            yield inside, words[((inside - np.uint64(window)) >> np.uint64(3)).astype(np.intp)]
            first = next_first


def _own_symbols(
    fd: int,
    size: int,
    segments: tuple[Segment, ...],
    dynamic: Mapping[int, int],
    wanted: NDArray[np.uint32],
    budget: Budget,
) -> tuple[Addresses, NDArray[np.bool_]]:
    """(address of each symbol, whether the library defines it)."""
    count = int(wanted.max()) + 1
    if count > SYMBOLS_LIMIT or _DT_SYMTAB not in dynamic:
        raise ElfError(f"a relocation to symbol {count - 1}")
    length = count * SYMBOL_DTYPE.itemsize
    budget.take(length)
    table = read_part(fd, file_offset(segments, dynamic[_DT_SYMTAB]), length, size, "the symbol table")
    rows = np.frombuffer(table, SYMBOL_DTYPE)[wanted]
    return rows["value"], rows["section"] != 0
