# SPDX-License-Identifier: Apache-2.0
"""The tracepoints of GPU drivers and of OOM kills, as one object: attach what exists, read, report, let go.

It comes up beside the counters, in a thread of its own, and the agent runs without it. Afterwards that thread
keeps house once a second: which descriptors are of GPU devices, which processes have gone. It judges nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from hotstage.clock import Clock
from hotstage.errors import HotstageError
from hotstage.probes.driver import readings
from hotstage.probes.driver.gpu_files import GpuFiles, find_gpu_files
from hotstage.probes.driver.ioctls import DEVICES
from hotstage.probes.driver.layouts import fields_of
from hotstage.probes.driver.modules import Modules
from hotstage.probes.driver.pieces import DTYPES, Attached, Layouts, Piece, Rows, attach
from hotstage.probes.driver.report import (
    DriverReport,
    EventReport,
    EventState,
    OomKill,
    QueueSubmit,
    SlowIoctl,
)
from hotstage.probes.driver.table import (
    FALLBACK,
    LAUNCH_CALLS,
    QUEUE_SUBMIT,
    TABLE,
    Choice,
    Event,
    Use,
    choose,
)
from hotstage.probes.loader.bcc_compiler import ORDINARY_LIMITS, CompileLimits, read_layouts
from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.maps.driver import OOM_KILL, SLOW_IOCTL, XID
from hotstage.probes.samples import XidEvent

KEPT = 32
"""OOM kills and slow ioctls that are remembered one by one."""
HOUSE_SECONDS = 1.0
LOOK_SECONDS = 10.0
"""How often the kernel's list of modules is looked at: a driver that comes later brings its tracepoints."""
FENCE_MAX_NS = 600_000_000_000
"""A fence that has neither signaled nor gone in ten minutes is forgotten: its end was lost."""

log = logging.getLogger(__name__)


