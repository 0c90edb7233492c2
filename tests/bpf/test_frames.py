# SPDX-License-Identifier: Apache-2.0
"""Before 6.13 a program and all that it calls or hands over have 512 bytes of stack together. This machine's
kernel need not ask for it, so it is reckoned here from the objects' instructions, as the old verifiers do.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hotstage.probes.loader.libbpf import OBJECTS

STACK_BYTES = 512
ROUNDED = 32
SHT_SYMTAB, SHT_REL = 2, 9
STT_FUNC, STT_SECTION = 2, 3
CALL, LOAD_64, MOVE, ADD = 0x85, 0x18, 0xBF, 0x07
FRAME = 10  # r10
OF_AN_OLD_KERNEL = ("hotstage_pairs", "hotstage_nobtf", "sched", "xid", "canary", "driver_counts")


@dataclass
class Function:
    name: str
    frame: int = 0
    calls: set[tuple[int, int]] = field(default_factory=set)


def _sections(elf: bytes) -> list[tuple[int, int, int, int, int]]:
    """(type, offset, size, link, info) each."""
    (at,) = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<2H", elf, 0x3A)
    rows = [struct.unpack_from("<2I4Q2I", elf, at + size * number) for number in range(count)]
    return [(row[1], row[4], row[5], row[6], row[7]) for row in rows]


def functions_of(path: Path) -> dict[tuple[int, int], Function]:
    """(section, offset) → each function: its frame's bytes and what it calls or hands over."""
    elf = path.read_bytes()
    sections = _sections(elf)
    (symbols,) = [each for each in sections if each[0] == SHT_SYMTAB]
    names = sections[symbols[3]][1]
    table = [struct.unpack_from("<I2BH2Q", elf, symbols[1] + at) for at in range(0, symbols[2], 24)]
    targets = {
        (info, place): (kind & 15, section, value)
        for type_, offset, size, _, info in sections
        if type_ == SHT_REL
        for place, what in struct.iter_unpack("<2Q", elf[offset : offset + size])
        for _, kind, _, section, value, _ in [table[what >> 32]]
    }
    found: dict[tuple[int, int], Function] = {}
    for name, kind, _, section, start, size in table:
        if kind & 15 == STT_FUNC:
            text = elf[names + name : elf.index(b"\0", names + name)].decode()
            found[section, start] = _read(
                elf, sections[section][1], section, start, size, targets, Function(text)
            )
    return found


def _read(elf, base, section, start, size, targets, function):  # type: ignore[no-untyped-def]
    copies: set[int] = set()  # registers that hold the frame's address
    for at in range(start, start + size, 8):
        code, registers, offset, immediate = struct.unpack_from("<2Bhi", elf, base + at)
        to, source = registers & 15, registers >> 4
        if code == MOVE and source == FRAME:
            copies.add(to)
        elif code == ADD and to in copies:
            function.frame = max(function.frame, -immediate)
            copies.discard(to)
        elif code & 7 in (1, 2, 3) and (source if code & 7 == 1 else to) == FRAME:
            function.frame = max(function.frame, -offset)
        target = targets.get((section, at))
        if code == CALL and source == 1 and target is None:
            function.calls.add((section, at + 8 + immediate * 8))
        elif target is not None and code in (CALL, LOAD_64):
            kind, other, value = target
            behind = (immediate + 1) * 8 if code == CALL else immediate
            function.calls.add((other, value + behind if kind == STT_SECTION else value))
    return function


def deepest(functions: dict[tuple[int, int], Function], at: tuple[int, int]) -> tuple[int, list[str]]:
    """Bytes of the dearest chain that begins there, and who is in it."""
    function = functions[at]
    own = max(1, -(-function.frame // ROUNDED)) * ROUNDED
    below = [deepest(functions, other) for other in function.calls if other in functions]
    bytes_, names = max(below, default=(0, []))
    return own + bytes_, [f"{function.name} {own}", *names]


@pytest.mark.parametrize("name", OF_AN_OLD_KERNEL)
def test_every_chain_of_calls_fits_the_stack_of_an_old_kernel(name: str) -> None:
    functions = functions_of(OBJECTS / f"{name}.bpf.o")
    assert any(function.frame for function in functions.values())
    if name.startswith("hotstage"):
        called = {functions[at].name for each in functions.values() for at in each.calls if at in functions}
        assert {"leave_timed", "unmap_within"} <= called, "workers, or what they hand over, are not seen"
    for at in functions:
        size, chain = deepest(functions, at)
        assert size <= STACK_BYTES, f"{size} bytes: {' > '.join(chain)}"
