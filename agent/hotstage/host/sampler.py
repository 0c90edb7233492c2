# SPDX-License-Identifier: Apache-2.0
"""The host's CPU and memory, and the share of watched processes, read from `/proc` once a second.

Keeps the counters of the look before, nothing else; judges nothing. Its cost is bounded: a few files of the
host and one of each watched process, at most `PROCESSES_LIMIT` of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from hotstage.clock import Clock
from hotstage.host.limits import Limits, read_limits
from hotstage.host.samples import HostSample, PressureSample, ProcessLoad
from hotstage.small_files import text_of

PROCESSES_LIMIT = 1024
LIMITS_AGE_NS = 30_000_000_000
"""How long a process's cgroup limits are believed."""


@dataclass(frozen=True, slots=True)
class _Usage:
    """Counters of one life of a process."""

    start_ticks: int
    at_ns: int
    cpu_ticks: int
    rss_bytes: int
    minor_faults: int
    major_faults: int


class HostSampler:
    """`sample` once a second; the first one knows no rates. Not thread-safe."""

    def __init__(
        self,
        clock: Clock,
        proc_root: Path = Path("/proc"),
        cgroup_root: Path = Path("/sys/fs/cgroup"),
        pressure: Callable[[Collection[int]], PressureSample | None] = lambda pids: None,
    ) -> None:
        """`pressure`: what is known of it now, asked for these processes; it must not wait."""
        self._clock = clock
        self._pressure = pressure
        self._proc = proc_root
        self._cgroups = cgroup_root
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._cpu: tuple[int, int] | None = None
        self._usage: dict[int, _Usage] = {}
        self._limits: dict[int, tuple[int, int, Limits]] = {}

    def sample(self, pids: Iterable[int] = ()) -> HostSample:
        """The host, and of `pids` those that still live."""
        at_ns = self._clock.monotonic_ns()
        cores, cpu_ratio = self._read_cpu()
        total, available = self._read_memory()
        watched = sorted(set(pids))[:PROCESSES_LIMIT]
        processes = {
            pid: load for pid in watched if (load := self._read_process(pid, cores, total)) is not None
        }
        self._usage = {pid: usage for pid, usage in self._usage.items() if pid in processes}
        self._limits = {pid: entry for pid, entry in self._limits.items() if pid in processes}
        return HostSample(
            at_ns=at_ns,
            cores=cores,
            cpu_ratio=cpu_ratio,
            memory_total_bytes=total,
            memory_used_ratio=(total - available) / total if total > 0 else math.nan,
            processes=processes,
            pressure=self._pressure(watched),
        )

    def _read_cpu(self) -> tuple[int, float]:
        """(cores online, busy share since the last look). Waiting for I/O counts as idle; guests are in
        `user`.
        """
        lines = [line.split() for line in self._text("stat").splitlines() if line.startswith("cpu")]
        cores = max(len(lines) - 1, 0)
        if not lines or len(lines[0]) < 9:
            return cores, math.nan
        ticks = [int(field) for field in lines[0][1:9]]
        now = (sum(ticks), ticks[3] + ticks[4])
        before, self._cpu = self._cpu, now
        if before is None or now[0] <= before[0]:
            return cores, math.nan
        idle_ratio = (now[1] - before[1]) / (now[0] - before[0])
        return cores, min(max(1 - idle_ratio, 0.0), 1.0)

    def _read_memory(self) -> tuple[float, float]:
        """(total, available) bytes; NaN when unknown."""
        kilobytes: dict[str, float] = {}
        for line in self._text("meminfo").splitlines()[:8]:
            name, _, rest = line.partition(":")
            amount = rest.split()
            if amount and amount[0].isdecimal():
                kilobytes[name] = int(amount[0]) * 1024.0
        return kilobytes.get("MemTotal", math.nan), kilobytes.get("MemAvailable", math.nan)

    def _read_process(self, pid: int, cores: int, memory_total: float) -> ProcessLoad | None:
        usage = self._read_usage(pid)
        if usage is None:
            return None
        before = self._usage.get(pid)
        self._usage[pid] = usage
        cpu_cores = minor_rate = major_rate = math.nan
        if before is not None and before.start_ticks == usage.start_ticks and usage.at_ns > before.at_ns:
            seconds = (usage.at_ns - before.at_ns) / 1e9
            cpu_cores = (usage.cpu_ticks - before.cpu_ticks) / self._ticks_per_second / seconds
            minor_rate = (usage.minor_faults - before.minor_faults) / seconds
            major_rate = (usage.major_faults - before.major_faults) / seconds
        limits = self._limits_of(pid, usage)
        core_limit = _tightest(limits.cores, cores or math.nan)
        memory_limit = _tightest(limits.memory_bytes, memory_total)
        return ProcessLoad(
            pid=pid,
            cpu_cores=cpu_cores,
            rss_bytes=float(usage.rss_bytes),
            cpu_load_ratio=cpu_cores / core_limit,
            memory_load_ratio=usage.rss_bytes / memory_limit,
            minor_fault_rate=minor_rate,
            major_fault_rate=major_rate,
        )

    def _read_usage(self, pid: int) -> _Usage | None:
        at_ns = self._clock.monotonic_ns()
        fields = self._text(f"{pid}/stat").rpartition(")")[2].split()
        if len(fields) < 22 or fields[0] in ("Z", "X", "x"):
            return None
        return _Usage(
            start_ticks=int(fields[19]),
            at_ns=at_ns,
            cpu_ticks=int(fields[11]) + int(fields[12]),
            rss_bytes=int(fields[21]) * self._page_bytes,
            minor_faults=int(fields[7]),
            major_faults=int(fields[9]),
        )

    def _limits_of(self, pid: int, usage: _Usage) -> Limits:
        known = self._limits.get(pid)
        if known and known[0] == usage.start_ticks and usage.at_ns - known[1] < LIMITS_AGE_NS:
            return known[2]
        limits = read_limits(pid, self._proc, self._cgroups)
        self._limits[pid] = (usage.start_ticks, usage.at_ns, limits)
        return limits

    def _text(self, name: str) -> str:
        return text_of(f"{self._proc}/{name}")


def _tightest(limit: float | None, whole_host: float) -> float:
    """A limit above what the host has is none; NaN when neither is known."""
    if not limit:
        return whole_host
    return limit if math.isnan(whole_host) else min(limit, whole_host)
