# SPDX-License-Identifier: Apache-2.0
"""A forged file whose tables share their bytes costs no more than a real one: it is refused, or read once."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hotstage.probes.discovery import elf_budget, elf_locals
from hotstage.probes.discovery.elf import ElfError, read_elf, read_layout
from hotstage.probes.discovery.elf_budget import Budget
from hotstage.probes.discovery.elf_locals import local_functions
from hotstage.probes.discovery.elf_pointers import RELOCATIONS_LIMIT, Pointers, read_pointers
from hotstage.probes.discovery.elf_symbols import functions_at

DATA = 0x4000000
DATA_BYTES = 0x2000000
DYNAMIC, STRINGS, SYMBOLS, HASH, PLAIN, PACKED = 0x8000, 0x9000, 0x9100, 0x9200, 0x10000, 0x3000000
Forge = Callable[..., int]


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    """Makes a sparse library with one function, `OrtGetApiBase`, at 0x1000; returns its descriptor."""
    opened: list[int] = []

    def make(
        *,
        plain: bytes = b"",
        packed: bytes = b"",
        data: tuple[tuple[int, int], ...] = ((DATA, DATA),),
        data_bytes: int = DATA_BYTES,
    ) -> int:
        entries = [(5, STRINGS), (10, 16), (6, SYMBOLS), (11, 24), (4, HASH), (7, PLAIN), (8, len(plain))]
        entries += [(36, PACKED), (35, len(packed)), (0, 0)]
        headers = [(1, 5, 0, 0, 0, DATA, DATA, 4096)]
        headers += [(1, 6, offset, at, at, data_bytes, data_bytes, 4096) for offset, at in data]
        headers += [(2, 6, DYNAMIC, DYNAMIC, DYNAMIC, 16 * len(entries), 16 * len(entries), 8)]
        ident = b"\x7fELF\2\1\1" + bytes(9)
        fields = (3, 62, 1, 0, 64, 0, 0, 64, 56, len(headers), 64, 0, 0)
        parts = {
            0: ident + struct.pack("<HHIQQQIHHHHHH", *fields),
            64: b"".join(struct.pack("<IIQQQQQQ", *header) for header in headers),
            DYNAMIC: b"".join(struct.pack("<qQ", *entry) for entry in entries),
            STRINGS: b"\0OrtGetApiBase\0",
            SYMBOLS: bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0x1000, 16),
            HASH: struct.pack("<IIII", 1, 2, 0, 0),
            PLAIN: plain,
            PACKED: packed,
        }
        fd = os.open(tmp_path / f"forged{len(opened)}.so", os.O_RDWR | os.O_CREAT)
        opened.append(fd)
        os.truncate(fd, DATA + DATA_BYTES)
        for at, part in parts.items():
            os.pwrite(fd, part, at)
        return fd

    yield make
    for fd in opened:
        os.close(fd)


def measured(fd: int) -> tuple[Pointers, int, float]:
    """And the most bytes that it held at a time, and its seconds of the processor."""
    tracemalloc.start()
    began = time.thread_time()
    try:
        pointers = read_pointers(fd)
        return pointers, tracemalloc.get_traced_memory()[1], time.thread_time() - began
    finally:
        tracemalloc.stop()


def relocations(slots: NDArray[np.uint64], targets: NDArray[np.uint64]) -> bytes:
    rows = np.zeros(len(slots), [("offset", "<u8"), ("kind", "<u8"), ("addend", "<u8")])
    rows["offset"], rows["kind"], rows["addend"] = slots, 8, targets
    return rows.tobytes()


@pytest.mark.parametrize(
    "data",
    [
        ((DATA, DATA), (DATA, DATA)),
        ((DATA, DATA), (DATA, DATA + DATA_BYTES)),
        ((DATA, DATA), (0x100, DATA + DATA_BYTES)),
        ((DATA, DATA - 1),),
    ],
    ids=["twice the same", "in the file", "with the code", "in memory"],
)
def test_segments_that_share_a_byte_are_refused_by_every_reader(
    forge: Forge, data: tuple[tuple[int, int], ...]
) -> None:
    fd = forge(data=data)
    for read in (read_elf, read_layout, read_pointers):
        with pytest.raises(ElfError, match="overlap"):
            read(fd)


def test_more_segments_than_any_real_library_has_are_refused(forge: Forge) -> None:
    with pytest.raises(ElfError, match="71 loaded segments"):
        read_layout(forge(data=tuple((DATA + 64 * i, DATA + 64 * i) for i in range(70)), data_bytes=64))


def test_packed_relocations_of_four_million_slots_are_refused(forge: Forge) -> None:
    with pytest.raises(ElfError, match="packed relocations of"):
        read_pointers(forge(packed=struct.pack("<65536Q", DATA + 0x1000, *[(1 << 64) - 1] * 65535)))


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_library_of_a_million_relocations_is_read_within_fifty_megabytes(
    forge: Forge, is_packed: bool
) -> None:
    bitmaps = RELOCATIONS_LIMIT // 63 - 1
    count = 1 + 63 * bitmaps if is_packed else RELOCATIONS_LIMIT
    slots = DATA + 8 * np.arange(count, dtype=np.uint64)
    if is_packed:
        fd = forge(packed=struct.pack(f"<{bitmaps + 1}Q", DATA, *[(1 << 64) - 1] * bitmaps))
        for at in range(0, 8 * count, 1 << 20):
            part = slots[at // 8 : (at + (1 << 20)) // 8]
            os.pwrite(fd, (part + np.uint64(1)).tobytes(), DATA + at)
    else:
        fd = forge(plain=relocations(slots[::-1], slots[::-1] + np.uint64(1)))
    pointers, most, seconds = measured(fd)
    assert np.array_equal(pointers.slots, slots)
    assert np.array_equal(pointers.targets, slots + np.uint64(1))
    assert most < 50 << 20 and seconds < elf_budget.PROCESSOR_SECONDS_LIMIT


def test_a_slot_that_is_written_twice_is_there_once_with_what_is_written_last(forge: Forge) -> None:
    slots = np.array([DATA + 16, DATA + 8, DATA + 16], np.uint64)
    fd = forge(
        plain=relocations(slots, np.array([1, 2, 3], np.uint64)),
        packed=struct.pack("<4Q", DATA + 8, DATA + 24, DATA + 24, DATA + 30),
    )
    os.pwrite(fd, struct.pack("<Q", 7), DATA + 24)
    pointers = read_pointers(fd)
    assert pointers.slots.tolist() == [DATA + 8, DATA + 16, DATA + 24]
    assert pointers.targets.tolist() == [2, 3, 7]


def with_tables(fd: int, count: int, rows: int) -> int:
    """Gives it a section table: `count` symbol tables over the same bytes, of functions around all code."""
    end = os.fstat(fd).st_size
    row = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, DATA)
    sections = [struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, STRINGS, 16, 0, 0, 1, 0)]
    sections += [struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, end + (1 << 20), rows * 24, 0, 0, 8, 24)] * count
    os.pwrite(fd, b"".join(sections), end)
    os.pwrite(fd, row * rows, end + (1 << 20))
    os.pwrite(fd, struct.pack("<Q", end), 40)
    os.pwrite(fd, struct.pack("<HH", 64, count + 1), 58)
    return fd


def test_of_four_thousand_symbol_tables_over_the_same_bytes_one_is_read(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = with_tables(forge(), 4095, 1 << 17)
    elf, taken = read_layout(fd), []
    monkeypatch.setattr(Budget, "take", lambda _, length: taken.append(length))
    assert functions_at(fd, elf, [0x1008])[0x1008].offset == 0x1008
    assert sum(taken) == 24 << 17


def test_symbols_that_take_too_much_work_end_by_their_own_budget(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elf_budget, "PROCESSOR_SECONDS_LIMIT", 0.1)
    fd = with_tables(forge(), 1, 1 << 18)
    began = time.thread_time()
    with pytest.raises(ElfError, match="more work"):
        functions_at(fd, read_layout(fd), range(0x1000, 0x3000))
    assert time.thread_time() - began < 1
    monkeypatch.setattr(elf_locals, "_READ_BYTES_LIMIT", 1 << 20)
    with pytest.raises(ElfError, match="more bytes"):
        local_functions(fd, read_layout(fd), ["OrtGetApiBase"])


def test_names_that_begin_inside_of_others_are_refused(tmp_path: Path) -> None:
    """131,072 names of 1,000 letters out of 2 MB are 128 MB."""
    count, symbols_at, strings_at = 1 << 17, 0x1000, 0x400000
    entries = [(5, strings_at), (10, 2 << 20), (6, symbols_at), (11, 24), (4, 0x400), (0, 0)]
    rows = np.zeros(count, elf_locals.SYMBOL_DTYPE)
    rows["name"], rows["info"], rows["section"], rows["value"] = np.arange(count) * 8, 0x12, 1, 0x500
    size = strings_at + (2 << 20)
    headers = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    headers += struct.pack("<IIQQQQQQ", 2, 6, 0x800, 0x800, 0, 96, 96, 8)
    path = tmp_path / "names.so"
    with path.open("wb") as file:
        file.write(
            b"\x7fELF\2\1\1"
            + bytes(9)
            + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
        )
        file.write(headers)
        for at, part in (
            (0x400, struct.pack("<II", 1, count)),
            (0x800, b"".join(struct.pack("<qQ", *entry) for entry in entries)),
            (symbols_at, rows.tobytes()),
            (strings_at, (b"n" * 1000 + b"\0").ljust(1001, b"\0") * ((2 << 20) // 1001)),
        ):
            file.seek(at)
            file.write(part)
        file.truncate(size)
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(ElfError, match="names that overlap"):
            read_elf(fd)
    finally:
        os.close(fd)
