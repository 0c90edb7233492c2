# SPDX-License-Identifier: Apache-2.0
"""The servers' quotas are real: who watches the host sees them, and they go with their servers."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.host.limits import read_limits
from hotstage.host.sampler import HostSampler

pytestmark = pytest.mark.kernel

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def imposed(run):
    """instance → quota, as the host said; where it could not, it warned of each."""
    said = {event["instance"]: event for event in run.events if event["event"] == "quota"}
    warned = [event["message"] for event in run.events if event["event"] == "warning"]
    if not said:
        assert len([message for message in warned if "no cgroup" in message]) == 2
        pytest.skip(f"this machine lends no cgroups: {warned[0]}")
    return said


def groups_of(host_pid):
    return [path for path in CGROUPS.rglob(f"hotstage-sim-{host_pid}-*") if path.is_dir()]


def test_the_host_sampler_sees_each_servers_limits_and_its_load_within_them(start):
    run = start()
    quotas = imposed(run)
    sampler = HostSampler(SystemClock())
    run.say("go")
    run.until("traffic")
    sampler.sample(run.pids)
    time.sleep(1.5)
    loads = sampler.sample(run.pids).processes
    for event in (event for event in run.events if event["event"] == "instance"):
        quota, load = quotas[event["instance"]], loads[event["pid"]]
        limits = read_limits(event["pid"], PROC, CGROUPS)
        assert (limits.cores, limits.memory_bytes) == (quota["cores"], quota["memory_bytes"])
        assert load.memory_load_ratio == pytest.approx(load.rss_bytes / quota["memory_bytes"])
        assert math.isclose(load.cpu_load_ratio, load.cpu_cores / quota["cores"])
        assert 0.1 < load.memory_load_ratio < 0.75
    assert len({quota["memory_bytes"] for quota in quotas.values()}) == 2
    assert groups_of(run.process.pid)
    run.finish()
    assert groups_of(run.process.pid) == []


def test_twice_the_load_is_never_throttled(start):
    run = start("--fault", "load-ramp@0-60")
    imposed(run)
    run.say("go")
    run.until("traffic")
    time.sleep(5)
    stats = [path / "cpu.stat" for path in groups_of(run.process.pid) if (path / "cpu.stat").exists()]
    counts = [dict(line.split() for line in stat.read_text().splitlines()) for stat in stats]
    assert len(counts) == 2
    assert all(int(count["nr_periods"]) > 0 for count in counts)
    assert [int(count["nr_throttled"]) for count in counts] == [0, 0]


def test_what_a_killed_host_leaves_is_removed_by_the_next(start):
    run = start()
    imposed(run)
    left = groups_of(run.process.pid)
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait(5)
    deadline = time.monotonic() + 5
    while any((path / "cgroup.procs").read_text().strip() for path in left):
        assert time.monotonic() < deadline, f"waited 5 s for the servers in {left} to end"
        time.sleep(0.02)
    start().finish()
    assert groups_of(run.process.pid) == []
