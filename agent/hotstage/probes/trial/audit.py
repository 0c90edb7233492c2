# SPDX-License-Identifier: Apache-2.0
"""Does a driver hand out entry points that no probe meets? Its `cuGetProcAddress` replayed and compared with
what it exports. It calls nothing it obtains.

The runtime, Triton and PyTorch fill their tables this way, by (name, version, flags).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.probes.discovery.elf import ElfFile
from hotstage.probes.trial.process import Subject
from hotstage.probes.trial.report import AddressAudit

LOOK_UPS = ("cuGetProcAddress_v2", "cuGetProcAddress")
VERSIONS = (3020, 4000, 6050, 7000, 9000, 10000, 11000, 11040, 12000, 12050, 13000)
"""Every answer changes at one of these: the versions that introduced a `_v2`, `_v3` or per-thread variant."""
NAMES_SHOWN_LIMIT = 32
_ABI = re.compile(r"_v\d+$")


@dataclass(frozen=True, slots=True)
class Handed:
    """One answer: `symbol` is the first exported name at the address, None for an internal one."""

    name: str
    version: int
    flags: int
    symbol: str | None
    is_probed: bool


def asked_names() -> list[str]:
    """The catalogued calls as `cuGetProcAddress` knows them: without the suffix of their ABI, sorted."""
    return sorted({_ABI.sub("", call.name) for call in CUDA_DRIVER.calls})


def asked_versions(driver_version: int | None) -> list[int]:
    """`VERSIONS` up to the driver's own, and its own."""
    if not driver_version:
        return list(VERSIONS)
    return sorted({each for each in VERSIONS if each < driver_version} | {driver_version})


def replay(subject: Subject, elf: ElfFile, driver_version: int | None) -> list[Handed] | None:
    """Every answer to every catalogued name; None where the library has no such function.

    Raises TrialError.
    """
    look_up = next((name for name in LOOK_UPS if name in elf.functions), None)
    if look_up is None:
        return None
    names = asked_names()
    rows = subject.addresses(look_up, names, asked_versions(driver_version))
    exported: dict[int | None, str] = {}
    for symbol, function in elf.functions.items():
        exported.setdefault(function.offset, symbol)
    probed = {elf.functions[symbol].offset for symbol in CUDA_DRIVER.by_symbol() if symbol in elf.functions}
    handed = []
    for index, version, flags, address in rows:
        offset = _file_offset(elf, address)
        handed.append(Handed(names[index], version, flags, exported.get(offset), offset in probed))
    return handed


def summary(handed: Iterable[Handed], driver_version: int | None) -> AddressAudit:
    """The audit of these answers, for coverage."""
    answers = list(handed)
    newest = driver_version or VERSIONS[-1]
    internal = {f"{each.name} {each.version} flags {each.flags}" for each in answers if each.symbol is None}
    unprobed = {
        each.symbol for each in answers if each.symbol and not each.is_probed and each.version == newest
    }
    return AddressAudit(
        asked=2 * len(asked_names()) * len(asked_versions(driver_version)),
        answered=len(answers),
        internal=tuple(sorted(internal)[:NAMES_SHOWN_LIMIT]),
        unprobed=tuple(sorted(unprobed)[:NAMES_SHOWN_LIMIT]),
    )


def _file_offset(elf: ElfFile, address: int) -> int | None:
    for segment in elf.segments:
        if segment.address <= address < segment.address + segment.file_size:
            return address - segment.address + segment.offset
    return None
