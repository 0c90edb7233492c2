# SPDX-License-Identifier: Apache-2.0
"""Catalogue × library → what to probe in it, what is missing, and whether somebody's probe is there already.

Everything that reads the file or the process is done in one go, by a thread that may hang. It never attaches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.placement import CODE_BYTES, hazard_of, place
from hotstage.probes.catalogue.spec import CallSpec, LibrarySpec, Tier
from hotstage.probes.catalogue.variants import new_variants
from hotstage.probes.discovery.elf import Symbol
from hotstage.probes.discovery.libraries import ParsedLibrary, close_library, open_library
from hotstage.probes.discovery.processes import Mapping
from hotstage.probes.discovery.usdt import UsdtError, pack_operands
from hotstage.probes.loader.base import AttachPoint
from hotstage.probes.trial.report import TrialReport

VARIANTS_LIMIT = 32
"""New variants of one library that are named one by one."""
_CHECKED_POINTS = 4
Trial = Callable[
    [ParsedLibrary, tuple[AttachPoint, ...], int], tuple[tuple[AttachPoint, ...], TrialReport | None]
]
"""Tries the planned points before anybody gets them, for a pid: the points that are left and a report."""
_PATCHED = (0xCC, 0xE8)
"""First byte of a probed instruction: the breakpoint, or the call that replaces a five-byte nop."""


@dataclass(frozen=True, slots=True)
class MissedSymbol:
    """A symbol that is not probed, and why: a catalogued one, or a new variant of one.

    `is_expected` where it is as it should be: the library is older than the symbol, or a setting leaves it
    out.
    """

    library: str
    symbol: str
    reason: str
    is_expected: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A library, opened and planned. `is_patched`: its code carries probes in the process it was found in."""

    parsed: ParsedLibrary
    file: tuple[tuple[int, int], int]
    points: tuple[AttachPoint, ...]
    missed: tuple[MissedSymbol, ...]
    is_patched: bool
    trial: TrialReport | None = None

    @property
    def own_points(self) -> tuple[AttachPoint, ...]:
        """Those that are attached whatever else is."""
        return tuple(point for point in self.points if not point.is_fallback)


def inspect_library(
    proc_root: Path,
    pid: int,
    mapping: Mapping,
    *,
    fast_placement: bool = True,
    essential_only: bool = False,
    tier: Tier = Tier.T1,
    try_out: Trial | None = None,
) -> Candidate:
    """Open what `pid` has mapped and plan its probes; the caller owns the descriptor. Raises AttachError.

    `fast_placement` off: every probe stands at its symbol. Calls above `tier` are left out. `try_out` is
    asked where no probe is there yet.
    """
    parsed = open_library(proc_root, pid, mapping)
    try:
        points, missed = plan(
            parsed, LIBRARIES, fast_placement=fast_placement, essential_only=essential_only, tier=tier
        )
        own = [point for point in points if not point.is_fallback]
        is_patched = bool(own) and is_probed(proc_root, pid, mapping, parsed.library.fd, own)
        trial = None
        if try_out is not None and points and not is_patched:
            points, trial = try_out(parsed, points, pid)
    except BaseException:
        close_library(parsed)
        raise
    # A forged library exports 131,072 functions, and is held as long as anybody has it.
    kept = replace(parsed, elf=replace(parsed.elf, functions={}))
    return Candidate(kept, (mapping.device, mapping.inode), points, missed, is_patched, trial)


def discard_candidate(candidate: Candidate) -> None:
    close_library(candidate.parsed)


def plan(
    parsed: ParsedLibrary,
    libraries: Sequence[LibrarySpec],
    *,
    fast_placement: bool = True,
    essential_only: bool = False,
    tier: Tier = Tier.T1,
) -> tuple[tuple[AttachPoint, ...], tuple[MissedSymbol, ...]]:
    """Points of every catalogued symbol the library exports, one per address; and what is not probed.

    Names that share an address (aliases) are probed once: a duplicate would count every call twice.
    `essential_only` is for rung P, where every probe costs 0.1 s to detach.
    """
    library, elf = parsed.library, parsed.elf
    spec = next((spec for spec in libraries if spec.kind == library.kind), None)
    if spec is None:
        return (), ()
    if parsed.api_table is not None and parsed.api_table.refusal is not None:
        return (), (MissedSymbol(library.path, "*", f"its table of functions: {parsed.api_table.refusal}"),)
    points: dict[int, AttachPoint] = {}
    missed: list[MissedSymbol] = []
    for call in spec.calls:
        if call.operands:
            _plan_sites(parsed, call, points, missed)
            continue
        present = [symbol for symbol in call.symbols if symbol in elf.functions]
        if call.name in parsed.refused:
            missed.append(MissedSymbol(library.path, call.name, parsed.refused[call.name]))
            continue
        if left_out := _left_out(spec, call, bool(present), essential_only, tier):
            missed.append(MissedSymbol(library.path, call.name, *left_out))
            continue
        for symbol in present:
            function = elf.functions[symbol]
            code = os.pread(library.fd, min(CODE_BYTES, function.size or CODE_BYTES), function.offset)
            point = _point(spec, call, function, code, fast_placement)
            if not elf.is_code(point.offset):
                missed.append(MissedSymbol(library.path, symbol, "its code lies outside the executable part"))
            elif hazard := hazard_of(code):
                missed.append(MissedSymbol(library.path, symbol, hazard))
            else:
                points.setdefault(point.symbol_offset, point)
    missed += _variants(library.path, new_variants(spec, elf.functions))
    missed += _newer(parsed)
    return tuple(points.values()), tuple(missed)


