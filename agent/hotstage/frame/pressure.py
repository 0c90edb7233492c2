# SPDX-License-Identifier: Apache-2.0
"""Pressure, throttling, memory events, page faults of host, instances and processes → cells. Never judges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.served import Cells
from hotstage.host.samples import CgroupLoad, HostSample, PressureSample, ProcessLoad, Stall

_RATIOS = {
    "stall_ratio": "some_ratio",
    "full_stall_ratio": "full_ratio",
    "stall_avg10_ratio": "some_avg10_ratio",
    "full_stall_avg10_ratio": "full_avg10_ratio",
}
_EVENTS = {
    "memory_high_events": "high",
    "memory_max_events": "max",
    "oom_events": "oom",
    "oom_kill_events": "oom_kill",
}


def fill_pressure(host: HostSample, pids: Mapping[str, Iterable[int]], cells: Cells) -> None:
    """`pids`: instance → its processes, those of none under the empty name.

    An instance in several cgroups has the worst of their ratios and the sum of what can be summed.
    """
    if host.pressure is not None:
        _put_stalls(cells[HOST], [host.pressure.host])
    for instance, own in pids.items():
        known = [pid for pid in own if pid in host.processes]
        for pid in known:
            cell = cells.setdefault(Entity(EntityKind.process, pid=pid), {})
            _put(cell, [host.processes[pid]], _cgroups(host.pressure, [pid]))
        if instance and known:
            cell = cells.setdefault(Entity(EntityKind.instance, instance=instance), {})
            _put(cell, [host.processes[pid] for pid in known], _cgroups(host.pressure, known))


def _cgroups(pressure: PressureSample | None, pids: Iterable[int]) -> list[CgroupLoad]:
    if pressure is None:
        return []
    return [
        pressure.cgroups[name]
        for name in {pressure.cgroup_of[pid] for pid in pids if pid in pressure.cgroup_of}
    ]


def _put(cell: dict[str, float], loads: Sequence[ProcessLoad], cgroups: Sequence[CgroupLoad]) -> None:
    cell["minor_fault_rate"] = sum(load.minor_fault_rate for load in loads)
    cell["major_fault_rate"] = sum(load.major_fault_rate for load in loads)
    if not cgroups:
        return
    cell["cpu_throttled_ratio"] = _worst(each.throttled_ratio for each in cgroups)
    cell["cpu_throttled_cpus"] = _sum(each.throttled_cpus for each in cgroups)
    cell["cgroup_memory_bytes"] = _sum(each.memory_bytes for each in cgroups)
    cell["cgroup_memory_high_bytes"] = _sum(each.memory_high_bytes for each in cgroups)
    cell["cgroup_memory_max_bytes"] = _sum(each.memory_max_bytes for each in cgroups)
    for column, event in _EVENTS.items():
        cell[column] = _sum(each.events.get(event, math.nan) for each in cgroups)
    _put_stalls(cell, [each.stalls for each in cgroups])


def _put_stalls(cell: dict[str, float], stalls: Sequence[Mapping[str, Stall]]) -> None:
    for resource in ("cpu", "memory", "io"):
        told = [each[resource] for each in stalls if resource in each]
        for column, name in _RATIOS.items():
            cell[f"{resource}_{column}"] = _worst(getattr(each, name) for each in told)


def _worst(values: Iterable[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _sum(values: Iterable[float]) -> float:
    """Of those that are known; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) if known else math.nan
