# SPDX-License-Identifier: Apache-2.0
"""A table of functions as compilers and linkers write it is found where the library itself hands it out; what
a stranger may write instead is refused with a reason.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.onnxruntime import ONNX_RUNTIME, TABLE_SIZES, table_size
from hotstage.probes.discovery import elf_pointers
from hotstage.probes.discovery.api_table import ApiTable, read_api_table
from hotstage.probes.discovery.code_references import references
from hotstage.probes.discovery.elf import ElfError, Symbol, dynamic_entries, program_headers, read_elf
from hotstage.probes.discovery.elf_pointers import Pointers, read_pointers
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.loader.base import OpenLibrary

SOURCE = Path(__file__).parents[3] / "bpf/target/onnxruntime.c"
Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("api_table")

    def make(*flags: str) -> Path:
        built = folder / f"{abs(hash(flags))}.so"
        if not built.exists():
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", *flags, "-o", built, SOURCE], check=True)
        return built

    return make


@pytest.fixture
def parse() -> Iterator[Callable[[Path], ParsedLibrary]]:
    fds: list[int] = []

    def make(path: Path) -> ParsedLibrary:
        fd = os.open(path, os.O_RDONLY)
        fds.append(fd)
        elf = read_elf(fd)
        table, functions, refused = read_api_table(fd, elf, ONNX_RUNTIME.calls)
        library = OpenLibrary(fd, str(path), 1, 2, path.stat().st_size, elf.build_id, ONNX_RUNTIME.kind)
        return ParsedLibrary(library, replace(elf, functions=functions), False, (), table, refused)

    yield make
    for fd in fds:
        os.close(fd)


def read(path: Path) -> tuple[ApiTable, dict[str, Symbol], dict[str, str]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_api_table(fd, read_elf(fd), ONNX_RUNTIME.calls)
    finally:
        os.close(fd)


def truth(path: Path) -> dict[str, int]:
    """Row → where its function lies in the file, as the loaded library itself says it."""
    library = ctypes.CDLL(str(path))
    library.OrtGetApiBase.restype = ctypes.POINTER(ctypes.c_void_p)
    get_api = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32)(
        library.OrtGetApiBase()[0] or 0
    )
    table = get_api(24)
    (mapped,) = [
        line.split()
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(path)) and "r-xp" in line
    ]
    shift = int(mapped[0].split("-")[0], 16) - int(mapped[2], 16)
    return {
        call.name: (table[call.slot] or 0) - shift for call in ONNX_RUNTIME.calls if call.slot is not None
    }


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("-O0",),
        ("-Os", "-fcf-protection=none"),
        ("-O3", "-fcf-protection=full", "-Wl,--strip-all"),
        ("-Wl,-z,pack-relative-relocs",),
        ("-DLOCAL=",),  # the table by symbols that are exported
    ],
    ids=" ".join,
)
def test_each_row_lies_where_the_library_itself_says(build: Build, flags: tuple[str, ...]) -> None:
    path = build(*flags)
    table, rows, refused = read(path)
    assert (table.version, table.known, table.refusal, refused) == ("1.24.0", 412, None, {})
    assert table.entries >= 412
    assert {name: symbol.offset for name, symbol in rows.items()} == truth(path)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("-DRUN_SLOT=0",), "has 9 functions where its version has at least 412"),
        (("-DRUN_SLOT=(function)failure",), "has 9 functions where"),  # data, and no code
        (("-DRUN_SLOT=(function)((char *)ort_run+1)",), "has 9 functions where"),  # inside an instruction
        (("-DRUN_SLOT=(function)getpid",), "has 9 functions where"),  # another library's
        (("-DTWO_TABLES",), "2 tables of functions may be meant"),
        (('-DVERSION="2.0.0"',), "does not say a version"),
        (('-DVERSION="a version"',), "does not say a version"),
        (('-DVERSION="1.0.0"',), "older than the first table"),
        (("-fno-asynchronous-unwind-tables",), "does not say where its functions begin"),
        (("-DOrtGetApiBase=OtherName",), "does not export OrtGetApiBase"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_forged_table_is_refused_with_the_reason(
    build: Build, parse: Callable[[Path], ParsedLibrary], flags: tuple[str, ...], reason: str
) -> None:
    parsed = parse(build(*flags))
    assert parsed.api_table is not None and parsed.api_table.refusal is not None
    assert reason in parsed.api_table.refusal
    points, (missed,) = plan(parsed, LIBRARIES)
    assert points == () and reason in missed.reason and not missed.is_expected


def test_a_function_of_two_slots_is_not_probed(build: Build, parse: Callable[[Path], ParsedLibrary]) -> None:
    points, missed = plan(parse(build("-DTWIN")), LIBRARIES)
    assert "OrtRun" not in {point.symbol for point in points} and len(points) == len(ONNX_RUNTIME.calls) - 1
    assert [(lack.symbol, lack.is_expected) for lack in missed] == [("OrtRun", False)]
    assert "several slots" in missed[0].reason


def test_what_a_version_lacks_or_has_beyond_is_told(
    build: Build, parse: Callable[[Path], ParsedLibrary]
) -> None:
    points, missed = plan(parse(build('-DVERSION="1.15.1"')), LIBRARIES)
    lacks = {lack.symbol: lack for lack in missed}
    assert lacks["OrtRunAsync"].reason == "not in its table of functions" and lacks["OrtRunAsync"].is_expected
    assert {"OrtRun", "OrtRunWithBinding"} <= {point.symbol for point in points}
    assert lacks["OrtApi[255..411]"].reason.startswith("157 functions at most") and all(
        lack.is_expected for lack in missed
    )


def test_a_copied_build_id_takes_nothing_from_the_library_that_it_was_copied_from(build: Build) -> None:
    """Whoever forges a file can give it any build-id: what was learned of one file is of no other."""
    first, second = build("-Wl,--build-id=0xabcd"), build("-Wl,--build-id=0xabcd", "-DTWIN")
    ids = []
    for path in (first, second):
        fd = os.open(path, os.O_RDONLY)
        ids.append(read_elf(fd).build_id)
        os.close(fd)
    assert ids == ["abcd", "abcd"]
    assert "OrtRun" in read(first)[1] and "OrtRun" not in read(second)[1]


def change(path: Path, folder: Path, edit: Callable[[bytearray, dict[int, int]], None]) -> Path:
    """A copy in which `edit` has changed bytes; it gets the places of the dynamic entries by their tags."""
    data = bytearray(path.read_bytes())
    (dynamic,) = [
        header
        for header in struct.iter_unpack(
            "<IIQQQQQQ", data[64 : 64 + 56 * int.from_bytes(data[56:58], "little")]
        )
        if header[0] == 2  # PT_DYNAMIC
    ]
    places = {
        int.from_bytes(data[at : at + 8], "little"): at + 8
        for at in range(dynamic[2] + dynamic[5] - 16, dynamic[2] - 1, -16)
    }
    edit(data, places)
    changed = folder / "changed.so"
    changed.write_bytes(data)
    return changed


@pytest.mark.parametrize(
    ("flags", "tag", "value", "reason"),
    [
        ((), 8, 1 << 40, "relocations"),
        ((), 8, 24 * (1 << 19), "outside the file"),
        ((), 7, 1 << 62, "is not in the file"),
        (("-Wl,-z,pack-relative-relocs",), 35, 1 << 40, "packed relocations"),
        (("-Wl,-z,pack-relative-relocs",), 36, 1, "begin nowhere"),
    ],
)
def test_a_giant_or_cut_table_of_relocations_is_refused(
    build: Build, tmp_path: Path, flags: tuple[str, ...], tag: int, value: int, reason: str
) -> None:
    def edit(data: bytearray, places: dict[int, int]) -> None:
        struct.pack_into("<Q", data, places[tag], value)

    began = time.monotonic()
    table, rows, _ = read(change(build(*flags), tmp_path, edit))
    assert time.monotonic() - began < 2
    assert rows == {} and table.refusal is not None and reason in table.refusal


def test_random_damage_never_crashes_and_never_leads_outside_the_code(build: Build, tmp_path: Path) -> None:
    good, generator = build(), random.Random(5)

    def damage(data: bytearray, _: dict[int, int]) -> None:
        for _ in range(generator.choice((1, 20, 400))):
            at = generator.randrange(64, len(data))
            data[at] = generator.randrange(256)

    for _ in range(60):
        path = change(good, tmp_path, damage)
        fd = os.open(path, os.O_RDONLY)
        try:
            elf = read_elf(fd)
            rows = read_api_table(fd, elf, ONNX_RUNTIME.calls)[1]
            assert all(elf.is_code(symbol.offset) for symbol in rows.values())
        except ElfError:
            pass
        finally:
            os.close(fd)


def test_the_words_of_packed_relocations_name_each_slot(build: Build) -> None:
    plain, packed = build(), build("-Wl,-z,pack-relative-relocs")
    targets = []
    for path in (plain, packed):
        fd = os.open(path, os.O_RDONLY)
        dynamic = dynamic_entries(fd, path.stat().st_size, program_headers(fd, path.stat().st_size)[1])
        assert (36 in dynamic) == (path is packed)
        pointers = read_pointers(fd)
        os.close(fd)
        assert np.all(np.diff(pointers.slots.astype(np.int64)) > 0)
        targets.append(len(pointers.targets))
    assert targets[0] == targets[1] >= 414


def test_a_run_ends_where_something_else_stands() -> None:
    pointers = Pointers(np.array([8, 16, 24, 40], np.uint64), np.array([1, 2, 3, 4], np.uint64))
    assert pointers.run(8, 10) == [1, 2, 3] and pointers.run(8, 2) == [1, 2]
    assert pointers.run(40, 10) == [4] and pointers.at(32) is None
    assert pointers.run(-8, 10) == [] and pointers.run(1 << 63, 1) == []
    assert elf_pointers.RELOCATIONS_LIMIT < 1 << 24


def test_references_on_arm64_are_pages_and_what_is_added() -> None:
    adrp = 0x90000000 | (0x12345 & 3) << 29 | (0x12345 >> 2) << 5 | 3  # adrp x3, +0x12345 pages
    back = 0x90000000 | 3 << 29 | 0x7FFFF << 5 | 4  # adrp x4, -1 page
    code = struct.pack(
        "<6I", 0xD503245F, adrp, back, 0x91000000 | 0xABC << 10 | 3 << 5, 0x910023A4, 0x91000480
    )
    assert list(references(code, 0x40010, "aarch64")) == [0x40000 + 0x12345000 + 0xABC, 0x3F000 + 1]


def test_the_sizes_only_grow_and_each_row_is_in_the_table_since_its_version() -> None:
    assert sorted(TABLE_SIZES.values()) == list(TABLE_SIZES.values())
    assert (table_size(21), table_size(22), table_size(99)) == (285, 318, 412)
    for call in ONNX_RUNTIME.calls:
        assert call.slot is not None
        since = int(call.since.split(".")[1]) if call.since else 1
        assert call.slot < table_size(since)
        assert since == 1 or call.slot >= table_size(since - 1)