def _variants(path: str, found: dict[str, str]) -> list[MissedSymbol]:
    """One for each, and one for all that are beyond the limit: a forged library has any number."""
    missed = [
        MissedSymbol(path, symbol, f"a new variant of {like}: the catalogue has no row of it")
        for symbol, like in islice(found.items(), VARIANTS_LIMIT)
    ]
    if len(found) > VARIANTS_LIMIT:
        missed.append(MissedSymbol(path, "*", f"{len(found) - VARIANTS_LIMIT} more new variants"))
    return missed


def _newer(parsed: ParsedLibrary) -> list[MissedSymbol]:
    """What a table of functions has behind those that the catalogue's list of versions names."""
    table = parsed.api_table
    if table is None or table.entries <= table.known:
        return []
    reason = (
        f"{table.entries - table.known} functions at most, newer than the catalogue or no part of the table"
    )
    slots = f"OrtApi[{table.known}..{table.entries - 1}]"
    return [MissedSymbol(parsed.library.path, slots, reason, is_expected=True)]


def _left_out(
    spec: LibrarySpec, call: CallSpec, is_present: bool, essential_only: bool, tier: Tier
) -> tuple[str, bool] | None:
    """Why a call is not probed, and whether that is as it should be; None when it is."""
    if not is_present:
        return spec.absent, bool(call.since or call.until)
    if call.tier > tier:
        return f"of tier {call.tier.name}, above probes.tier", True
    if essential_only and not call.is_essential:
        return "left out on rung P: slow to detach", True
    return None


def _plan_sites(
    parsed: ParsedLibrary, call: CallSpec, points: dict[int, AttachPoint], missed: list[MissedSymbol]
) -> None:
    """Every site of a USDT probe is a point of its own: the compiler has put its operands elsewhere."""
    sites = [site for site in parsed.sites if site.probe == call.name]
    if not sites:
        missed.append(MissedSymbol(parsed.library.path, call.name, "it has no such USDT probe"))
    for site in sites:
        try:
            operands = pack_operands(site, call.operands)
        except UsdtError as error:
            missed.append(MissedSymbol(parsed.library.path, call.name, str(error)))
            continue
        points[site.offset] = AttachPoint(
            call_id=call.call_id,
            symbol=call.name,
            offset=site.offset,
            kind=call.kind,
            is_emulated=True,
            symbol_offset=site.offset,
            semaphore_offset=site.semaphore_offset,
            operands=operands,
        )


def _point(spec: LibrarySpec, call: CallSpec, function: Symbol, code: bytes, fast: bool) -> AttachPoint:
    placement = place(code, allow_rule=fast and spec.has_placement_rule)
    return AttachPoint(
        call_id=call.call_id,
        symbol=function.name,
        offset=function.offset + placement.skip,
        kind=call.kind,
        is_emulated=placement.is_emulated,
        symbol_offset=function.offset,
        layer=spec.layer,
        is_fallback=call.is_fallback,
    )


def is_probed(proc_root: Path, pid: int, mapping: Mapping, fd: int, points: Sequence[AttachPoint]) -> bool:
    """True when the process sees probes at these points already (ours by another path, or somebody else's).

    Compares the process's memory with the file: an instruction that is a call by itself proves nothing.
    """
    length = mapping.end - mapping.start
    inside = [p for p in points if 0 <= p.offset - mapping.file_offset < length][:_CHECKED_POINTS]
    try:
        memory = os.open(proc_root / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return any(_differs(memory, mapping, fd, point.offset) for point in inside)
    except OSError:
        return False
    finally:
        os.close(memory)


def _differs(memory: int, mapping: Mapping, fd: int, offset: int) -> bool:
    seen = os.pread(memory, 1, mapping.start + offset - mapping.file_offset)
    return bool(seen) and seen[0] in _PATCHED and seen != os.pread(fd, 1, offset)
