# SPDX-License-Identifier: Apache-2.0
"""Which addresses of its own the dynamic loader writes into a library's data: tables of functions, read from
the file, with nothing loaded and nothing run.

By its relocations: relative ones (plain or packed, DT_RELR), and those to symbols that it defines itself.
Everything is bounded and done by whole columns; a library of 36,000 relocations takes some milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.discovery.elf import (
    SYMBOLS_LIMIT,
    ElfError,
    Segment,
    dynamic_entries,
    file_offset,
    program_headers,
    read_layout,
    read_part,
)
from hotstage.probes.discovery.elf_locals import SYMBOL_DTYPE

RELOCATIONS_LIMIT = 1 << 20
PACKED_WORDS_LIMIT = 1 << 16
DATA_BYTES_LIMIT = 64 << 20
"""Of the segments that packed relocations change in place."""

_DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_RELRSZ, _DT_RELR = 6, 7, 8, 35, 36
# R_X86_64_RELATIVE and _64, R_AARCH64_RELATIVE and _ABS64 (elf.h)
_RELATIVE, _ABSOLUTE = {"x86_64": 8, "aarch64": 1027}, {"x86_64": 1, "aarch64": 257}
_RELA = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<u8")])
_PACKED_BITS = 63

Addresses = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Pointers:
    """`targets[i]` is written to `slots[i]`; both as linked, `slots` sorted."""

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
    """Raises ElfError for more relocations than any real library has, or such as do not lie in the file."""
    size = os.fstat(fd).st_size
    layout = read_layout(fd)
    dynamic = dynamic_entries(fd, size, program_headers(fd, size)[1])
    rows = _relocations(fd, size, layout.segments, dynamic)
    relative = rows[rows["kind"] == _RELATIVE[layout.machine]]
    packed = _packed_slots(fd, size, layout.segments, dynamic)
    symbolic = rows[rows["kind"] == _ABSOLUTE[layout.machine]]
    slots, targets = [relative["offset"]], [relative["addend"]]
    if len(packed):
        places, values = _in_place(fd, layout.segments, packed)
        slots.append(places)
        targets.append(values)
    if len(symbolic):
        values, is_own = _own_symbols(fd, size, layout.segments, dynamic, symbolic["symbol"])
        slots.append(symbolic["offset"][is_own])
        targets.append(values[is_own] + symbolic["addend"][is_own])
    all_slots, all_targets = np.concatenate(slots), np.concatenate(targets)
    order = np.argsort(all_slots, kind="stable")
    return Pointers(all_slots[order], all_targets[order])


def _relocations(
    fd: int, size: int, segments: tuple[Segment, ...], dynamic: Mapping[int, int]
) -> NDArray[np.void]:
    count = dynamic.get(_DT_RELASZ, 0) // _RELA.itemsize
    if _DT_RELA not in dynamic or not count:
        return np.zeros(0, _RELA)
    if count > RELOCATIONS_LIMIT:
        raise ElfError(f"{count} relocations")
    start = file_offset(segments, dynamic[_DT_RELA])
    return np.frombuffer(read_part(fd, start, count * _RELA.itemsize, size, "a relocation"), _RELA)


def _packed_slots(fd: int, size: int, segments: tuple[Segment, ...], dynamic: Mapping[int, int]) -> Addresses:
    """An even word is a slot; an odd one says by its other bits which of the 63 slots behind are, too."""
    count = dynamic.get(_DT_RELRSZ, 0) // 8
    if _DT_RELR not in dynamic or not count:
        return np.zeros(0, np.uint64)
    if count > PACKED_WORDS_LIMIT:
        raise ElfError(f"{count} packed relocations")
    data = read_part(fd, file_offset(segments, dynamic[_DT_RELR]), count * 8, size, "a packed relocation")
    words: Addresses = np.frombuffer(data, "<u8")
    is_slot = (words & np.uint64(1)) == 0
    if not is_slot[0]:
        raise ElfError("packed relocations that begin nowhere")
    rows = np.arange(count)
    last = np.maximum.accumulate(np.where(is_slot, rows, 0))
    # (bitmaps, 63): the slots that each of them could name
    base = words[last] + 8 + (rows - last - 1).astype(np.uint64) * np.uint64(_PACKED_BITS * 8)
    of_bits = np.unpackbits(words[~is_slot].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    named = base[~is_slot][:, None] + np.arange(_PACKED_BITS, dtype=np.uint64) * np.uint64(8)
    return np.concatenate([words[is_slot], named[of_bits[:, 1:].astype(bool)]])


def _in_place(fd: int, segments: tuple[Segment, ...], slots: Addresses) -> tuple[Addresses, Addresses]:
    """(slots, what the file has there), only those that lie in a writable segment of the file."""
    places, values = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for segment in segments:
        if not segment.is_writable or not 8 <= segment.file_size <= DATA_BYTES_LIMIT:
            continue
        end = segment.address + segment.file_size - 8
        inside = slots[(slots >= np.uint64(segment.address)) & (slots <= np.uint64(end))]
        data = np.frombuffer(os.pread(fd, segment.file_size, segment.offset), np.uint8)
        at = (inside - np.uint64(segment.address)).astype(np.int64)
        inside, at = inside[at + 8 <= len(data)], at[at + 8 <= len(data)]
        places.append(inside)
        values.append(data[at[:, None] + np.arange(8)].reshape(-1).view("<u8"))
    return np.concatenate(places), np.concatenate(values)


def _own_symbols(
    fd: int, size: int, segments: tuple[Segment, ...], dynamic: Mapping[int, int], wanted: NDArray[np.uint32]
) -> tuple[Addresses, NDArray[np.bool_]]:
    """(address of each symbol, whether the library defines it)."""
    count = int(wanted.max()) + 1
    if count > SYMBOLS_LIMIT or _DT_SYMTAB not in dynamic:
        raise ElfError(f"a relocation to symbol {count - 1}")
    length = count * SYMBOL_DTYPE.itemsize
    table = read_part(fd, file_offset(segments, dynamic[_DT_SYMTAB]), length, size, "the symbol table")
    rows = np.frombuffer(table, SYMBOL_DTYPE)[wanted]
    return rows["value"], rows["section"] != 0
