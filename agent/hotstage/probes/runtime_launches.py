# SPDX-License-Identifier: Apache-2.0
"""Launches of the runtime are probed only while some process's driver is not: else each would pay twice.

Which calls those are says `CallSpec.is_fallback`. Called under the lock that attaching needs; it keeps no
books of processes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace

from hotstage.errors import HotstageError
from hotstage.probes.coverage import LibraryState
from hotstage.probes.discovery.processes import ProcessId
from hotstage.probes.held_libraries import HeldLibrary, Process
from hotstage.probes.loader.base import Attachment, Loader
from hotstage.probes.loader.links import detach

GRACE_NS = 500_000_000
"""A driver that is opened this soon after the runtime is taken to have come with it."""

log = logging.getLogger(__name__)


class RuntimeLaunches:
    """What is attached in addition, by library. One thread at a time."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._added: dict[HeldLibrary, Attachment] = {}
        self._waits: dict[HeldLibrary, int] = {}

    def look(self, libraries: Iterable[HeldLibrary], uncovered: Collection[ProcessId], now_ns: int) -> None:
        """Attach and let go as the processes without a covered driver ask; `now_ns` is monotonic."""
        present = [held for held in libraries if any(point.is_fallback for point in held.candidate.points)]
        for held in present:
            if held.state is LibraryState.ATTACHED and not held.users.isdisjoint(uncovered):
                if held not in self._added and now_ns - self._waits.setdefault(held, now_ns) >= GRACE_NS:
                    self._add(held)
            else:
                self._waits.pop(held, None)
                self._take_off(held)
        for held in set(self._added) - set(present):
            del self._added[held]

    def _add(self, held: HeldLibrary) -> None:
        points = [point for point in held.candidate.points if point.is_fallback]
        library = held.candidate.parsed.library
        try:
            added = self._loader.attach(library, points)
        except (HotstageError, OSError) as error:
            log.warning("launches not attached", extra={"path": library.path, "reason": str(error)})
            added = Attachment((), (), 0.0)
        self._added[held] = added
        if held.attachment is not None:
            held.attachment = replace(
                held.attachment,
                links=(*held.attachment.links, *added.links),
                refused=(*held.attachment.refused, *added.refused),
            )

    def _take_off(self, held: HeldLibrary) -> None:
        added = self._added.pop(held, None)
        if added is None:
            return
        if held.attachment is not None:
            held.attachment = replace(
                held.attachment,
                links=tuple(link for link in held.attachment.links if link not in added.links),
                refused=tuple(point for point in held.attachment.refused if point not in added.refused),
            )
        detach(added.links)


def without_driver(processes: Iterable[tuple[ProcessId, Process]]) -> frozenset[ProcessId]:
    """Processes of which no driver is counted: none is mapped, or it could not be attached."""
    return frozenset(
        process
        for process, entry in processes
        if not any(
            use.since_ns is not None
            and use.held is not None
            and use.held.candidate.parsed.library.kind == "libcuda"
            for use in entry.uses.values()
        )
    )
