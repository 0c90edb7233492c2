# SPDX-License-Identifier: Apache-2.0
"""The books of what is attached: epochs open and close, twins are attached once, failures stay with their
target.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hotstage.errors import AttachError
from hotstage.probes.attachments import IDLE_LIBRARIES_LIMIT, Attachments
from hotstage.probes.coverage import LibraryCoverage, LibraryState
from hotstage.probes.departures import Departures
from hotstage.probes.discovery.elf import ElfFile
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.processes import Mapping, ProcessId, ProcessView
from hotstage.probes.discovery.targets import Candidate, MissedSymbol
from hotstage.probes.loader.base import (
    Attachment,
    AttachPoint,
    Link,
    OpenLibrary,
    PointKind,
    RefusedPoint,
)

LINGER_NS = 5_000_000_000
POINT = AttachPoint(1, "cuLaunchKernel", 110, PointKind.LAUNCH, True, 100)
SLOW_POINT = AttachPoint(16, "cuMemAlloc_v2", 200, PointKind.TIMED, False, 200)
NOT_EXPORTED = MissedSymbol("/lib/libcuda.so.1", "cuGraphLaunch", "not exported")


def open_descriptors() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}


class FakeLoader:
    """Attaches nothing; a link is a descriptor that tells when it is closed."""

    name = "fake"

    def __init__(self) -> None:
        self.attached: list[tuple[int, int]] = []
        self.link_fds: list[int] = []
        self.refused: tuple[RefusedPoint, ...] = ()
        self.error: Exception | None = None

    def load(self, *_: Any) -> Any:
        return None

    def attach(self, target: OpenLibrary, points: Sequence[AttachPoint], *, pid: int = 0) -> Attachment:
        if self.error:
            raise self.error
        self.attached.append((target.device, target.inode))
        self.link_fds.append(os.memfd_create("link"))
        return Attachment((Link([self.link_fds[-1]], PointKind.LAUNCH, tuple(points)),), self.refused, 0.0)

    def map_fd(self, name: str) -> int:
        raise KeyError(name)

    def close(self) -> None:
        pass

    def open_links(self) -> int:
        return len(open_descriptors() & set(self.link_fds))


class Desk:
    """The books with their surroundings."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.loader = FakeLoader()
        self.departures = Departures(LINGER_NS)
        self.books = Attachments(self.loader, clock, linger_ns=LINGER_NS, departures=self.departures)

    def find(
        self, pid: int, candidate: Candidate, *, mapped_ns: int = 0, looked_ns: int | None = None
    ) -> bool:
        looked = self.clock.monotonic_ns() if looked_ns is None else looked_ns
        return self.books.library_found(view(pid), candidate, mapped_ns, looked)

    def libraries(self, pid: int) -> tuple[LibraryCoverage, ...]:
        return next((p.libraries for p in self.books.processes() if p.pid == pid), ())


def view(pid: int, start: int = 1) -> ProcessView:
    return ProcessView(ProcessId(pid, start), "server", (), False)


def candidate(
    inode: int = 7,
    *,
    device: int = 1,
    points: tuple[AttachPoint, ...] = (POINT, SLOW_POINT),
    missed: tuple[MissedSymbol, ...] = (NOT_EXPORTED,),
    patched: bool = False,
    unlinked: bool = False,
) -> Candidate:
    fd = os.memfd_create("library")
    library = OpenLibrary(fd, "/lib/libcuda.so.1", device, inode, 4096, "b1d", "libcuda")
    parsed = ParsedLibrary(library, ElfFile("x86_64", "b1d", {}, ()), unlinked)
    return Candidate(parsed, ((0, device), inode), points, missed, patched)


@pytest.fixture
def desk(clock: Any) -> Iterator[Desk]:
    desk = Desk(clock)
    yield desk
    desk.books.close()


def test_an_epoch_begins_when_the_attach_is_complete(desk: Desk) -> None:
    desk.clock.advance(3)
    desk.find(40, candidate(), mapped_ns=5)
    (library,) = desk.libraries(40)
    assert library.state is LibraryState.ATTACHED
    assert (library.attached, library.emulated) == (2, 1)
    assert library.since_ns == desk.clock.monotonic_ns()
    assert not library.from_start
    assert desk.books.counts() == (2, 1)
    assert desk.books.missed() == (NOT_EXPORTED,)


def test_a_process_that_maps_it_later_is_covered_from_its_start(desk: Desk) -> None:
    desk.find(40, candidate())
    mapped_ns = desk.clock.advance(2)
    assert desk.books.library_shared(view(41), ((0, 1), 7), mapped_ns)
    (library,) = desk.libraries(41)
    assert (library.since_ns, library.from_start) == (mapped_ns, True)
    assert desk.loader.attached == [(1, 7)]


def test_an_unknown_file_is_not_shared(desk: Desk) -> None:
    assert not desk.books.library_shared(view(41), ((0, 1), 7), 0)


def test_an_exit_ends_the_epoch_and_tells_the_departures(desk: Desk) -> None:
    desk.find(40, candidate())
    since_ns = desk.clock.monotonic_ns()
    gone_ns = desk.clock.advance(10)
    desk.books.process_gone(ProcessId(40, 1), gone_ns)
    (epoch,) = desk.books.epochs()
    assert (epoch.pid, epoch.since_ns, epoch.until_ns) == (40, since_ns, gone_ns)
    assert desk.books.pids() == []
    assert desk.departures.due(gone_ns + LINGER_NS) == ([40], [])


def test_an_unmapped_library_ends_its_epoch_while_the_process_lives(desk: Desk) -> None:
    desk.find(40, candidate())
    desk.books.libraries_kept(view(40), frozenset())
    assert desk.books.pids() == []
    assert [epoch.pid for epoch in desk.books.epochs()] == [40]
    assert desk.departures.due(desk.clock.advance(60)) == ([], [])


