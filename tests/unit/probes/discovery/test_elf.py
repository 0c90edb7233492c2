# SPDX-License-Identifier: Apache-2.0
"""The ELF reader believes nothing: every broken file is refused with a reason, at once."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotstage.probes.discovery.elf import ElfError, ElfFile, read_elf

sys.path.insert(0, str(Path(__file__).parent))
from elf_files import CODE_OFFSET, Layout, make_elf

NAMES = ("cuLaunchKernel", "cuMemAlloc_v2", "cuStreamSynchronize")


def read(data: bytes) -> ElfFile:
    fd = os.memfd_create("library")
    try:
        os.write(fd, data)
        return read_elf(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("gnu_hash", [False, True])
def test_exported_functions_have_the_file_offset_of_their_first_byte(gnu_hash: bool) -> None:
    elf = read(bytes(make_elf(NAMES, gnu_hash=gnu_hash)[0]))
    assert {name: symbol.offset for name, symbol in elf.functions.items()} == {
        "cuLaunchKernel": CODE_OFFSET,
        "cuMemAlloc_v2": CODE_OFFSET + 16,
        "cuStreamSynchronize": CODE_OFFSET + 32,
    }
    assert elf.build_id == "000102030405060708090a0b0c0d0e0f10111213"
    assert elf.machine == "x86_64"
    assert elf.is_code(CODE_OFFSET)
    assert not elf.is_code(CODE_OFFSET - 1)
    assert not elf.is_code(CODE_OFFSET + 48)


def test_a_library_without_build_id_has_an_empty_one() -> None:
    data, layout = make_elf(NAMES)
    data[layout.note : layout.note + 12] = struct.pack("<III", 4, 20, 1)
    assert read(bytes(data)).build_id == ""


def test_a_symbol_outside_the_code_is_not_offered() -> None:
    data, layout = make_elf(NAMES)
    struct.pack_into("<Q", data, layout.symbols + 24 + 8, 0x10)
    assert set(read(bytes(data)).functions) == {"cuMemAlloc_v2", "cuStreamSynchronize"}


def _set(offset_of: Callable[[Layout], int], form: str, value: int) -> Callable[[bytearray, Layout], None]:
    return lambda data, layout: struct.pack_into(form, data, offset_of(layout), value)


HOSTILE: tuple[tuple[str, Callable[[bytearray, Layout], None], str], ...] = (
    ("no ELF at all", _set(lambda _: 0, "<I", 0), "not an ELF file"),
    ("32 bits", _set(lambda _: 4, "<B", 1), "not a 64-bit"),
    ("a core file", _set(lambda _: 16, "<H", 4), "neither a library nor a program"),
    ("another machine", _set(lambda _: 18, "<H", 8), "machine 8 is not supported"),
    ("65535 program headers", _set(lambda _: 56, "<H", 65535), "65535 program headers"),
    ("program headers of 1 byte", _set(lambda _: 54, "<H", 1), "program headers of 1 bytes"),
    ("program headers beyond the end", _set(lambda _: 32, "<Q", 1 << 63), "lies outside the file"),
    ("a segment beyond the end", _set(lambda _: 64 + 56 + 32, "<Q", 1 << 62), "ends behind the file"),
    ("a symbol table nowhere", _set(lambda at: at.dynamic + 24, "<Q", 1 << 40), "is not in the file"),
    ("names of 1 GiB", _set(lambda at: at.dynamic + 56, "<Q", 1 << 30), "bytes of symbol names"),
    ("names beyond the end", _set(lambda at: at.dynamic + 56, "<Q", 1 << 20), "lies outside the file"),
    ("symbols of 1 byte", _set(lambda at: at.dynamic + 72, "<Q", 1), "symbols of 1 bytes"),
    ("4 billion symbols", _set(lambda at: at.hash + 4, "<I", 0xFFFFFFFF), "4294967295 symbols"),
    (
        "a symbol table longer than the file",
        _set(lambda at: at.hash + 4, "<I", 100_000),
        "lies outside the file",
    ),
    ("no hash table", _set(lambda at: at.dynamic, "<Q", 99), "no symbol hash table"),
    ("no dynamic section", _set(lambda _: 64 + 112, "<I", 99), "0 dynamic sections"),
)


@pytest.mark.parametrize(("change", "reason"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_file_is_refused_with_a_reason(
    change: Callable[[bytearray, Layout], None], reason: str
) -> None:
    data, layout = make_elf(NAMES)
    change(data, layout)
    with pytest.raises(ElfError, match=reason):
        read(bytes(data))


def test_gnu_hash_chains_without_an_end_are_refused() -> None:
    data, layout = make_elf(NAMES, gnu_hash=True)
    data[layout.hash + 28 :] = bytes(len(data) - layout.hash - 28)
    with pytest.raises(ElfError, match=r"chain without an end|not in the file|no symbols|dynamic"):
        read(bytes(data))


def test_gnu_hash_with_a_billion_buckets_is_refused() -> None:
    data, layout = make_elf(NAMES, gnu_hash=True)
    struct.pack_into("<I", data, layout.hash, 1 << 30)
    with pytest.raises(ElfError, match="1073741824 buckets"):
        read(bytes(data))


def test_every_truncation_is_refused_or_read_never_a_crash() -> None:
    data = bytes(make_elf(NAMES)[0])
    for length in range(0, len(data), 7):
        with pytest.raises(ElfError):
            read(data[:length])


@given(st.data())
def test_random_damage_never_crashes_or_hangs(choice: st.DataObject) -> None:
    data, _ = make_elf(NAMES, gnu_hash=choice.draw(st.booleans()))
    for _ in range(choice.draw(st.integers(1, 4))):
        at = choice.draw(st.integers(0, 0x500))
        struct.pack_into("<I", data, at, choice.draw(st.integers(0, 0xFFFFFFFF)))
    began = time.monotonic()
    with contextlib.suppress(ElfError):
        read(bytes(data))
    assert time.monotonic() - began < 1.0
