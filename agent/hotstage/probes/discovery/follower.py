# SPDX-License-Identifier: Apache-2.0
"""The two ends of the watch: where news of processes comes from, and who is told what was found. No code.

A `Follower` is always told from one thread at a time.
"""

from __future__ import annotations

from typing import Protocol

from hotstage.probes.discovery.processes import Mapping, ProcessId, ProcessView
from hotstage.probes.discovery.sideband import Event
from hotstage.probes.discovery.targets import Candidate

FileKey = tuple[tuple[int, int], int]
"""(device as `maps` prints it, inode)."""


class Follower(Protocol):
    """Who attaches and keeps the books. `mapped_ns` is when the library was mapped, 0 when no record told
    of it.
    """

    def library_found(
        self, process: ProcessView, candidate: Candidate, mapped_ns: int, looked_ns: int
    ) -> bool:
        """A library that was not known; the follower owns its descriptor now.

        `looked_ns` is before its code was looked at. False: look again, it may have been probed since.
        """
        ...

    def library_shared(self, process: ProcessView, file: FileKey, mapped_ns: int) -> bool:
        """A file as another process has it; False when the follower does not hold it, so that it must be
        opened.
        """
        ...

    def library_refused(
        self, process: ProcessView, mapping: Mapping, reason: str, *, is_gone: bool = False
    ) -> None:
        """It could not be opened; `is_gone`: because the process or the file has simply vanished."""
        ...

    def libraries_kept(self, process: ProcessView, files: frozenset[FileKey]) -> None:
        """The libraries that the process has now: what it had besides is unmapped."""
        ...

    def process_gone(self, process: ProcessId, at_ns: int) -> None: ...

    def thread_gone(self, pid: int, tid: int, at_ns: int) -> None: ...

    def tick(self, now_ns: int) -> None:
        """Time has passed: at least twice a second."""
        ...


class News(Protocol):
    """Where records come from: `Sideband`, or a test's own."""

    def follow_cpus(self) -> bool: ...

    def wait(self, timeout_seconds: float) -> None: ...

    def drain(self) -> list[Event]: ...

    def close(self) -> None: ...
