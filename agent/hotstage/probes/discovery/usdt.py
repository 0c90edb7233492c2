# SPDX-License-Identifier: Apache-2.0
"""USDT probes of a library: where each site is, what turns it on, and where its arguments are at that moment.

They stand in notes (owner `stapsdt`, type 3), as SystemTap's <sys/sdt.h> writes them. Each site of a probe
has operands of its own, in assembler syntax. Everything here is a stranger's: bounded, and a site that breaks
a rule says why it must not be probed. Addresses are as the linker gave them; a file that was moved afterwards
(prelink) has no nops there, and is refused by that.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from hotstage.probes.discovery.elf import ElfFile, Segment
from hotstage.probes.discovery.elf_sections import NOTES, read_sections

NOTES_BYTES_LIMIT = 4 << 20
SITES_LIMIT = 4096
TEXT_BYTES_LIMIT = 512
"""Of a provider, a name or a site's arguments."""
OPERANDS_LIMIT = 12

_OWNER, _TYPE = b"stapsdt\0", 3
_ADDRESSES = struct.Struct("<QQQ")

_NOPS = {"x86_64": b"\x90", "aarch64": b"\x1f\x20\x03\xd5"}

# As in struct pt_regs (arch/x86/include/uapi/asm/ptrace.h), in words.
_X86_PLACES = {
    **{f"r{number}": 15 - number for number in range(12, 16)},
    **{f"r{number}": 17 - number for number in range(8, 12)},
    **{"rbp": 4, "rbx": 5, "rax": 10, "rcx": 11, "rdx": 12, "rsi": 13, "rdi": 14, "rip": 16, "rsp": 19},
}
_X86_PARTS = {
    **{part: f"r{part[-2]}x" for letter in "abcd" for part in (f"e{letter}x", f"{letter}x")},
    **{f"{letter}l": f"r{letter}x" for letter in "abcd"},
    **{part: f"r{name}" for name in ("bp", "si", "di", "sp") for part in (f"e{name}", name, f"{name}l")},
    **{f"r{number}{suffix}": f"r{number}" for number in range(8, 16) for suffix in "dwb"},
}
_ARGUMENT = re.compile(r"(-?)([1248])@(\S(?:[^@]*\S)?)(?=\s+-?\d+f?@|\s*$)")
_X86_REGISTER = re.compile(r"%([a-z0-9]+)")
_X86_MEMORY = re.compile(r"(-?(?:0|[1-9]\d*|0x[0-9a-f]+))?\(%([a-z0-9]+)\)")
_ARM_REGISTER = re.compile(r"[xw](\d+)|sp")
_ARM_MEMORY = re.compile(r"\[([x]\d+|sp)(?:, *#?(-?\d+))?\]")
_CONSTANT = re.compile(r"[$#]?(-?\d+)")


@dataclass(frozen=True, slots=True)
class Operand:
    """Where an argument is. `place` is its register's word among the saved ones, None for a constant;
    `displacement` is None unless it stands in memory at register + displacement.
    """

    size: int
    is_signed: bool
    place: int | None
    displacement: int | None = None
    constant: int | None = None


@dataclass(frozen=True, slots=True)
class UsdtSite:
    """One place of one probe; offsets are in the file. `semaphore_offset` 0: it is always on.

    An operand that could not be understood is its text. `refusal` says why the site must not be probed.
    """

    probe: str
    """`provider:name`"""
    offset: int
    semaphore_offset: int
    operands: tuple[Operand | str, ...]
    refusal: str | None = None


class UsdtError(ValueError):
    """A site must not be probed, or not with the arguments that are wanted; the message says why."""


def read_sites(fd: int, elf: ElfFile, probes: Collection[str]) -> tuple[UsdtSite, ...]:
    """Every site of the probes (`provider:name`), in the file's order; () where there are no notes."""
    found: list[UsdtSite] = []
    room = NOTES_BYTES_LIMIT
    for section in read_sections(fd):
        if section.kind != NOTES or not 0 < section.size <= room:
            continue
        room -= section.size
        for description in _descriptions(os.pread(fd, section.size, section.offset)):
            site = _site(fd, elf, description, probes)
            if site is not None:
                found.append(site)
            if len(found) == SITES_LIMIT:
                return tuple(found)
    return tuple(found)


