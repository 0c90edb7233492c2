# SPDX-License-Identifier: Apache-2.0
"""A small, bounded ELF64 reader over an open descriptor: exported functions, file offsets, build-id.

It reads what the dynamic loader reads (_PT_DYNAMIC), never the section table, which a stripped file lacks
and a forged one fakes. Every count and size is bounded, nothing is followed in circles; a file that breaks
a rule raises `ElfError` with the reason. It decodes no instruction.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

PROGRAM_HEADERS_LIMIT = 256
SEGMENTS_LIMIT = 64
"""Loaded ones; of 2,000 real files none has more than 9, and none has two that share a byte."""
DYNAMIC_ENTRIES_LIMIT = 4096
SYMBOLS_LIMIT = 1 << 17
"""The largest library of interest (a cuDNN part) exports about 2,400 symbols, libcuda 663."""
STRINGS_BYTES_LIMIT = 16 << 20
NAME_BYTES_LIMIT = 1024
NOTES_BYTES_LIMIT = 64 << 10
"""Of all notes together."""

_MACHINES = {62: "x86_64", 183: "aarch64"}
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_GNU_HASH = 4, 5, 6, 10, 11, 0x6FFFFEF5
_FUNCTION, _NOTE_BUILD_ID = 2, 3
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


class ElfError(ValueError):
    """The file is not an ELF library that can be trusted with a probe; the message says which rule it
    broke.
    """


@dataclass(frozen=True, slots=True)
class Segment:
    """One PT_LOAD: file bytes [offset, offset + file_size) are mapped at `address`."""

    offset: int
    address: int
    file_size: int
    is_executable: bool
    is_writable: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """An exported function: `offset` is where its first byte lies in the file, `size` may be 0
    (hand-written code).
    """

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ElfFile:
    """What one library exports. `build_id` is lower-case hex, empty when the file has none."""

    machine: str
    build_id: str
    functions: Mapping[str, Symbol]
    segments: tuple[Segment, ...]

    def is_code(self, offset: int) -> bool:
        """True when the file offset lies in an executable segment."""
        return any(s.is_executable and s.offset <= offset < s.offset + s.file_size for s in self.segments)


def read_layout(fd: int) -> ElfFile:
    """As `read_elf`, without what it exports: little work, whatever its size; of programs, too."""
    size = os.fstat(fd).st_size
    machine, headers = program_headers(fd, size)
    segments = _segments(headers, size)
    return ElfFile(machine, _build_id(fd, size, [h for h in headers if h[0] == _PT_NOTE]), {}, segments)


def read_elf(fd: int) -> ElfFile:
    """Parse the library behind `fd`. Raises ElfError for anything that is not one, OSError for a failed
    read.
    """
    size = os.fstat(fd).st_size
    machine, headers = program_headers(fd, size)
    segments = _segments(headers, size)
    dynamic = dynamic_entries(fd, size, headers)
    build_id = _build_id(fd, size, [h for h in headers if h[0] == _PT_NOTE])
    return ElfFile(machine, build_id, _functions(fd, size, segments, dynamic), segments)


def read_part(fd: int, offset: int, length: int, size: int, what: str) -> bytes:
    """Bytes of a file of that size, all of them. Raises ElfError that names `what`."""
    if offset < 0 or length < 0 or offset + length > size:
        raise ElfError(f"{what} lies outside the file")
    data = os.pread(fd, length, offset)
    if len(data) != length:
        raise ElfError(f"{what} is cut short")
    return data


def program_headers(fd: int, size: int) -> tuple[str, list[tuple[int, ...]]]:
    """The machine, and rows of type, flags, offset, address, physical address, sizes in file and memory,
    alignment.
    """
    head = read_part(fd, 0, 64, size, "the ELF header")
    if head[:4] != b"\x7fELF":
        raise ElfError("not an ELF file")
    if head[4:6] != b"\x02\x01":
        raise ElfError("not a 64-bit little-endian ELF file")
    kind, machine = struct.unpack_from("<HH", head, 16)
    if kind not in (2, 3):
        raise ElfError(f"ELF type {kind} is neither a library nor a program")
    if machine not in _MACHINES:
        raise ElfError(f"machine {machine} is not supported")
    start, entry_size, count = struct.unpack_from("<Q14xHH", head, 32)
    if entry_size != 56 or not 0 < count <= PROGRAM_HEADERS_LIMIT:
        raise ElfError(f"{count} program headers of {entry_size} bytes")
    table = read_part(fd, start, count * 56, size, "the program header table")
    return _MACHINES[machine], list(struct.iter_unpack("<IIQQQQQQ", table))


def _segments(headers: list[tuple[int, ...]], size: int) -> tuple[Segment, ...]:
    """In the file's order. Two that share bytes, in the file or in memory, make one table cost many times its
    size, and an address lie in two places: no linker writes such.
    """
    segments = tuple(_segment(header, size) for header in headers if header[0] == _PT_LOAD)
    if len(segments) > SEGMENTS_LIMIT:
        raise ElfError(f"{len(segments)} loaded segments")
    for spans in ([(s.offset, s.file_size) for s in segments], [(s.address, s.file_size) for s in segments]):
        ordered = sorted(span for span in spans if span[1])
        if any(begin + length > following for (begin, length), (following, _) in pairwise(ordered)):
            raise ElfError("loaded segments overlap")
    return segments


def _segment(header: tuple[int, ...], size: int) -> Segment:
    _, flags, offset, address, _, file_size, _, _ = header
    if offset + file_size > size:
        raise ElfError("a loaded segment ends behind the file")
    return Segment(offset, address, file_size, bool(flags & 1), bool(flags & 2))


def dynamic_entries(fd: int, size: int, headers: list[tuple[int, ...]]) -> dict[int, int]:
    """What the dynamic loader is told: tag → its first value."""
    found = [header for header in headers if header[0] == _PT_DYNAMIC]
    if len(found) != 1:
        raise ElfError(f"{len(found)} dynamic sections")
    length = min(found[0][5] // 16, DYNAMIC_ENTRIES_LIMIT) * 16
    entries: dict[int, int] = {}
    for tag, value in struct.iter_unpack(
        "<qQ", read_part(fd, found[0][2], length, size, "the dynamic section")
    ):
        if tag == 0:
            break
        entries.setdefault(tag, value)
    return entries


def _build_id(fd: int, size: int, headers: list[tuple[int, ...]]) -> str:
    room = NOTES_BYTES_LIMIT
    for header in headers:
        notes = read_part(fd, header[2], min(header[5], room), size, "a note")
        room -= len(notes)
        at = 0
        while at + 12 <= len(notes):
            name_size, data_size, kind = struct.unpack_from("<III", notes, at)
            data = at + 12 + (name_size + 3 & ~3)
            if kind == _NOTE_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0" and 0 < data_size <= 64:
                return notes[data : data + data_size].hex()
            at = data + (data_size + 3 & ~3)
    return ""


def _functions(
    fd: int, size: int, segments: tuple[Segment, ...], dynamic: dict[int, int]
) -> dict[str, Symbol]:
    if _DT_SYMTAB not in dynamic or _DT_STRTAB not in dynamic:
        raise ElfError("it exports no symbols")
    if dynamic.get(_DT_SYMENT, 24) != 24:
        raise ElfError(f"symbols of {dynamic[_DT_SYMENT]} bytes")
    strings_size = dynamic.get(_DT_STRSZ, 0)
    if strings_size > STRINGS_BYTES_LIMIT:
        raise ElfError(f"{strings_size} bytes of symbol names")
    count = _symbol_count(fd, size, segments, dynamic)
    table = read_part(fd, file_offset(segments, dynamic[_DT_SYMTAB]), count * 24, size, "the symbol table")
    strings = read_part(
        fd, file_offset(segments, dynamic[_DT_STRTAB]), strings_size, size, "the symbol names"
    )
    rows = np.frombuffer(table, _SYMBOL)
    rows = rows[((rows["info"] & 15) == _FUNCTION) & (rows["section"] != 0)]
    found: dict[str, Symbol] = {}
    room = STRINGS_BYTES_LIMIT  # names that begin inside of others are a table that grows as it is read
    for segment, inside in _by_code_segment(segments, rows):
        columns = (inside[column].tolist() for column in ("name", "value", "size"))
        for name_at, value, length in zip(*columns, strict=True):
            if name := _name(strings, name_at):
                room -= len(name)
                if room < 0:
                    raise ElfError("symbol names that overlap")
                found.setdefault(name, Symbol(name, value - segment.address + segment.offset, length))
    return found


def _symbol_count(fd: int, size: int, segments: tuple[Segment, ...], dynamic: dict[int, int]) -> int:
    """How long the symbol table is: the file says so only through a hash table."""
    if _DT_HASH in dynamic:
        table = file_offset(segments, dynamic[_DT_HASH])
        count = int.from_bytes(read_part(fd, table + 4, 4, size, "the hash table"), "little")
    elif _DT_GNU_HASH in dynamic:
        count = _gnu_hash_count(fd, size, file_offset(segments, dynamic[_DT_GNU_HASH]))
    else:
        raise ElfError("it has no symbol hash table")
    if count > SYMBOLS_LIMIT:
        raise ElfError(f"{count} symbols")
    return count


def _gnu_hash_count(fd: int, size: int, at: int) -> int:
    header: tuple[int, int, int] = struct.unpack("<III", read_part(fd, at, 12, size, "the hash table"))
    buckets_count, first, bloom_words = header
    if buckets_count > SYMBOLS_LIMIT or bloom_words > SYMBOLS_LIMIT:
        raise ElfError(f"a hash table of {buckets_count} buckets")
    buckets_at = at + 16 + bloom_words * 8
    buckets: NDArray[np.uint32] = np.frombuffer(
        read_part(fd, buckets_at, buckets_count * 4, size, "the hash table"), "<u4"
    )
    last = int(buckets.max(initial=0))
    if last < first:
        return first
    if last - first > SYMBOLS_LIMIT:
        raise ElfError(f"{last} symbols")
    chains_at = buckets_at + buckets_count * 4
    tail_at = (
        chains_at + (last - first) * 4
    )  # the chain of the highest bucket ends the table: bit 0 marks its end
    tail_bytes = min(SYMBOLS_LIMIT * 4, (size - tail_at) & ~3)
    tail: NDArray[np.uint32] = np.frombuffer(
        read_part(fd, tail_at, tail_bytes, size, "the hash chains"), "<u4"
    )
    ends = np.flatnonzero(tail & 1)
    if not len(ends):
        raise ElfError("a hash chain without an end")
    return last + int(ends[0]) + 1


def file_offset(segments: tuple[Segment, ...], address: int) -> int:
    """Where in the file stands what is loaded at the address. Raises ElfError."""
    for segment in segments:
        if segment.address <= address < segment.address + segment.file_size:
            return address - segment.address + segment.offset
    raise ElfError(f"address {address:#x} is not in the file")


def _by_code_segment(
    segments: tuple[Segment, ...], rows: NDArray[np.void]
) -> Iterator[tuple[Segment, NDArray[np.void]]]:
    """Rows whose value lies in code, with the first segment that has it: whole columns at a time, since a
    forged file has 256 segments for each of 131,072 symbols.
    """
    for segment in segments:
        end = min(segment.address + segment.file_size, (1 << 64) - 1)
        if segment.is_executable and segment.address < end:
            inside = (rows["value"] >= np.uint64(segment.address)) & (rows["value"] < np.uint64(end))
            yield segment, rows[inside]
            rows = rows[~inside]


def _name(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at, at + NAME_BYTES_LIMIT)
    return strings[at:end].decode("ascii", "replace") if 0 <= at < end else ""
