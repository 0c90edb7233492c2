# SPDX-License-Identifier: Apache-2.0
"""What one look at the host gave: load, memory, pressure, and the share of each watched process. No
behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """One process since the sample before; NaN where there was none or the number is unknown.

    `cpu_load_ratio` is `cpu_cores` ÷ (its cgroup's CPU quota, or all cores of the host);
    `memory_load_ratio` is `rss_bytes` ÷ (its cgroup's memory limit, or the host's memory). A quota can be
    overdrawn for a moment: ratios are not cut at 1.
    """

    pid: int
    cpu_cores: float
    rss_bytes: float
    cpu_load_ratio: float
    memory_load_ratio: float

    @property
    def load_ratio(self) -> float:
        """The seed's instance load: the mean of CPU and memory load; NaN unless both are known."""
        return (self.cpu_load_ratio + self.memory_load_ratio) / 2


@dataclass(frozen=True, slots=True)
class HostSample:
    """One look at the host. `at_ns` is CLOCK_MONOTONIC at its start; ratios are 0..1 over the time since
    the sample before; NaN is unknown (first sample, no such file).

    `*_stall_ratio`: share of the time in which at least one task waited for that resource (PSI `some`);
    `memory_full_stall_ratio`: in which all did.
    """

    at_ns: int
    cores: int
    cpu_ratio: float
    memory_total_bytes: float
    memory_used_ratio: float
    cpu_stall_ratio: float
    memory_stall_ratio: float
    memory_full_stall_ratio: float
    io_stall_ratio: float
    processes: Mapping[int, ProcessLoad]
