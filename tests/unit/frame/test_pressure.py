# SPDX-License-Identifier: Apache-2.0
import math

from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.pressure import fill_pressure
from hotstage.host.samples import CgroupLoad, HostSample, PressureSample, ProcessLoad, Stall

NAN = math.nan


def load(pid, minor=4.0, major=1.0):
    return ProcessLoad(pid, 1.0, 1.0, 0.5, 0.5, minor, major)


def cgroup(throttled=NAN, memory=NAN, events=None, cpu=None):
    stalls = {} if cpu is None else {"cpu": Stall(cpu, NAN, cpu / 2, NAN)}
    return CgroupLoad(throttled, NAN, memory, NAN, NAN, events or {}, stalls)


def filled(pressure, pids):
    cells = {HOST: {}}
    loads = {pid: load(pid) for own in pids.values() for pid in own}
    fill_pressure(HostSample(1, 4, 0.5, 1.0, 0.5, loads, pressure), pids, cells)
    return cells


def of(instance):
    return Entity(EntityKind.instance, instance=instance)


def test_an_instance_in_several_cgroups_has_the_worst_ratio_and_the_sum_of_bytes():
    pressure = PressureSample(
        1,
        {"memory": Stall(0.25, 0.125, 0.1, 0.05)},
        {"a": cgroup(0.1, 100, {"oom_kill": 1}, 0.2), "b": cgroup(0.4, 50, {"oom_kill": 2, "high": 3}, 0.1)},
        {7: "a", 8: "b", 9: "b"},
    )
    cells = filled(pressure, {"i-0": [7, 8, 9], "": [10]})
    assert cells[HOST]["memory_stall_ratio"] == 0.25
    assert math.isnan(cells[HOST]["cpu_stall_ratio"])
    cell = cells[of("i-0")]
    assert (cell["cpu_throttled_ratio"], cell["cgroup_memory_bytes"]) == (0.4, 150)
    assert (cell["oom_kill_events"], cell["memory_high_events"]) == (3, 3)
    assert math.isnan(cell["oom_events"])
    assert (cell["cpu_stall_ratio"], cell["minor_fault_rate"], cell["major_fault_rate"]) == (0.2, 12, 3)
    alone = cells[Entity(EntityKind.process, pid=10)]
    assert alone["minor_fault_rate"] == 4 and "cpu_throttled_ratio" not in alone


def test_without_pressure_there_are_faults_and_nothing_else():
    cells = filled(None, {"i-0": [7]})
    assert cells[HOST] == {}
    assert cells[of("i-0")] == {"minor_fault_rate": 4, "major_fault_rate": 1}
