# SPDX-License-Identifier: Apache-2.0
"""USDT notes: sites, semaphores and operands as the compiler wrote them, and what a stranger may write."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage.probes.discovery import usdt
from hotstage.probes.discovery.elf import ElfError, read_elf
from hotstage.probes.discovery.elf_sections import Section, read_sections
from hotstage.probes.discovery.usdt import (
    Operand,
    UsdtError,
    UsdtSite,
    pack_operands,
    parse_operands,
    read_sites,
)

SOURCE = Path(__file__).parents[3] / "bpf/target/torch_allocator.c"
PROBES = ("pytorch:malloc", "pytorch:free")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("usdt") / "libc10_cuda.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", built, SOURCE], check=True)
    return built


@pytest.fixture
def opened(library: Path) -> Iterator[int]:
    fd = os.open(library, os.O_RDONLY)
    yield fd
    os.close(fd)


def symbols(library: Path) -> dict[str, int]:
    """Name → address, by nm."""
    lines = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout.splitlines()
    return {fields[-1]: int(fields[0], 16) for fields in map(str.split, lines) if len(fields) == 3}


def test_each_site_is_found_with_its_semaphore_and_operands(library: Path, opened: int) -> None:
    elf = read_elf(opened)
    sites = read_sites(opened, elf, PROBES)
    assert [site.probe for site in sites] == ["pytorch:malloc", "pytorch:malloc", "pytorch:free"]
    (data,) = (segment for segment in elf.segments if segment.is_writable)
    names = symbols(library)
    for site in sites:
        assert site.refusal is None
        semaphore = names[site.probe.removeprefix("pytorch:") + "_semaphore"]
        assert site.semaphore_offset == semaphore - data.address + data.offset
        assert os.pread(opened, 1, site.offset) == b"\x90" or elf.machine != "x86_64"
    sizes = [[(each.size, each.is_signed) for each in site.operands] for site in sites]
    assert sorted(size for size in sizes[:2]) == [
        [(8, True), (1, True), (8, is_signed), (8, True)] for is_signed in (False, True)
    ]
    assert sizes[2] == [(8, True)]
    in_memory = [site.operands[2].displacement is not None for site in sites[:2]]
    assert sorted(in_memory) == [False, True]
    assert read_sites(opened, elf, ("pytorch:nothing",)) == ()


@pytest.mark.parametrize(
    ("machine", "text", "expected"),
    [
        ("x86_64", "-8@%rbp -1@%al", (Operand(8, True, 4), Operand(1, True, 10))),
        ("x86_64", "8@56(%rsp) 8@(%rax)", (Operand(8, False, 19, 56), Operand(8, False, 10, 0))),
        ("x86_64", "-8@-56(%rbp) 4@%r9d", (Operand(8, True, 4, -56), Operand(4, False, 8))),
        ("x86_64", "-4@$-7 1@%sil", (Operand(4, True, None, constant=-7), Operand(1, False, 13))),
        ("x86_64", "8@-8(%rax,%rbx,2) 8@%rdi", ("8@-8(%rax,%rbx,2)", Operand(8, False, 14))),
        ("x86_64", "8@foo(%rip)", ("8@foo(%rip)",)),
        ("x86_64", "8@8(%eax)", ("8@8(%eax)",)),
        ("x86_64", "8@010(%rax) 8@0x10(%rax)", ("8@010(%rax)", Operand(8, False, 10, 16))),
        ("x86_64", "8f@%xmm0 8@%rdi", ("8f@%xmm0 8@%rdi",)),
        ("x86_64", "%rdi 8@%rsi", ("%rdi 8@%rsi",)),
        ("x86_64", "", ()),
        ("aarch64", "-8@x0 1@w30", (Operand(8, True, 0), Operand(1, False, 30))),
        ("aarch64", "8@[sp, 16] 8@[x3]", (Operand(8, False, 31, 16), Operand(8, False, 3, 0))),
        ("aarch64", "8@5 8@x31 8@[x0, x1]", (Operand(8, False, None, constant=5), "8@x31", "8@[x0, x1]")),
    ],
)  # fmt: skip
def test_operands_are_read_as_the_assembler_writes_them(machine: str, text: str, expected: tuple) -> None:
    assert parse_operands(text, machine) == expected


def site(*operands: Operand | str, refusal: str | None = None) -> UsdtSite:
    return UsdtSite("p:n", 4096, 0, operands, refusal)


def test_two_operands_fit_above_the_id_of_a_cookie() -> None:
    packed = pack_operands(site(Operand(8, True, 4), "?", Operand(8, False, 19, -56)), (1, 3))
    assert packed == 4 | (19 | 1 << 5 | ((1 << 18) - 56) << 6) << 24
    assert packed < 1 << 48


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (site(), "has 0 arguments"),
        (site("8@foo(%rip)"), "unknown form"),
        (site(Operand(8, False, None, constant=5)), "no value of 8 bytes"),
        (site(Operand(4, False, 4)), "no value of 8 bytes"),
        (site(Operand(8, False, 4, 1 << 17)), "bytes away"),
        (site(Operand(8, False, 4), refusal="no nop"), "no nop"),
    ],
)
def test_what_a_program_could_not_read_is_refused(given: UsdtSite, said: str) -> None:
    with pytest.raises(UsdtError, match=said):
        pack_operands(given, (1,))


def test_a_stripped_file_keeps_its_notes_and_one_without_sections_has_none(
    library: Path, tmp_path: Path
) -> None:
    stripped, bare = tmp_path / "stripped.so", tmp_path / "bare.so"
    subprocess.run(["strip", "-o", stripped, library], check=True)
    shutil.copy(library, bare)
    with bare.open("r+b") as file:
        file.seek(58)
        file.write(struct.pack("<HH", 64, 0))
    for path, count in ((stripped, 3), (bare, 0)):
        fd = os.open(path, os.O_RDONLY)
        assert len(read_sites(fd, read_elf(fd), PROBES)) == count
        os.close(fd)


@pytest.mark.parametrize("moved", ["location", "semaphore"])
def test_a_site_that_points_elsewhere_is_refused(moved: str, library: Path, tmp_path: Path) -> None:
    """Into a header, beyond the file, into code without a nop; a semaphore in code or at an odd place."""
    content = bytearray(library.read_bytes())
    note = content.index(b"stapsdt\0") + 8
    at = note if moved == "location" else note + 16
    (before,) = struct.unpack_from("<Q", content, at)
    code = struct.unpack_from("<Q", content, note)[0]
    for value in (1, 1 << 63, before + 1, code + 1 if moved == "location" else code):
        struct.pack_into("<Q", content, at, value)
        path = tmp_path / f"{value}.so"
        path.write_bytes(content)
        fd = os.open(path, os.O_RDONLY)
        first, *others = read_sites(fd, read_elf(fd), PROBES)
        os.close(fd)
        assert first.refusal
        assert not any(each.refusal for each in others)


def test_no_damage_makes_it_fail_or_point_outside_the_file(library: Path, tmp_path: Path) -> None:
    content = library.read_bytes()
    sections = struct.unpack_from("<Q", content, 40)[0]
    notes = content.index(b"stapsdt\0") - 12
    chance = random.Random(7)
    path = tmp_path / "damaged.so"
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(chance.randrange(1, 6)):
            start = chance.choice((notes, notes, sections, 32))
            at = min(start + chance.randrange(400), len(damaged) - 1)
            damaged[at] = chance.choice((0, 0xFF, 0x7F, chance.randrange(256)))
        path.write_bytes(damaged)
        fd = os.open(path, os.O_RDONLY)
        try:
            for found in read_sites(fd, read_elf(fd), PROBES):
                assert found.refusal or found.offset < len(content) > found.semaphore_offset
        except ElfError:
            pass
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

    monkeypatch.setattr(usdt, "read_sections", cut)
    try:
        assert read_sites(fd, elf, PROBES) == ()
    finally:
        os.close(fd)
