# SPDX-License-Identifier: Apache-2.0
"""Follows processes and the libraries they map: one scan, then the kernel's side-band; one thread of its own.

It decides when to look and tells a `Follower` what it found, always from one thread at a time. All work
that can hang is done by `Lookups`; here nothing blocks longer than a wait for news.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hotstage.clock import Clock
from hotstage.probes.discovery.follower import FileKey, Follower, News
from hotstage.probes.discovery.libraries import LibraryGoneError, is_library
from hotstage.probes.discovery.lookups import Lookups, Outcome
from hotstage.probes.discovery.processes import (
    Mapping,
    ProcessId,
    ProcessTable,
    ProcessView,
    distinct_files,
)
from hotstage.probes.discovery.sideband import Event, Executed, Exited, Forked, Lost, Mapped, Sideband
from hotstage.probes.discovery.targets import Candidate, discard_candidate

RESCAN_SECONDS = 30.0
"""A safety net: mappings that no record told of, unmapped libraries, CPUs that came online."""
_IDLE_WAIT_SECONDS = 0.5
_BUSY_WAIT_SECONDS = 0.02
_GATHER_SECONDS = 0.005
"""After a wake-up records are left to gather for so long: a host that forks all day costs 200 wake-ups a
second.
"""

_DYING_NS = 2_000_000_000
"""A leader that ended this long ago while its threads live on is left to the rescans."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """A process of interest, and which libraries of it the follower knows or is about to."""

    identity: ProcessId
    user: int | None
    files: set[FileKey] = field(default_factory=set)


@dataclass(slots=True)
class _User:
    """A process that waits for a file to be opened, by itself or by another one."""

    view: ProcessView
    mapping: Mapping
    mapped_ns: int
    looked_ns: int = 0


class Watch:
    """`start` scans and returns when everything found is attached or its deadline is over; then a thread
    follows.
    """

    def __init__(
        self,
        table: ProcessTable,
        follower: Follower,
        clock: Clock,
        *,
        inspect: Callable[[Path, int, Mapping], Candidate],
        deadline_seconds: float,
        is_own: Callable[[int], bool] = lambda pid: False,
        is_wanted: Callable[[str], bool] = is_library,
        news: News | None = None,
    ) -> None:
        self._table = table
        self._is_own = is_own
        self._is_wanted = is_wanted
        self._inspect = inspect
        self._follower = follower
        self._clock = clock
        self._lookups = Lookups(deadline_seconds, clock.monotonic_ns)
        self._news: News = news or Sideband(self._lookups.wake_fd)
        self._known: dict[int, _Known] = {}
        self._looking: set[int] = set()
        self._again: set[int] = set()
        self._opening: dict[FileKey, list[_User]] = {}
        self._dying: dict[int, int] = {}
        self._mapped_ns: dict[int, int] = {}
        self._rescan_due_ns = 0
        self._is_anew = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="hotstage-discovery", daemon=True)
        self.lost_records = 0
        self.rescans = 0
        self.truncated_maps = 0

    @property
    def abandoned_total(self) -> int:
        return self._lookups.abandoned_total

    @property
    def stuck(self) -> int:
        return self._lookups.stuck

    @property
    def held_back(self) -> int:
        return self._lookups.held_back

    @property
    def is_following(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self, settle_seconds: float) -> bool:
        """Scan; True when all look-ups were answered within `settle_seconds` (later ones still count)."""
        end_ns = self._clock.monotonic_ns() + int(settle_seconds * 1e9)
        self._rescan()
        while self._lookups.pending and self._clock.monotonic_ns() < end_ns:
            self._news.wait(_BUSY_WAIT_SECONDS)
            self._step()
        settled = not self._lookups.pending
        self._thread.start()
        return settled

    def look_anew(self) -> None:
        """Bring every library to the follower again, at once; any thread may call."""
        self._is_anew = True
        self._lookups.wake()

    def close(self) -> None:
        """Stop following; waits for the thread, which never waits long."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self._news.close()
        self._lookups.close()

    def _follow(self) -> None:
        while not self._closing.is_set():
            busy = self._lookups.pending > 0 or bool(self._dying)
            self._news.wait(_BUSY_WAIT_SECONDS if busy else _IDLE_WAIT_SECONDS)
            try:
                self._step()
            except Exception:  # one odd process must not end the watching of all others
                log.exception("discovery step failed")
                self._rescan_due_ns = self._clock.monotonic_ns() + int(1e9)
            self._closing.wait(_GATHER_SECONDS)

    def _step(self) -> None:
        for event in self._news.drain():
            self._take(event)
        for outcome in self._lookups.finished():
            self._settle(outcome)
        now_ns = self._clock.monotonic_ns()
        self._bury(now_ns)
        if self._is_anew:
            self._is_anew = False
            for known in self._known.values():
                known.files.clear()
            self._rescan_due_ns = 0
        if now_ns >= self._rescan_due_ns:
            self._rescan()
        self._follower.tick(now_ns)

    def _take(self, event: Event) -> None:
        match event:
            case Mapped(pid=pid, at_ns=at_ns) if self._is_wanted(event.path):
                self._mapped_ns[pid] = at_ns
                self._look(pid)
            case Forked(pid=pid, parent=parent, at_ns=at_ns) if parent in self._known:
                self._mapped_ns[pid] = at_ns
                self._look(pid, self._known[parent].user)
            case Executed(pid=pid) if pid in self._known:
                self._look(pid)
            case Exited(pid=pid, tid=tid, at_ns=at_ns) if pid in self._known or pid in self._looking:
                self._follower.thread_gone(pid, tid, at_ns)
                if pid == tid:
                    self._dying[pid] = at_ns
            case Lost(records=records):
                self.lost_records += records
                self._rescan_due_ns = 0
            case _:
                pass

    def _bury(self, now_ns: int) -> None:
        """A record of an exit comes before the process is a zombie, and a leader may leave threads behind.

        One that is being looked at may be found alive a moment before its end: it is asked for afterwards.
        """
        for pid, at_ns in list(self._dying.items()):
            if pid in self._looking:
                continue
            if self._is_gone(pid, at_ns) or now_ns - at_ns > _DYING_NS:
                del self._dying[pid]

    def _is_gone(self, pid: int, at_ns: int) -> bool:
        known = self._known.get(pid)
        if known is None:
            return True
        if self._table.is_alive(known.identity):
            return False
        del self._known[pid]
        self._mapped_ns.pop(pid, None)
        self._follower.process_gone(known.identity, at_ns)
        return True

    def _rescan(self) -> None:
        """Look at every process; cheap (0.02 ms each), and each look has its own deadline."""
        now_ns = self._clock.monotonic_ns()
        self._rescan_due_ns = now_ns + int(RESCAN_SECONDS * 1e9)
        self.rescans += 1
        self._news.follow_cpus()
        for pid in list(self._known):
            self._is_gone(pid, now_ns)
        for pid in self._table.pids():
            self._look(pid)

    def _look(self, pid: int, user: int | None = None) -> None:
        """`user`: who is charged for it where the process is not known."""
        if pid in self._looking:
            self._again.add(pid)  # what is being read may be older than this news
            return
        self._looking.add(pid)
        known = self._known.get(pid)
        self._lookups.submit(
            ("look", pid),
            ("process", pid),
            lambda: self._table.look(pid, self._is_wanted),
            user=user if known is None else known.user,
        )

    def _settle(self, outcome: Outcome) -> None:
        match outcome.key:
            case ("look", int(pid)):
                self._looked(pid, outcome)
            case ("open", ((int(major), int(minor)), int(inode))):
                self._opened(((major, minor), inode), outcome)

    def _looked(self, pid: int, outcome: Outcome) -> None:
        self._looking.discard(pid)
        if pid in self._again:
            self._again.discard(pid)
            self._look(pid)
        view: ProcessView | None = outcome.result
        known = self._known.get(pid)
        if view is None or (known is not None and known.identity != view.identity):
            known = None if self._is_gone(pid, self._clock.monotonic_ns()) else known
        if view is None:
            return
        self.truncated_maps += view.is_truncated
        mappings = {(m.device, m.inode): m for m in distinct_files(view.mappings)}
        if known is None and (not mappings or self._is_own(pid)):
            return
        known = known or self._known.setdefault(pid, _Known(view.identity, self._table.user(pid)))
        mapped_ns = self._mapped_ns.pop(pid, 0)
        self._follower.libraries_kept(view, frozenset(mappings))
        known.files &= set(mappings)
        for file, mapping in mappings.items():
            if file not in known.files:
                known.files.add(file)
                self._bring(view, file, mapping, mapped_ns)

    def _bring(self, view: ProcessView, file: FileKey, mapping: Mapping, mapped_ns: int) -> None:
        if self._follower.library_shared(view, file, mapped_ns):
            return
        waiting = self._opening.setdefault(file, [])
        waiting.append(_User(view, mapping, mapped_ns))
        if len(waiting) == 1:
            self._open(file, waiting[0])

    def _open(self, file: FileKey, user: _User) -> None:
        pid, root, mapping = user.view.identity.pid, self._table.root, user.mapping
        known = self._known.get(pid)
        user.looked_ns = self._clock.monotonic_ns()
        self._lookups.submit(
            ("open", file),
            ("device", mapping.device),
            lambda: self._inspect(root, pid, mapping),
            discard_candidate,
            user=None if known is None else known.user,
        )

    def _opened(self, file: FileKey, outcome: Outcome) -> None:
        first, *others = self._opening[file]
        if outcome.error is None:
            candidate: Candidate = outcome.result
            if not self._follower.library_found(first.view, candidate, first.mapped_ns, first.looked_ns):
                self._open(file, first)
                return
            del self._opening[file]
            for user in others:
                self._follower.library_shared(user.view, file, user.mapped_ns)
            self._forget_ended(first, *others)
            return
        del self._opening[file]
        known = self._known.get(first.view.identity.pid)
        if known is not None:
            known.files.discard(file)  # the next rescan tries again
        is_gone = isinstance(outcome.error, LibraryGoneError)
        self._follower.library_refused(first.view, first.mapping, str(outcome.error), is_gone=is_gone)
        self._forget_ended(first)
        if others:  # what one process cannot show (another root, gone already) the next one may
            self._opening[file] = others
            self._open(file, others[0])

    def _forget_ended(self, *users: _User) -> None:
        """Who has ended while the file was opened was told as gone before it was told as a user."""
        for user in users:
            known = self._known.get(user.view.identity.pid)
            if known is None or known.identity != user.view.identity:
                self._follower.process_gone(user.view.identity, self._clock.monotonic_ns())
