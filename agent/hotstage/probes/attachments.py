# SPDX-License-Identifier: Apache-2.0
"""Which library is attached for which process, since when: the books behind coverage, and the only caller
of attach.

Written by the discovery thread, read by any. Libraries are held by inode (that is what the kernel probes)
for as long as a process has them, and a while longer. One library that fails never touches another.
"""

from __future__ import annotations

import logging
import resource
import threading
from collections import deque
from collections.abc import Callable

from hotstage.clock import Clock
from hotstage.errors import HotstageError
from hotstage.probes.coverage import Epoch, LibraryCoverage, LibraryState, ProcessCoverage
from hotstage.probes.departures import Departures
from hotstage.probes.discovery.follower import FileKey
from hotstage.probes.discovery.libraries import library_kind
from hotstage.probes.discovery.processes import Mapping, ProcessId, ProcessView, printable
from hotstage.probes.discovery.targets import Candidate, MissedSymbol, discard_candidate
from hotstage.probes.held_libraries import (
    HeldLibrary,
    Process,
    Use,
    coverage_of,
    left_out,
    nothing_to_probe,
    points_of,
    refused_by,
)
from hotstage.probes.loader.base import Link, Loader
from hotstage.probes.loader.links import detach
from hotstage.probes.runtime_launches import RuntimeLaunches, without_driver

IDLE_LIBRARIES_LIMIT = 32
"""Libraries kept attached although no process has them: the next process is then covered from its first
call.
"""
LIBRARIES_PER_USER = 256
"""Distinct files of one unprivileged user: each costs descriptors, links and kernel memory of the agent."""
DESCRIPTORS_KEPT = 64
"""Left for answers, the database and what the kernel's files are read through."""
EPOCHS_LIMIT = 1024
PROCESSES_SHOWN_LIMIT = 4096

log = logging.getLogger(__name__)


