# SPDX-License-Identifier: Apache-2.0
"""Threads in the GPU path and the CPU: what they wait for it, why they are off it; reads `bpf/sched.bpf.c`.

Runs beside the counters of either compiler, or not at all, and then says why. It judges nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from hotstage.errors import HotstageError
from hotstage.probes.coverage import Side
from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.loader.typed_tracepoints import TypedTracepoints
from hotstage.probes.maps.histograms import HistogramSlots
from hotstage.probes.maps.scheduling import SchedulingMaps
from hotstage.probes.page_faults import PageFaults
from hotstage.probes.samples import SchedulingSample

SHARED_MAPS = ("threads", "call_histograms", "free_histograms", "losses")
OWN_MAPS = ("cpu_threads", "cpu_stats")
SWITCHES = ("thread_left",)
RECLAIMS = ("host_reclaim_begin", "host_reclaim_end", "cgroup_reclaim_begin", "cgroup_reclaim_end")

log = logging.getLogger(__name__)


class Scheduler:
    """`start` once the counters are loaded; `side` says what it runs through, or why not. Not thread-safe."""

    def __init__(self, objects: Path = OBJECTS) -> None:
        self._objects = objects
        self._programs: TypedTracepoints | None = None
        self._maps: SchedulingMaps | None = None
        self._held: dict[str, str] = {}
        self._without: str | None = None
        self.side = Side("off", None, "switched off in the configuration")
        self.page_faults = PageFaults(objects)
        """On request; its counts are in the same rows."""

    def start(self, maps: Mapping[str, int], histograms: HistogramSlots, *, threads: int) -> None:
        """`maps`: descriptors of the counters' maps, `threads`: how many threads are followed at most."""
        shared = {name: maps[name] for name in SHARED_MAPS}
        reasons: list[str] = []
        for programs in ((*SWITCHES, *RECLAIMS), SWITCHES):  # a kernel without these tracepoints has switches
            try:
                loaded = TypedTracepoints(
                    self._objects / "sched.bpf.o", programs, entries={"cpu_threads": threads}, shared=shared
                )
                self._programs = loaded
                loaded.attach()
            except (HotstageError, OSError) as error:
                reasons.append(str(error))
                self.close()
                continue
            self._maps = SchedulingMaps(loaded.map_fd("cpu_threads"), loaded.map_fd("cpu_stats"), histograms)
            self._without = f"without reclaim of memory: {reasons[0]}" if reasons else None
            self.side = Side("watching", "libbpf", self._without)
            return
        log.info("no waits for a CPU", extra={"reason": reasons[-1]})
        self.side = Side("off", None, reasons[-1], "see `hotstage doctor`; the rest is counted without it")

    def start_page_faults(self, maps: Mapping[str, int]) -> None:
        """Count them, too, from now on; `maps` as in `start`, which comes first."""
        if self._programs is None or self._maps is None:
            self.page_faults.side = Side(
                "off", None, "it needs [probes] scheduler, whose stages it counts into"
            )
            return
        own = {name: self._programs.map_fd(name) for name in OWN_MAPS}
        self.page_faults.start({**{name: maps[name] for name in SHARED_MAPS}, **own})
        self._maps.forget_processes([os.getpid()])  # what was counted to learn its price

    def hold(self, who: str, reason: str | None) -> None:
        """Look at no switch while anybody has a reason not to; None takes back what `who` said.

        Sums stay. What lies between is in none of them: threads are met anew. Nothing happens where `start`
        found no way; where the kernel refuses to attach again, `side` says so and the next call tries anew.
        """
        self.page_faults.hold(who, reason)
        if reason is None:
            self._held.pop(who, None)
        else:
            self._held[who] = reason
        if self._programs is None or self._maps is None or self._programs.is_attached == (not self._held):
            return
        if self._held:
            self._programs.detach()
            self.side = Side("off", "libbpf", "; ".join(self._held.values()))
            return
        self._maps.begin_anew()
        try:
            self._programs.attach()
        except HotstageError as error:
            self.side = Side("off", "libbpf", error.message)
        else:
            self.side = Side("watching", "libbpf", self._without)

    def read(self, at_ns: int) -> SchedulingSample | None:
        """Sums as of now; None where nothing is watched. For the slow tick."""
        if self._maps is None or self._programs is None or not self._programs.is_attached:
            return None
        return self._maps.read(at_ns, self.page_faults.epoch)

    def forget(self, pids: Collection[int], tids: Collection[int]) -> None:
        """Let go of the entries of processes and threads that have ended."""
        if self._maps is None:
            return
        if pids:
            self._maps.forget_processes(pids)
        if tids:
            self._maps.forget_threads(tids)

    def bytes_by_map(self) -> dict[str, int]:
        """Kernel memory of its own maps."""
        return self._maps.bytes_by_map() if self._maps is not None else {}

    def close(self) -> None:
        """Detach and let go; safe to call twice."""
        self.page_faults.close()
        programs, self._programs, self._maps = self._programs, None, None
        if programs is not None:
            programs.close()