class DriverWatch:
    """`start` returns at once; `drain` on the fast tick; `report` from any thread; `close` lets all go."""

    def __init__(
        self,
        clock: Clock,
        pids: Callable[[], Iterable[int]],
        *,
        ioctls: bool = False,
        slow_ioctl_ns: int = 0,
        proc_root: Path = Path("/proc"),
        objects: Path = OBJECTS,
        patterns: tuple[tuple[str, str], ...] = DEVICES,
        limits: CompileLimits = ORDINARY_LIMITS,
    ) -> None:
        """`pids`: processes whose descriptors are looked at for GPU devices, where `ioctls` are counted."""
        self._limits = limits
        self._clock = clock
        self._pids = pids
        self._has_ioctls = ioctls
        self._slow_ioctl_ns = slow_ioctl_ns
        self._proc_root = proc_root
        self._objects = objects
        self._patterns = patterns
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._ready = threading.Event()
        self._choice: Choice | None = None
        self._attached = Attached((), {})
        self._since_ns: dict[str, int] = {}
        self._modules = Modules(proc_root)
        self._looked_ns = 0
        self._files: GpuFiles = {}
        self._held: str | None = None
        self._holds = self._opened_after = 0  # what was opened before a hold is not taken in after it
        self._failure: HotstageError | OSError | None = None
        self._state = "off"
        self._reason: str | None = "switched off in the configuration"
        self._oom_kills_total = self._oom_kills_gpu_total = 0
        self._users: frozenset[int] = frozenset()  # who used a GPU a second ago
        self._gone_waits_ns = 0  # of processes whose entries were taken out
        self._oom_kills: deque[OomKill] = deque(maxlen=KEPT)
        self._slow_ioctls: deque[SlowIoctl] = deque(maxlen=KEPT)
        self._thread = threading.Thread(target=self._run, name="hotstage-driver", daemon=True)

    def start(self) -> None:
        self._state, self._reason = "starting", None
        self._thread.start()

    def wait(self, seconds: float) -> str:
        """The state once everything is attached or has failed, at the latest after `seconds`."""
        self._ready.wait(seconds)
        return self._state

    def drain(self) -> tuple[XidEvent, ...]:
        """XIDs that the driver's own tracepoint told since the last call, oldest first; OOM kills and slow
        ioctls are noted for the report.
        """
        xids: list[XidEvent] = []
        with self._lock:
            for piece in self._attached.pieces:
                records = piece.drain()
                xids += [readings.xid_event(row) for row in records[XID]]
                self._note_kills([readings.oom_kill(row) for row in records[OOM_KILL]])
                self._slow_ioctls.extend(
                    readings.slow_ioctl(row, self._patterns) for row in records[SLOW_IOCTL]
                )
        return tuple(xids)

    def _note_kills(self, kills: list[OomKill]) -> None:
        """With the lock held. Who is killed may be gone from the list of processes already."""
        if not kills:
            return
        users = self._users | frozenset(self._pids())
        self._oom_kills_total += len(kills)
        self._oom_kills_gpu_total += sum(kill.pid in users for kill in kills)
        self._oom_kills.extend(replace(kill, uses_gpu=kill.pid in users) for kill in kills)

    def lost(self) -> int:
        """Records and keys that found no room."""
        with self._lock:
            return sum(piece.lost() for piece in self._attached.pieces)

    def report(self, launches: int | None) -> DriverReport:
        """As of now; `launches` stand for `queue_submit` where no tracepoint does."""
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            stats, opened = self._rows("timelines"), self._rows("open_fences")
            waits, memory, ioctls = map(self._rows, ("fence_waits", "gpu_memory", "ioctl_stats"))
            hits = {name: found for piece in self._attached.pieces for name, found in piece.hits().items()}
            events = tuple(self._event(event, hits.get(event.event)) for event in TABLE)
            kills, is_told = self._is_attached("oom:mark_victim"), self._attached.lack is None
            ring_rows = self._rows("ring_submits")
            return DriverReport(
                state=self._state,
                reason=self._reason,
                remedy=getattr(self._failure, "remedy", None),
                queue_submit=self._queue_submit(events, launches),
                events=events,
                rings={} if ring_rows is None else readings.rings(ring_rows),
                timelines=None
                if stats is None or opened is None
                else readings.timelines(stats, opened, now_ns),
                fence_waits=None if waits is None else readings.fence_waits(waits),
                fence_wait_seconds_total=None if waits is None else self._waited_seconds(waits),
                memory=None if memory is None else readings.gpu_memory(memory),
                oom_kills_total=self._killed(events) if kills else None,
                oom_kills_gpu_total=self._oom_kills_gpu_total if kills and is_told else None,
                oom_kills=tuple(self._oom_kills) if kills and is_told else None,
                ioctls=None if ioctls is None else readings.ioctl_classes(ioctls, self._patterns),
                slow_ioctls=None if ioctls is None else tuple(self._slow_ioctls),
                lost=sum(piece.lost() for piece in self._attached.pieces),
            )

    def hold(self, reason: str | None) -> None:
        """Let go for that reason (a kill switch) at once; None: attach again within a second, counts anew.
        The same once more does nothing.
        """
        with self._lock:
            if reason == self._held:
                return
            self._held = reason
            self._failure = None
            if reason is None:
                self._state, self._reason = "starting", None
                return
            self._let_go()
            self._holds += 1
            self._state, self._reason = "off", reason

    def close(self) -> None:
        """Safe to call twice, and while it is still coming up."""
        self._end.set()
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        """With the lock held."""
        pieces, self._attached = self._attached.pieces, Attached((), {})
        self._choice, self._files = None, {}
        for piece in pieces:
            piece.close()

    # ---- in its own thread

    def _run(self) -> None:
        self._opened_after = -1
        while not self._end.is_set():
            with self._lock:
                is_held, holds = self._held is not None, self._holds
            if is_held:
                pass
            elif self._opened_after != holds:
                self._opened_after = holds
                self._modules.has_grown()
                self._try_to(self._open)
            else:
                self.keep_house()
                self.look_for_drivers()
            self._ready.set()
            self._end.wait(HOUSE_SECONDS)

    def _try_to(self, step: Callable[[], None]) -> None:
        """What fails now would fail again: it is told, and tried again after a hold or with a new driver."""
        try:
            step()
        except (HotstageError, OSError) as error:
            self._failure, self._reason = error, str(error)
            if not self._attached.pieces:
                self._state = "off"
            log.info("no tracepoints of GPU drivers", extra={"reason": str(error)})

    def _open(self) -> None:
        choice, layouts = self._chosen()
        with self._lock:
            self._choice = choice
        self._take_in(attach(choice, layouts, self._objects, self._limits))
        if self._has_ioctls:
            self.keep_house()

    def look_for_drivers(self) -> None:
        """Every ten seconds: a module that has come may have brought events. Those are attached beside the
        others, whose counts go on.
        """
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._looked_ns < LOOK_SECONDS * 1e9:
            return
        self._looked_ns = now_ns
        if self._modules.has_grown():
            self._try_to(self._join if self._choice is not None else self._open)

    def _join(self) -> None:
        before = self._choice.chosen if self._choice is not None else ()
        choice, layouts = self._chosen()
        fresh = tuple(event for event in choice.chosen if event not in before)
        if not fresh:
            return
        log.info("a driver has come", extra={"events": [event.event for event in fresh]})
        with self._lock:
            self._choice = Choice((*before, *fresh), choice.reasons)
        try:
            more = attach(Choice(fresh, choice.reasons), layouts, self._objects, self._limits)
        except (HotstageError, OSError) as error:
            more = Attached((), {**choice.reasons, **{event.event: str(error) for event in fresh}})
        self._take_in(more)

    def _chosen(self) -> tuple[Choice, Layouts]:
        wanted = [event.event for event in TABLE if event.use not in (Use.NONE, Use.ELSEWHERE)]
        texts = read_layouts(wanted)
        layouts = {event: fields_of(text) for event, text in texts.items() if text is not None}
        return choose(layouts, ioctls=self._has_ioctls), layouts

    def _take_in(self, more: Attached) -> None:
        """Beside what is attached already; nothing where all was let go meanwhile."""
        for piece in more.pieces:
            piece.set_slow_ioctl(self._slow_ioctl_ns)
        with self._lock:
            if self._end.is_set() or self._held is not None or self._opened_after != self._holds:
                for piece in more.pieces:
                    piece.close()
                return
            pieces, lack = (*self._attached.pieces, *more.pieces), self._attached.lack or more.lack
            chosen = {event.event for event in self._choice.chosen} if self._choice is not None else set()
            refused = {name: why for name, why in self._attached.reasons.items() if name in chosen}
            self._attached = Attached(pieces, {**refused, **more.reasons}, lack)
            now_ns = self._clock.monotonic_ns()
            self._since_ns |= {event.event: now_ns for piece in more.pieces for event in piece.events}
            self._state = "watching" if pieces else "off"
            self._reason = None if pieces else "no tracepoint of the list is here"
            if lack is not None:
                self._failure, self._reason = lack, f"counted alone: {lack}"

    def keep_house(self) -> None:
        """Tell the kernel of descriptors that came or went; take out what is of processes that have gone."""
        users = frozenset(self._pids())
        files = find_gpu_files(users, self._proc_root, self._patterns) if self._has_ioctls else {}
        with self._lock:
            self._users = users
            for piece in self._attached.pieces:
                self._tell_files(piece, files)
                self._forget_the_gone(piece)
        self._files = files

    def _tell_files(self, piece: Piece, files: GpuFiles) -> None:
        if piece.read("gpu_files") is None:
            return
        for (pid, fd), device in files.items() - self._files.items():
            with contextlib.suppress(OSError):  # the map is full: these are not counted
                piece.set_gpu_file(pid, fd, device)
        gone = [key for key in self._files if key not in files]
        if gone:
            piece.delete("gpu_files", np.array(gone, DTYPES["gpu_files"][0]))

    def _forget_the_gone(self, piece: Piece) -> None:
        waits = self._gone_rows(piece, "fence_waits")
        if waits is not None:
            self._gone_waits_ns += int(waits[1]["total_ns"].sum())
        for name, rows in (("fence_waits", waits), ("gpu_memory", self._gone_rows(piece, "gpu_memory"))):
            if rows is not None:
                piece.delete(name, rows[0])
        fences = piece.read("open_fences")
        if fences is not None and len(fences[0]):
            ages = self._clock.monotonic_ns() - fences[1]["emitted_ns"].astype(np.int64)
            piece.delete("open_fences", fences[0][ages > FENCE_MAX_NS])

    def _gone_rows(self, piece: Piece, name: str) -> Rows | None:
        """Rows of a map by process whose process has gone; None without any."""
        rows = piece.read(name)
        if rows is None or not len(rows[0]):
            return None
        has_gone = np.array(
            [bool(pid) and not (self._proc_root / str(pid)).exists() for pid in rows[0]["tgid"].tolist()]
        )
        return (rows[0][has_gone], rows[1][has_gone]) if has_gone.any() else None

    # ---- for the report; the lock is held

    def _waited_seconds(self, waits: Rows) -> float:
        return (self._gone_waits_ns + int(waits[1]["total_ns"].sum())) / 1e9

    def _rows(self, name: str) -> Rows | None:
        """Of the piece that has that map; rings are of every piece."""
        found = [rows for piece in self._attached.pieces if (rows := piece.read(name)) is not None]
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        return np.concatenate([keys for keys, _ in found]), np.concatenate([values for _, values in found])

    def _is_attached(self, name: str) -> bool:
        return any(event.event == name for piece in self._attached.pieces for event in piece.events)

    def _killed(self, events: Iterable[EventReport]) -> int | None:
        """As records came; where events are counted alone, as often as the event fired."""
        if self._attached.lack is None:
            return self._oom_kills_total
        return next(each.hits for each in events if each.event == "oom:mark_victim")

    def _event(self, event: Event, counted: tuple[int, int] | None) -> EventReport:
        """`counted`: its hits and when the last one was, 0: never; None unless it is attached."""
        hits, last_ns = counted or (None, None)
        return EventReport(
            event=event.event,
            logical=event.logical,
            gives=event.gives,
            state=self._state_of(event) if counted is None else EventState.ATTACHED,
            hits=hits,
            last_ns=last_ns or None,
            since_ns=None if counted is None else self._since_ns.get(event.event),
            reason=self._reason_of(event) if counted is None else None,
        )

    def _state_of(self, event: Event) -> EventState:
        if event.use in (Use.NONE, Use.ELSEWHERE):
            return EventState.UNUSED
        if self._choice is None:
            return EventState.STARTING if self._state == "starting" else EventState.OFF
        if event in self._choice.chosen:
            return EventState.STARTING if self._state == "starting" else EventState.REFUSED
        if event.use is Use.ON_REQUEST and not self._has_ioctls:
            return EventState.OFF
        return EventState.ABSENT

    def _reason_of(self, event: Event) -> str | None:
        known = self._attached.reasons or (self._choice.reasons if self._choice else {})
        return known.get(event.event, self._reason)

    def _queue_submit(self, events: Iterable[EventReport], launches: int | None) -> QueueSubmit:
        taken = next(
            (e for e in events if e.logical == QUEUE_SUBMIT and e.state is EventState.ATTACHED), None
        )
        if taken is not None:
            return QueueSubmit(taken.event, is_derived=False, count=taken.hits, reason=None)
        reason = (
            f"derived from {FALLBACK}: NVIDIA submits from user space, and no driver here has a tracepoint"
        )
        return QueueSubmit(LAUNCH_CALLS, is_derived=True, count=launches, reason=reason)