def parse_operands(text: str, machine: str) -> tuple[Operand | str, ...]:
    """`-8@%rdi -1@%al -8@56(%rsp)` → operands; what is not understood stays text."""
    if _ARGUMENT.sub("", text).strip():
        return (text,)  # a float or a form of its own: positions would be wrong
    found = [match.groups() for match in _ARGUMENT.finditer(text)][:OPERANDS_LIMIT]
    understand = _x86_place if machine == "x86_64" else _arm_place
    operands: list[Operand | str] = []
    for sign, size, place in found:
        constant = _CONSTANT.fullmatch(place)
        if constant:
            operands.append(Operand(int(size), bool(sign), None, constant=int(constant[1])))
            continue
        where = understand(place)
        operands.append(f"{sign}{size}@{place}" if where is None else Operand(int(size), bool(sign), *where))
    return tuple(operands)


def pack_operands(site: UsdtSite, positions: Sequence[int]) -> int:
    """At most two 8-byte operands (positions from 1) as bpf/torch.bpf.c reads them out of an attach cookie.

    24 bits each: the register's word, whether it is an address, and a signed displacement of 18 bits.
    Raises UsdtError.
    """
    if site.refusal:
        raise UsdtError(site.refusal)
    packed = 0
    for index, position in enumerate(positions):
        if position > len(site.operands):
            raise UsdtError(f"{site.probe} has {len(site.operands)} arguments, the {position}. is wanted")
        operand = site.operands[position - 1]
        if isinstance(operand, str):
            raise UsdtError(f"{site.probe}: argument {position} is of an unknown form: {operand}")
        if operand.place is None or operand.size != 8:
            raise UsdtError(
                f"{site.probe}: argument {position} is no value of 8 bytes in a register or memory"
            )
        displacement = operand.displacement or 0
        if not -(1 << 17) <= displacement < 1 << 17:
            raise UsdtError(f"{site.probe}: argument {position} stands {displacement} bytes away")
        in_memory = operand.displacement is not None
        field = operand.place | in_memory << 5 | (displacement & (1 << 18) - 1) << 6
        packed |= field << 24 * index
    return packed


def _descriptions(notes: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        data = at + 12 + (name_size + 3 & ~3)
        if data + size > len(notes):
            return
        if kind == _TYPE and notes[at + 12 : at + 12 + name_size] == _OWNER:
            yield notes[data : data + size]
        at = data + (size + 3 & ~3)


def _site(fd: int, elf: ElfFile, description: bytes, probes: Collection[str]) -> UsdtSite | None:
    texts = description[_ADDRESSES.size :].split(b"\0")
    if len(description) < _ADDRESSES.size or len(texts) < 3 or max(map(len, texts)) > TEXT_BYTES_LIMIT:
        return None
    provider, name, arguments = (text.decode("ascii", "replace") for text in texts[:3])
    probe = f"{provider}:{name}"
    if probe not in probes:
        return None
    location, _base, semaphore = _ADDRESSES.unpack_from(description)
    operands = parse_operands(arguments, elf.machine)
    code = _segment_of(elf, location)
    offset = location - code.address + code.offset if code else 0
    refusal = _refusal(fd, elf, code, offset)
    counter = _segment_of(elf, semaphore) if semaphore else None
    if semaphore and (counter is None or not counter.is_writable or semaphore % 2):
        refusal = "its semaphore lies outside the data of the file"
    semaphore_offset = semaphore - counter.address + counter.offset if counter else 0
    return UsdtSite(probe, offset, semaphore_offset, operands, refusal)


def _refusal(fd: int, elf: ElfFile, code: Segment | None, offset: int) -> str | None:
    """A five-byte nop inside a function is refused like anything else that is not the plain nop: Linux 6.18
    turns one into a call that overwrites the red zone.
    """
    if code is None or not code.is_executable:
        return "its code lies outside the executable part"
    nop = _NOPS[elf.machine]
    if os.pread(fd, len(nop), offset) != nop:
        return "there is no one-byte nop at its place"
    return None


def _segment_of(elf: ElfFile, address: int) -> Segment | None:
    for segment in elf.segments:
        if segment.address <= address < segment.address + segment.file_size:
            return segment
    return None


def _x86_place(text: str) -> tuple[int, int | None] | None:
    """(word, displacement or None)."""
    register, memory = _X86_REGISTER.fullmatch(text), _X86_MEMORY.fullmatch(text)
    name = register[1] if register else memory[2] if memory else ""
    place = _X86_PLACES.get(_X86_PARTS.get(name, name))
    if place is None or (memory and name not in _X86_PLACES):
        return None
    return place, int(memory[1] or "0", 0) if memory else None


def _arm_place(text: str) -> tuple[int, int | None] | None:
    register, memory = _ARM_REGISTER.fullmatch(text), _ARM_MEMORY.fullmatch(text)
    name = text if register else memory[1] if memory else ""
    if not name:
        return None
    place = 31 if name == "sp" else int(name[1:])
    if place > 31 or (place == 31 and name != "sp"):
        return None
    return place, int(memory[2] or "0") if memory else None
