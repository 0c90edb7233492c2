# SPDX-License-Identifier: Apache-2.0
"""Local functions by name: found where the section table has them; elsewhere they are just not found."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage.probes.discovery import elf_locals
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.elf_locals import local_functions
from hotstage.probes.discovery.elf_sections import Section, read_sections

SOURCE = Path(__file__).parents[3] / "bpf/target/torch_python.c"
NAMES = ("nvtxRangePushA", "nvtxRangePop")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    built = folder / "libtorch_python.so"
    twin = folder / "twin.c"
    twin.write_text(
        SOURCE.read_text().replace("int range_", "int twin_").replace("LOCAL int twin_", "LOCAL int ")
    )
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", built, SOURCE, twin], check=True)
    return built


@pytest.fixture
def opened(library: Path, tmp_path: Path) -> Iterator[int]:
    fd = os.open(library, os.O_RDONLY)
    yield fd
    os.close(fd)


def truth(library: Path) -> dict[str, set[int]]:
    """Name → addresses, by nm."""
    found: dict[str, set[int]] = {name: set() for name in NAMES}
    for line in subprocess.run(
        ["nm", library], check=True, capture_output=True, text=True
    ).stdout.splitlines():
        fields = line.split()
        if fields[-1] in found and fields[-2] == "t":
            found[fields[-1]].add(int(fields[0], 16))
    return found


def test_each_copy_of_a_local_function_is_found_under_a_name_of_its_own(library: Path, opened: int) -> None:
    elf = read_elf(opened)
    assert not set(NAMES) & set(elf.functions)
    found = local_functions(opened, elf, NAMES)
    assert set(found) == {*NAMES, *(f"{name}#2" for name in NAMES)}
    (code,) = (segment for segment in elf.segments if segment.is_executable)
    for name, addresses in truth(library).items():
        offsets = {found[name].offset, found[f"{name}#2"].offset}
        assert offsets == {address - code.address + code.offset for address in addresses}
        assert found[name].size > 0


def test_a_name_that_ends_like_it_is_another_one(opened: int) -> None:
    assert local_functions(opened, read_elf(opened), ["RangePushA", "nvtxRangePush"]) == {}


def changed(library: Path, folder: Path, at: int, value: bytes) -> int:
    data = bytearray(library.read_bytes())
    data[at : at + len(value)] = value
    path = folder / "changed.so"
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (40, struct.pack("<Q", 1 << 62)),
        (58, struct.pack("<H", 63)),
        (60, struct.pack("<H", 0)),
        (60, struct.pack("<H", 0xFFFF)),
    ],
)
def test_a_section_table_that_lies_has_nothing(library: Path, tmp_path: Path, at: int, value: bytes) -> None:
    fd = changed(library, tmp_path, at, value)
    try:
        assert local_functions(fd, read_elf(fd), NAMES) == {}
    finally:
        os.close(fd)


def test_a_stripped_file_has_none(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", stripped, library], check=True)
    fd = os.open(stripped, os.O_RDONLY)
    try:
        assert local_functions(fd, read_elf(fd), NAMES) == {}
    finally:
        os.close(fd)


def test_a_library_that_its_owner_cuts_short_meanwhile_is_no_end_of_the_agent(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.copy(library, tmp_path / "short.so")
    fd = os.open(path, os.O_RDONLY)
    elf = read_elf(fd)

    def cut(fd: int) -> list[Section]:
        found = read_sections(fd)
        os.truncate(path, 64)
        return found

    monkeypatch.setattr(elf_locals, "read_sections", cut)
    try:
        assert local_functions(fd, elf, NAMES) == {}
    finally:
        os.close(fd)


def test_a_name_is_found_where_two_pieces_meet(
    library: Path, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    elf = read_elf(opened)
    whole = local_functions(opened, elf, NAMES)
    monkeypatch.setattr(elf_locals, "_PIECE_BYTES", 24)
    assert local_functions(opened, elf, NAMES) == whole