class Attachments:
    """A `Follower`: attaches what is found and keeps the epochs. Lock: `_lock` guards the books, not the
    attaching.
    """

    def __init__(
        self,
        loader: Loader,
        clock: Clock,
        *,
        linger_ns: int,
        departures: Departures,
        user_of: Callable[[int], int | None] = lambda pid: None,
    ) -> None:
        """`user_of`: pid → the user that it runs as, None where that is unknown."""
        self._user_of = user_of
        self.limited = 0
        """Libraries that were left out, because their user has enough."""
        self._loader = loader
        self._clock = clock
        self._linger_ns = linger_ns
        self._departures = departures
        self._lock = threading.Lock()
        # Around everything that attaches or lets go: two threads may, and neither under `_lock`.
        self._attaching = threading.RLock()
        self._held: dict[tuple[int, int], HeldLibrary] = {}
        self._by_file: dict[FileKey, HeldLibrary] = {}
        self._processes: dict[ProcessId, Process] = {}
        self._epochs: deque[Epoch] = deque(maxlen=EPOCHS_LIMIT)
        self._idle: set[HeldLibrary] = set()
        self._runtime_launches = RuntimeLaunches(loader)

    # ---- told by the watch

    def library_found(
        self, process: ProcessView, candidate: Candidate, mapped_ns: int, looked_ns: int
    ) -> bool:
        """As `Follower.library_found`."""
        with self._attaching:
            return self._take_in(process, candidate, mapped_ns, looked_ns)

    def _take_in(self, process: ProcessView, candidate: Candidate, mapped_ns: int, looked_ns: int) -> bool:
        held = self._held.get(candidate.parsed.key)
        if held is not None:  # the same file, opened a second time under another name of its device
            discard_candidate(candidate)
        else:
            twin = self._twin_of(candidate)
            if twin is not None and not candidate.is_patched and twin.attached_ns >= looked_ns:
                discard_candidate(candidate)
                return False
            owner = self._user_of(process.identity.pid)
            limited = self._beyond_share(owner) or _beyond_descriptors(candidate.parsed.library.fd)
            if limited is not None:
                self._leave_out(process, candidate, limited)
                return True
            is_same = candidate.is_patched or (twin is not None and twin.state is LibraryState.OFF)
            held = self._attach(candidate, twin if is_same else None)
            held.owner = owner
        with self._lock:
            links = self._too_late(held)
            self._held[held.candidate.parsed.key] = held
            held.files.add(candidate.file)
            self._by_file[candidate.file] = held
        detach(links)
        self._use(process, candidate.file, held, mapped_ns)
        return True

    def library_shared(self, process: ProcessView, file: FileKey, mapped_ns: int) -> bool:
        """As `Follower.library_shared`."""
        with self._attaching:
            held = self._by_file.get(file)
            if held is not None:
                self._use(process, file, held, mapped_ns)
        return held is not None

    def library_refused(
        self, process: ProcessView, mapping: Mapping, reason: str, *, is_gone: bool = False
    ) -> None:
        """As `Follower.library_refused`."""
        shown = LibraryCoverage(
            kind=library_kind(mapping.path) or "unknown",
            path=printable(mapping.path),
            build_id=None,
            attached=0,
            emulated=0,
            state=LibraryState.FAILED,
            since_ns=None,
            from_start=False,
            reason=reason,
        )
        file = (mapping.device, mapping.inode)
        with self._lock:
            entry = self._processes.setdefault(process.identity, Process(process.name))
            before = entry.uses.get(file)
            entry.uses[file] = Use(None, file, None, False, shown)
        if before is None or before.refused != shown:
            level = logging.DEBUG if is_gone else logging.WARNING
            extra = {"pid": process.identity.pid, "reason": reason}
            log.log(level, "library not attached: %s", shown.path, extra=extra)

    def libraries_kept(self, process: ProcessView, files: frozenset[FileKey]) -> None:
        """As `Follower.libraries_kept`."""
        with self._lock:
            entry = self._processes.get(process.identity)
            if entry is None:
                return
            entry.name = process.name
            for file in set(entry.uses) - files:
                self._end_use(process.identity, entry.uses.pop(file), self._clock.monotonic_ns())

    def process_gone(self, process: ProcessId, at_ns: int) -> None:
        """As `Follower.process_gone`."""
        with self._lock:
            entry = self._processes.pop(process, None)
            for use in entry.uses.values() if entry else ():
                self._end_use(process, use, at_ns)
        self._departures.process_gone(process.pid, at_ns)

    def thread_gone(self, pid: int, tid: int, at_ns: int) -> None:
        """As `Follower.thread_gone`."""
        self._departures.thread_gone(pid, tid, at_ns)

    def tick(self, now_ns: int) -> None:
        """Let go of libraries that nobody has: deleted files soon, others when there are too many. Launches
        of a runtime come and go with the driver of its processes.
        """
        with self._attaching:
            with self._lock:
                uncovered = without_driver(self._processes.items())
            self._runtime_launches.look(self._held.values(), uncovered, now_ns)
        if not self._idle:
            return
        with self._lock:
            self._idle = {held for held in self._idle if not held.users}
            surplus = len(self._idle) - IDLE_LIBRARIES_LIMIT
            due = [
                held
                for index, held in enumerate(sorted(self._idle, key=lambda held: held.idle_since_ns))
                if now_ns - held.idle_since_ns > self._linger_ns
                and (index < surplus or held.candidate.parsed.unlinked or held.attachment is None)
                and not self._is_aliased(held)
            ]
            links = [link for held in due for link in self._links(held)]
            for held in due:
                self._forget(held)
        with self._attaching:  # all at once: the kernel waits for each, and a user may have brought hundreds
            detach(links)
            for held in due:
                discard_candidate(held.candidate)

    # ---- asked by anybody

    def processes(self) -> tuple[ProcessCoverage, ...]:
        """Every process with a known library, by pid."""
        with self._lock:
            shown = sorted(self._processes.items(), key=lambda item: item[0].pid)[:PROCESSES_SHOWN_LIMIT]
            return tuple(
                ProcessCoverage(process.pid, entry.name, tuple(map(coverage_of, entry.uses.values())))
                for process, entry in shown
                if entry.uses
            )

    def pids(self) -> list[int]:
        """Processes that have a known library."""
        with self._lock:
            return sorted(process.pid for process, entry in self._processes.items() if entry.uses)

    def missed(self) -> tuple[MissedSymbol, ...]:
        """Catalogued symbols that attached libraries lack or the kernel refused."""
        with self._lock:
            held = [held for held in self._held.values() if held.users]
            return tuple(
                missed for library in held for missed in (*library.candidate.missed, *refused_by(library))
            )

    def counts(self) -> tuple[int, int]:
        """(symbols probed, of them on emulated instructions), each library once."""
        with self._lock:
            points = [p for h in self._held.values() for p in points_of(h.attachment)]
        return len(points), sum(point.is_emulated for point in points)

    def points_in_use(self) -> int:
        """Symbols probed in libraries that a process has, each library once: as `missed` counts."""
        with self._lock:
            return sum(len(points_of(held.attachment)) for held in self._held.values() if held.users)

    def epochs(self) -> tuple[Epoch, ...]:
        """The last finished epochs, oldest first."""
        with self._lock:
            return tuple(self._epochs)

    def close(self) -> None:
        """End every epoch and detach everything, all at once."""
        now_ns = self._clock.monotonic_ns()
        with self._attaching, self._lock:
            for process, entry in self._processes.items():
                for use in entry.uses.values():
                    self._end_use(process, use, now_ns)
            held = list(self._held.values())
            self._processes.clear()
            self._held.clear()
            self._by_file.clear()
        detach(link for library in held for link in self._links(library))
        for library in held:
            discard_candidate(library.candidate)

    # ---- inside

    def _attach(self, candidate: Candidate, twin: HeldLibrary | None) -> HeldLibrary:
        """Attach; what cannot be attached is held as failed, with the reason, so that it is not tried for
        each user.
        """
        now_ns = self._clock.monotonic_ns()
        if not candidate.points:
            state, reason = nothing_to_probe(candidate)
            return HeldLibrary(candidate, state, now_ns, reason=reason)
        if (refusal := self._refusal(candidate)) is not None:
            return HeldLibrary(candidate, refusal[0], now_ns, reason=refusal[1])
        if twin is not None:
            reason = "the same file by another path"
            return HeldLibrary(candidate, LibraryState.ALIAS, now_ns, alias_of=twin, reason=reason)
        library = candidate.parsed.library
        try:
            attachment = self._loader.attach(library, candidate.own_points)
        except (HotstageError, OSError) as error:
            log.warning("attach failed", extra={"path": library.path, "reason": str(error)})
            return HeldLibrary(candidate, LibraryState.FAILED, now_ns, reason=str(error))
        return HeldLibrary(candidate, LibraryState.ATTACHED, self._clock.monotonic_ns(), attachment)

    def _refusal(self, candidate: Candidate) -> tuple[LibraryState, str] | None:
        """As what it is held, and why, where it must not be attached; None: it may be."""
        return None

    def has_room(self, owner: int | None) -> bool:
        """Whether one more library of this user would be attached now."""
        with self._lock:
            return self._beyond_share(owner) is None

    def _beyond_share(self, owner: int | None) -> str | None:
        """Why one more library of this user is not attached; None: it may be. Root has no limit."""
        if not owner or sum(held.owner == owner for held in self._held.values()) < LIBRARIES_PER_USER:
            return None
        return f"user {owner} has {LIBRARIES_PER_USER} libraries attached, as many as one may have"

    def _leave_out(self, process: ProcessView, candidate: Candidate, reason: str) -> None:
        shown = left_out(candidate, LibraryState.LIMITED, reason)
        discard_candidate(candidate)
        with self._lock:
            self.limited += 1
            entry = self._processes.setdefault(process.identity, Process(process.name))
            entry.uses[candidate.file] = Use(None, candidate.file, None, False, shown)
        if self.limited == 1 or not self.limited % LIBRARIES_PER_USER:
            log.warning(
                "library left out: %s", shown.path, extra={"pid": process.identity.pid, "reason": reason}
            )

    def _too_late(self, held: HeldLibrary) -> tuple[Link, ...]:
        """What must be let go again because the probes were switched off while the kernel attached it."""
        return ()

    def _twin_of(self, candidate: Candidate) -> HeldLibrary | None:
        """An attached library that may be this very file: overlay mounts give one inode several devices."""
        mine = candidate.parsed.library
        for held in self._held.values():
            other = held.candidate.parsed.library
            same = (mine.inode, mine.size, mine.build_id) == (other.inode, other.size, other.build_id)
            if same and held.attachment is not None:
                return held
        return None

    def _use(self, process: ProcessView, file: FileKey, held: HeldLibrary, mapped_ns: int) -> None:
        attached_ns = held.counted_through.attached_ns
        counts = held.counted_through.state is LibraryState.ATTACHED
        since_ns = max(attached_ns, mapped_ns) if counts else None
        with self._lock:
            self._departures.process_seen(process.identity.pid)
            held.users.add(process.identity)
            entry = self._processes.setdefault(process.identity, Process(process.name))
            entry.uses[file] = Use(held, file, since_ns, counts and mapped_ns > attached_ns)

    def _end_use(self, process: ProcessId, use: Use, at_ns: int) -> None:
        held = use.held
        if held is None:
            return
        held.users.discard(process)
        if not held.users:
            held.idle_since_ns = at_ns
            self._idle.add(held)
        self._end_epoch(process, use, at_ns)

    def _end_epoch(self, process: ProcessId, use: Use, at_ns: int) -> None:
        if use.held is not None and use.since_ns is not None:
            library = use.held.candidate.parsed.library
            self._epochs.append(Epoch(process.pid, library.kind, library.path, use.since_ns, at_ns))
        use.since_ns, use.from_start = None, False

    def _is_aliased(self, held: HeldLibrary) -> bool:
        return any(other.alias_of is held for other in self._held.values())

    def _forget(self, held: HeldLibrary) -> None:
        self._held.pop(held.candidate.parsed.key, None)
        for file in held.files:
            self._by_file.pop(file, None)
        self._idle.discard(held)

    def _links(self, held: HeldLibrary) -> tuple[Link, ...]:
        """All that holds it in the kernel."""
        return held.attachment.links if held.attachment is not None else ()


def _beyond_descriptors(newest: int) -> str | None:
    """Why a library is not attached for want of descriptors. The lowest free number is given out, so that of
    its file says how many are taken.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or newest < limit - DESCRIPTORS_KEPT:
        return None
    return f"the agent may have {limit} descriptors, and nearly all are taken: raise its limit (LimitNOFILE)"
