# SPDX-License-Identifier: Apache-2.0
"""All that holds the probes back, as one object of the engine: what is denied, what is switched off, and what
has become too dear for its process.

It is told what the engine has loaded and attached, and says of a sample whether it may be believed.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from hotstage.clock import Clock
from hotstage.config.governor import GovernorConfig
from hotstage.config.settings import ProbesConfig
from hotstage.probes.counted import Counted
from hotstage.probes.discovery.watch import Watch
from hotstage.probes.loader.base import Loader
from hotstage.probes.maps.guarded import GuardedMaps
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.maps.levels import Level, LevelMaps, rest
from hotstage.probes.page_faults import Price
from hotstage.probes.restraint.books import RestrainedAttachments
from hotstage.probes.restraint.costs import Costs, calibrate
from hotstage.probes.restraint.deny import DenyList, HostVersions
from hotstage.probes.restraint.governor import CallClasses, Governor, GovernorView, Hits, Step, cpu_of
from hotstage.probes.samples import CallSample, FastSample, SchedulingSample

log = logging.getLogger(__name__)


class Restraint:
    """`let_go` and `take_up` at any time, before the start too; any thread may call."""

    def __init__(self, config: ProbesConfig, clock: Clock, governor: GovernorConfig | None = None) -> None:
        self._config = config
        self._clock = clock
        self._classes = CallClasses()
        self._levels: LevelMaps | None = None
        self._threads_fd = -1
        self._governor = Governor(governor or GovernorConfig(), Costs("not calibrated: nothing is loaded"))
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._told: Counter[int] = Counter()
        self._off: str | None = None
        self._lock = threading.Lock()
        self._books: RestrainedAttachments | None = None
        self._watch: Watch | None = None
        self._end_work: Callable[[Collection[int] | None], None] = lambda pids: None
        self.denies = DenyList.of(config.deny, HostVersions.read()).refusal
        """Why a library must not be probed; None: it may be."""

    def loaded(
        self, loader: Loader, fds: Mapping[str, int], maps: KernelMaps, page_fault: Price | None = None
    ) -> None:
        """The programs are in the kernel and attached to nothing: measure what they cost; `page_fault` was
        measured before, where they are counted.
        """
        self._levels, self._threads_fd = LevelMaps(fds), fds["threads"]
        costs = calibrate(
            loader,
            maps,
            self._levels,
            self._clock,
            launch_gap=self._config.kernel_gap,
            with_nvtx=self._config.nvtx_torch,
        )
        if page_fault is not None:
            costs = replace(costs, page_fault=page_fault.followed, other_page_fault=page_fault.others)
        if not self._config.stacks:
            costs = replace(costs, told=costs.told_bare)
        self._governor.costs = costs

    def follow(self, books: RestrainedAttachments, guarded: GuardedMaps, counted: Counted) -> None:
        """What is held back from now on, and where calls in flight are counted that nobody will see end."""
        threads_fd = self._threads_fd

        def end(pids: Collection[int] | None) -> None:
            with guarded.held() as maps:
                end_work(maps, threads_fd, counted, pids)

        self._books, self._end_work = books, end
        if self._off is not None:
            books.let_go(self._off)

    def watch(self, watch: Watch) -> None:
        """Who finds libraries again."""
        self._watch = watch

    @property
    def off(self) -> str | None:
        """Why nothing is attached; None while libraries are."""
        return self._off

    def let_go(self, reason: str) -> float:
        """Detach every library now and attach none until `take_up`; the seconds it took."""
        with self._lock:
            self._off = reason
            if self._books is None:
                return 0.0
            seconds = self._books.let_go(reason)
            self._end_work(None)
            return seconds

    def take_up(self) -> None:
        """Attach what there is, as at the start: new epochs, what lies between is unobserved."""
        with self._lock:
            self._off = None
            if self._books is not None:
                self._books.take_up()
            if self._watch is not None:
                self._watch.look_anew()

    def judged(self, sample: FastSample) -> FastSample:
        """The sample, marked where nothing new can be in it. Its told calls are noted for their cost."""
        self._told.update(sample.events["tgid"].tolist())
        return sample if self._off is None else replace(sample, is_blind=True)

    def govern(
        self, sample: CallSample, pids: Collection[int], scheduling: SchedulingSample | None = None
    ) -> list[Step]:
        """Once a second: what each process's probes cost, and the steps that follow. The kernel's levels are
        set at once; taking probes out or back is done beside the caller.
        """
        books, levels = self._books, self._levels
        if books is None or levels is None:
            return []
        if self._off is not None:
            self._governor.rest()
            return []
        counted = self._classes.hits(sample.keys, sample.stats, books.stepped_calls, sample.at_ns)
        marked = levels.hits()
        faults = scheduling.page_faults_by_pid() if scheduling is not None else {}
        hits: dict[int, tuple[int, Hits]] = {}
        for pid in pids:
            if (cpu := cpu_of(Path(self._config.proc_root), pid)) is None:
                continue
            marks, nvtx = marked.get(pid, (0, 0))
            found = counted.get(pid, Hits(sample.at_ns))
            more = {"page_faults": faults.get(pid, 0), "told": self._told[pid]}
            hits[pid] = cpu[0], replace(found, cpu_ns=cpu[1], marks=marks, nvtx=nvtx, **more)
        self._told = Counter({pid: self._told[pid] for pid in hits})
        steps = self._governor.advance(sample.at_ns, hits)
        for step in steps:
            self._carry_out(step, levels)
        return steps

    def withdraw(self, pid: int, reason: str) -> None:
        """Take every probe out of one process; `restore` undoes it."""
        if (books := self._books) is not None:
            books.withdraw(pid, reason)
            self._end_work([pid])

    def restore(self, pid: int) -> None:
        """Probe it again: a new epoch."""
        if (books := self._books) is not None:
            books.restore(pid)

    @property
    def spared(self) -> str | None:
        """Why page faults are not to be counted for now; None: no process is below level `full`."""
        return self._governor.spared()

    def view(self) -> GovernorView:
        """What the governor knows; of no process while nothing is attached."""
        view = self._governor.view()
        return view if self._off is None else replace(view, processes=())

    def forget(self, pids: Collection[int]) -> None:
        """Processes that are gone."""
        if self._levels is not None:
            self._levels.forget(pids)

    def close(self) -> None:
        """Nothing is asked of the engine's parts any more."""
        if self._worker is not None:
            self._jobs.put(None)
            self._worker.join(10.0)
            self._worker = None
        self._books = self._watch = self._levels = None

    def _carry_out(self, step: Step, levels: LevelMaps) -> None:
        log.warning(
            "probes of a process are now at level %s",
            step.level.name,
            extra={"pid": step.pid, "before": step.before.name, "reason": step.reason},
        )
        if step.level is not Level.detached:
            try:
                levels.set(step.pid, step.level)
            except OSError as error:
                log.error("a level cannot be set", extra={"pid": step.pid, "reason": str(error)})
        if step.level is Level.detached:
            reason = f"let go for process {step.pid}: {step.reason}"
            self._later(lambda: self.withdraw(step.pid, reason))
        elif step.before is Level.detached:
            self._later(lambda: self.restore(step.pid))

    def _later(self, job: Callable[[], None]) -> None:
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="hotstage-governor", daemon=True)
            self._worker.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # one process that cannot be let go must not keep all others
                log.exception("probes cannot be taken out or back")


def end_work(maps: KernelMaps, threads_fd: int, counted: Counted, pids: Collection[int] | None) -> None:
    """What processes (None: all) had in flight when their probes went: calls are made and counted, requests
    are gone, no thread is in a stage, and of their memory nothing is known from here on. Only while no
    program runs for them; the caller holds the maps' lock.
    """
    threads = maps.threads()
    if pids is not None:
        threads = threads[np.isin(threads["tgid"], np.fromiter(pids, np.uint32, len(pids)))]
    counted.keep_open_calls(threads)
    rest(threads_fd, threads)
    maps.drop_requests(pids)
    maps.drop_memory(pids)
