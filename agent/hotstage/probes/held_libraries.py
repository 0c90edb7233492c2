# SPDX-License-Identifier: Apache-2.0
"""The rows of the books of `attachments.py`: a library that is held, its use by a process, a process; and
what coverage shows of them. No lock: the books have one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hotstage.probes.coverage import LibraryCoverage, LibraryState
from hotstage.probes.discovery.follower import FileKey
from hotstage.probes.discovery.libraries import BEYOND_REACH
from hotstage.probes.discovery.processes import ProcessId
from hotstage.probes.discovery.targets import Candidate, MissedSymbol
from hotstage.probes.loader.base import Attachment, AttachPoint
from hotstage.probes.trial.report import PlacementVerdict


@dataclass(slots=True, eq=False)
class HeldLibrary:
    """One library file. `attachment` is None unless it is attached itself; an alias names who is in
    `alias_of`.
    """

    candidate: Candidate
    state: LibraryState
    attached_ns: int
    attachment: Attachment | None = None
    alias_of: HeldLibrary | None = None
    reason: str | None = None
    files: set[FileKey] = field(default_factory=set)
    users: set[ProcessId] = field(default_factory=set)
    idle_since_ns: int = 0
    owner: int | None = None
    """The user whose process brought it; None where that is unknown."""

    @property
    def counted_through(self) -> HeldLibrary:
        return self.alias_of or self


@dataclass(slots=True)
class Use:
    """A library in a process: its epoch."""

    held: HeldLibrary | None
    file: FileKey
    since_ns: int | None
    from_start: bool
    refused: LibraryCoverage | None = None


@dataclass(slots=True)
class Process:
    name: str
    uses: dict[FileKey, Use] = field(default_factory=dict)


def nothing_to_probe(candidate: Candidate) -> tuple[LibraryState, str]:
    """As what a library without any point is held, and why."""
    library, table = candidate.parsed.library, candidate.parsed.api_table
    if library.kind in BEYOND_REACH:
        return LibraryState.IGNORED, BEYOND_REACH[library.kind]
    if table is not None and table.refusal is not None:
        return LibraryState.FAILED, f"its table of functions: {table.refusal}"
    trial = candidate.trial
    if trial is not None and trial.placement is PlacementVerdict.REFUTED:
        return LibraryState.FAILED, f"a probe was tried in one process first: {trial.reason}"
    known = bool(candidate.missed)
    return LibraryState.IGNORED, (
        "exports none of the catalogue's functions" if known else "not in the catalogue"
    )


def points_of(attachment: Attachment | None) -> list[AttachPoint]:
    return [point for link in attachment.links for point in link.points] if attachment else []


def refused_by(held: HeldLibrary) -> list[MissedSymbol]:
    path = held.candidate.parsed.library.path
    refused = held.attachment.refused if held.attachment else ()
    return [MissedSymbol(path, point.point.symbol, point.reason) for point in refused]


def left_out(candidate: Candidate, state: LibraryState, reason: str) -> LibraryCoverage:
    """A library that is known and not attached, and held by nobody."""
    library = candidate.parsed.library
    return LibraryCoverage(library.kind, library.path, library.build_id, 0, 0, state, None, False, reason)


def coverage_of(use: Use) -> LibraryCoverage:
    if use.held is None:
        assert use.refused is not None
        return use.refused
    held, library = use.held, use.held.candidate.parsed.library
    # Where links are those of single processes, the library is off and some of its uses are not.
    is_off = held.counted_through.state is LibraryState.OFF
    is_counted = is_off and use.since_ns is not None
    points = [] if is_off and not is_counted else points_of(held.counted_through.attachment)
    return LibraryCoverage(
        kind=library.kind,
        path=library.path,
        build_id=library.build_id,
        attached=len(points),
        emulated=sum(point.is_emulated for point in points),
        state=LibraryState.ATTACHED if is_counted else LibraryState.OFF if is_off else held.state,
        since_ns=use.since_ns,
        from_start=use.from_start,
        trial=held.counted_through.candidate.trial,
        api_table=held.counted_through.candidate.parsed.api_table,
        reason=None if is_counted else held.counted_through.reason if is_off else held.reason,
    )
