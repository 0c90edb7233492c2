# SPDX-License-Identifier: Apache-2.0
"""The installed libcuda as a file: what it exports, and how the catalogue's calls begin.

Only the first bytes of exported functions are read, as the attacher does; nothing is decoded.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_checks.tallies import CALL_OF
from hotstage.probes.catalogue.placement import CODE_BYTES, place
from hotstage.probes.discovery.elf import ElfFile, read_elf

SHOWN_BYTES = 16
HEAD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Libcuda:
    """One file, parsed; `heads` are the first `CODE_BYTES` of every exported function by name."""

    path: Path
    elf: ElfFile
    heads: Mapping[str, bytes]

    @classmethod
    def read(cls, path: Path) -> Libcuda:
        """Raises OSError, ElfError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            elf = read_elf(fd)
            heads = {
                name: os.pread(fd, min(CODE_BYTES, each.size or CODE_BYTES), each.offset)
                for name, each in elf.functions.items()
            }
        finally:
            os.close(fd)
        return cls(path, elf, heads)

    def names_at(self, address: int) -> list[str]:
        """Exported names at an address as the file's headers have it; empty for an internal one."""
        offset = next(
            (
                address - segment.address + segment.offset
                for segment in self.elf.segments
                if segment.address <= address < segment.address + segment.file_size
            ),
            None,
        )
        return [] if offset is None else self._names_by_offset().get(offset, [])

    def placements(self) -> list[dict[str, Any]]:
        """One row per catalogued symbol: absent, or where it is probed and what its first bytes are."""
        found = []
        for symbol, call in CALL_OF.items():
            head = self.heads.get(symbol)
            row: dict[str, Any] = {"symbol": symbol, "call": call, "exported": head is not None}
            if head is not None:
                placed = place(head)
                row |= {
                    "skip": placed.skip,
                    "emulated": placed.is_emulated,
                    "pattern": pattern(head),
                    "first_bytes": head[:SHOWN_BYTES].hex(),
                }
            found.append(row)
        return found

    def patterns(self) -> dict[str, int]:
        """Every exported function by what the attacher would make of its first bytes."""
        return dict(Counter(pattern(head) for head in self.heads.values()).most_common())

    def starts(self) -> dict[str, int]:
        """How the exported functions begin: the first four bytes, most frequent first, twelve at most."""
        return dict(Counter(head[:HEAD_BYTES].hex() for head in self.heads.values()).most_common(12))

    def _names_by_offset(self) -> dict[int, list[str]]:
        names: dict[int, list[str]] = {}
        for name, each in self.elf.functions.items():
            names.setdefault(each.offset, []).append(name)
        return names


def pattern(head: bytes) -> str:
    """`emulated at the symbol`, `proven pattern, +N`, or `unknown: single-stepped`."""
    placed = place(head)
    if not placed.is_emulated:
        return "unknown: single-stepped"
    return f"proven pattern, +{placed.skip}" if placed.skip else "emulated at the symbol"
