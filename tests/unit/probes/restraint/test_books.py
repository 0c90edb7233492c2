# SPDX-License-Identifier: Apache-2.0
"""An attach that the kernel does not come back from holds up neither who reads nor the kill switch; and one
user cannot have all of the agent's descriptors.
"""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.probes.test_attachments import LINGER_NS, FakeLoader, candidate, open_descriptors, view

from hotstage.probes.attachments import DESCRIPTORS_KEPT, LIBRARIES_PER_USER
from hotstage.probes.coverage import LibraryState
from hotstage.probes.departures import Departures
from hotstage.probes.restraint.books import RestrainedAttachments

NOBODY, ROOT = 65534, 0


class HangingLoader(FakeLoader):
    """Attaches when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_attach = threading.Event()
        self.may_attach.set()
        self.is_attaching = threading.Event()

    def attach(self, *args: Any, **named: Any) -> Any:
        self.is_attaching.set()
        assert self.may_attach.wait(20)
        return super().attach(*args, **named)


def links_held() -> int:
    """A number may be another descriptor's by now, so they are told by what they are of."""
    held = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held += descriptor.readlink().name.startswith("memfd:link")
    return held


@pytest.fixture
def loader() -> HangingLoader:
    return HangingLoader()


@pytest.fixture
def books(clock: Any, loader: HangingLoader) -> Iterator[RestrainedAttachments]:
    made = RestrainedAttachments(
        loader,
        clock,
        linger_ns=LINGER_NS,
        departures=Departures(LINGER_NS),
        user_of=lambda pid: ROOT if pid == 1 else NOBODY,
    )
    yield made
    loader.may_attach.set()
    made.close()


@pytest.fixture
def hanging(books: RestrainedAttachments, loader: HangingLoader) -> Iterator[threading.Thread]:
    """Library 7 is attached, 8 hangs in the kernel."""
    books.library_found(view(10), candidate(7), 0, 1)
    loader.may_attach.clear()
    loader.is_attaching.clear()
    thread = threading.Thread(target=books.library_found, args=(view(11), candidate(8), 0, 1))
    thread.start()
    assert loader.is_attaching.wait(20)
    yield thread
    loader.may_attach.set()
    thread.join(20)


def test_who_reads_does_not_wait_for_the_kernel(books: RestrainedAttachments, hanging: object) -> None:
    answers: list[object] = []

    def read() -> None:
        answers.extend(
            [
                books.processes(),
                books.pids(),
                books.missed(),
                books.counts(),
                books.epochs(),
                books.points_in_use(),
            ]
        )
        answers.append(books.stepped_calls(10))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(5.0)
    assert not reader.is_alive() and answers[-1] == frozenset({16})


def test_the_kill_switch_lets_go_of_all_others_and_of_what_comes_late(
    books: RestrainedAttachments, loader: HangingLoader, hanging: threading.Thread
) -> None:
    switch = threading.Thread(target=books.let_go, args=("a test",), daemon=True)
    switch.start()
    switch.join(5.0)
    assert not switch.is_alive() and links_held() == 0
    loader.may_attach.set()
    hanging.join(20)
    assert len(loader.attached) == 2 and links_held() == 0
    states = {lib.state for process in books.processes() for lib in process.libraries}
    assert (states, books.counts()) == ({LibraryState.OFF}, (0, 0))


def test_one_user_has_so_many_libraries_and_others_theirs(
    books: RestrainedAttachments, loader: HangingLoader
) -> None:
    before = open_descriptors()
    for inode in range(LIBRARIES_PER_USER + 40):
        books.library_found(view(10), distinct(inode), 0, 1)
    books.library_found(view(1), distinct(100_000), 0, 1)
    assert (links_held(), books.limited) == (LIBRARIES_PER_USER + 1, 40)
    assert len(open_descriptors() - before) == 2 * (LIBRARIES_PER_USER + 1)  # a file and a link each
    libraries = next(process.libraries for process in books.processes() if process.pid == 10)
    left_out = [lib for lib in libraries if lib.state is LibraryState.LIMITED]
    assert len(left_out) == 40
    assert (
        left_out[0].reason
        == f"user {NOBODY} has {LIBRARIES_PER_USER} libraries attached, as many as one may have"
    )


def distinct(inode: int) -> Any:
    found = candidate(inode)
    library = replace(found.parsed.library, build_id=f"{inode:x}")
    return replace(found, parsed=replace(found.parsed, library=library))


def test_where_descriptors_run_short_the_next_library_is_left_out(
    books: RestrainedAttachments, loader: HangingLoader
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    books.library_found(view(1), distinct(1), 0, 1)
    late = distinct(2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (late.parsed.library.fd + DESCRIPTORS_KEPT, hard))
    try:
        books.library_found(view(1), late, 0, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    first, second = books.processes()[0].libraries
    assert (first.state, second.state) == (LibraryState.ATTACHED, LibraryState.LIMITED)
    assert second.reason is not None and "LimitNOFILE" in second.reason