def test_a_pid_that_comes_back_takes_its_entries_over(desk: Desk) -> None:
    desk.find(40, candidate())
    desk.books.process_gone(ProcessId(40, 1), desk.clock.monotonic_ns())
    desk.books.library_shared(view(40, start=9), ((0, 1), 7), desk.clock.advance(1))
    assert desk.departures.due(desk.clock.advance(60)) == ([], [])


def test_a_twin_that_shows_probes_is_an_alias(desk: Desk) -> None:
    desk.find(40, candidate(device=1))
    desk.find(41, candidate(device=2, patched=True))
    (library,) = desk.libraries(41)
    assert library.state is LibraryState.ALIAS
    assert (library.attached, library.since_ns) == (2, desk.clock.monotonic_ns())
    assert desk.loader.attached == [(1, 7)]
    assert desk.books.counts() == (2, 1)


def test_a_twin_that_was_looked_at_too_early_is_looked_at_again(desk: Desk) -> None:
    early_ns = desk.clock.monotonic_ns()
    desk.clock.advance(1)
    desk.find(40, candidate(device=1))
    assert not desk.find(41, candidate(device=2), looked_ns=early_ns)
    desk.clock.advance(1)
    assert desk.find(41, candidate(device=2))
    assert desk.loader.attached == [(1, 7), (2, 7)]


def test_probes_of_a_stranger_do_not_make_an_alias(desk: Desk) -> None:
    desk.find(40, candidate(inode=8, patched=True))
    assert desk.libraries(40)[0].state is LibraryState.ATTACHED


def test_a_failed_attach_is_told_and_leaves_the_others(desk: Desk) -> None:
    desk.loader.error = AttachError("no", path="/lib/libcuda.so.1")
    desk.find(40, candidate(inode=7))
    desk.loader.error = None
    desk.find(41, candidate(inode=8))
    assert (desk.libraries(40)[0].state, desk.libraries(40)[0].reason) == (LibraryState.FAILED, "no")
    assert desk.libraries(40)[0].since_ns is None
    assert desk.libraries(41)[0].state is LibraryState.ATTACHED
    desk.books.process_gone(ProcessId(40, 1), desk.clock.monotonic_ns())
    assert desk.books.epochs() == ()


def test_points_that_the_kernel_refused_are_missed_with_its_reason(desk: Desk) -> None:
    desk.loader.refused = (RefusedPoint(SLOW_POINT, "Invalid argument"),)
    desk.find(40, candidate(missed=()))
    assert desk.books.missed() == (MissedSymbol("/lib/libcuda.so.1", "cuMemAlloc_v2", "Invalid argument"),)


def test_a_library_without_calls_is_ignored_with_a_reason(desk: Desk) -> None:
    desk.find(40, candidate(points=(), missed=()))
    assert (desk.libraries(40)[0].state, desk.libraries(40)[0].reason) == (
        LibraryState.IGNORED,
        "not in the catalogue",
    )


def test_a_refused_library_is_listed_until_it_works(desk: Desk) -> None:
    mapping = Mapping(0, 1, 0, (0, 1), 7, "/lib/libcuda.so.1", False)
    desk.books.library_refused(view(40), mapping, "cut short")
    assert (desk.libraries(40)[0].state, desk.libraries(40)[0].reason) == (LibraryState.FAILED, "cut short")
    desk.find(40, candidate())
    assert [library.state for library in desk.libraries(40)] == [LibraryState.ATTACHED]


@pytest.mark.parametrize(("is_gone", "level"), [(False, "WARNING"), (True, "DEBUG")])
def test_a_refusal_names_the_path_and_is_no_warning_when_it_has_simply_vanished(
    desk: Desk, caplog: pytest.LogCaptureFixture, is_gone: bool, level: str
) -> None:
    caplog.set_level("DEBUG", "hotstage.probes.attachments")
    mapping = Mapping(0, 1, 0, (0, 1), 7, "/lib/libcuda.so.1", False)
    desk.books.library_refused(view(40), mapping, "cannot be opened", is_gone=is_gone)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [(level, "library not attached: /lib/libcuda.so.1")]


def test_an_idle_library_stays_attached_a_deleted_one_is_let_go(desk: Desk) -> None:
    desk.find(40, candidate(inode=7))
    desk.find(40, candidate(inode=8, unlinked=True))
    desk.books.process_gone(ProcessId(40, 1), desk.clock.monotonic_ns())
    desk.books.tick(desk.clock.advance(1))
    assert desk.loader.open_links() == 2
    desk.books.tick(desk.clock.advance(10))
    assert desk.loader.open_links() == 1
    assert desk.books.library_shared(view(41), ((0, 1), 7), 0)
    assert not desk.books.library_shared(view(41), ((0, 1), 8), 0)


def test_only_so_many_idle_libraries_are_kept(desk: Desk) -> None:
    for inode in range(IDLE_LIBRARIES_LIMIT + 3):
        desk.find(40, candidate(inode=100 + inode))
    desk.books.process_gone(ProcessId(40, 1), desk.clock.monotonic_ns())
    desk.books.tick(desk.clock.advance(10))
    assert desk.loader.open_links() == IDLE_LIBRARIES_LIMIT


def test_close_ends_every_epoch_and_lets_everything_go(desk: Desk) -> None:
    before = open_descriptors()
    desk.find(40, candidate(inode=7))
    desk.find(41, candidate(inode=8))
    desk.books.close()
    assert open_descriptors() == before
    assert [epoch.pid for epoch in desk.books.epochs()] == [40, 41]
