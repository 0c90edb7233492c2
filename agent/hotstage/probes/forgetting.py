# SPDX-License-Identifier: Apache-2.0
"""Takes out of the kernel, and of whoever keeps something by process, what belongs to the gone.

Exact sums are kept; everything else of a process goes with it. Once a second, while the maps are held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from hotstage.probes.counted import Counted
from hotstage.probes.departures import Departures
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.scheduler import Scheduler
from hotstage.probes.told import ToldByProcesses


class Forgetting:
    """`advance` on the slow tick, after its read."""

    def __init__(
        self,
        departures: Departures,
        counted: Counted,
        told: ToldByProcesses,
        scheduler: Scheduler,
        by_process: Sequence[Callable[[Collection[int]], None]],
        proc_root: Path,
    ) -> None:
        """`by_process`: those that keep something by process, called with the pids that have gone."""
        self._departures = departures
        self._counted = counted
        self._told = told
        self._scheduler = scheduler
        self._by_process = by_process
        self._proc_root = proc_root

    def advance(self, maps: KernelMaps, now_ns: int) -> None:
        """Those that went long enough ago, and those that nobody saw go."""
        names = maps.stage_names()
        for pid in {*maps.request_counts(), *maps.holders(), *(pid for pid, _ in names)}:
            if not self._is_in_use(pid):  # it may have come and gone before discovery looked
                self._departures.process_missing(pid, now_ns)
        pids, threads = self._departures.due(now_ns)
        if pids:
            self._told.keep_names(names, pids)
            self._counted.keep(maps.forget_processes(pids), pids)
            for forget in self._by_process:
                forget(pids)
        tids = [tid for _, tid in threads if not self._is_in_use(tid)]
        self._scheduler.forget(pids, tids)
        if tids:
            self._counted.keep_threads(maps.forget_threads(tids))

    def _is_in_use(self, tid: int) -> bool:
        """Whether any thread has this id now: procfs answers for threads, too, it only does not list them."""
        return (self._proc_root / str(tid)).exists()
