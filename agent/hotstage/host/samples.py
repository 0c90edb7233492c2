# SPDX-License-Identifier: Apache-2.0
"""What one look at the host gave: load, memory, pressure, and the share of each watched process and its
cgroup. No behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """One process since the sample before; NaN where there was none or the number is unknown.

    `cpu_load_ratio` is `cpu_cores` ÷ (its cgroup's CPU quota, or all cores of the host);
    `memory_load_ratio` is `rss_bytes` ÷ (its cgroup's memory limit, or the host's memory). A quota can be
    overdrawn for a moment: ratios are not cut at 1. A minor fault found its page in memory, a major one
    waited for a disk.
    """

    pid: int
    cpu_cores: float
    rss_bytes: float
    cpu_load_ratio: float
    memory_load_ratio: float
    minor_fault_rate: float = math.nan
    major_fault_rate: float = math.nan

    @property
    def load_ratio(self) -> float:
        """The seed's instance load: the mean of CPU and memory load; NaN unless both are known."""
        return (self.cpu_load_ratio + self.memory_load_ratio) / 2


@dataclass(frozen=True, slots=True)
class Stall:
    """Pressure by one resource (PSI): share of the time in which at least one task (`some`), or all that were
    not idle (`full`), stood still for it. 0..1; NaN is unknown.

    Over the time since the look before, and as the kernel's mean of some ten seconds.
    """

    some_ratio: float
    full_ratio: float
    some_avg10_ratio: float
    full_avg10_ratio: float


@dataclass(frozen=True, slots=True)
class CgroupLoad:
    """What holds one cgroup back. NaN is unknown, or for a limit: there is none; an event that the kernel
    does not tell is not among `events`.

    `throttled_ratio`: of the quota's periods since the look before, those in which it was used up, here or in
    a cgroup around it; `throttled_cpus`: CPUs on which tasks were held back for that, on average.
    `events`: `high`, `max`, `oom`, `oom_kill`, since the cgroup was made (cgroup v1: `max`, `oom_kill`).
    `stalls`: by `cpu`, `memory`, `io`, those that the kernel tells.
    """

    throttled_ratio: float
    throttled_cpus: float
    memory_bytes: float
    memory_high_bytes: float
    memory_max_bytes: float
    events: Mapping[str, float]
    stalls: Mapping[str, Stall]


@dataclass(frozen=True, slots=True)
class PressureSample:
    """One look at the pressure on the host and on the cgroups of watched processes. `at_ns` is its end, in
    CLOCK_MONOTONIC.

    `cgroups` is by a name of the cgroup that means nothing outside; `cgroup_of` says which is a process's.
    `left_out`: cgroups beyond the limit of one look.
    """

    at_ns: int
    host: Mapping[str, Stall]
    cgroups: Mapping[str, CgroupLoad]
    cgroup_of: Mapping[int, str]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class HostSample:
    """One look at the host. `at_ns` is CLOCK_MONOTONIC at its start; ratios are 0..1 over the time since
    the sample before; NaN is unknown (first sample, no such file). `pressure` is None while it is not known.
    """

    at_ns: int
    cores: int
    cpu_ratio: float
    memory_total_bytes: float
    memory_used_ratio: float
    processes: Mapping[int, ProcessLoad]
    pressure: PressureSample | None = None
