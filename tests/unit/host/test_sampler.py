# SPDX-License-Identifier: Apache-2.0
"""Host and process load from a fake `/proc`, compared with hand-computed ratios."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from hotstage.host.sampler import HostSampler

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class FakeHost:
    """Four cores, 1 GiB, one process."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.cgroups = root / "cgroup"
        (self.proc / "42").mkdir(parents=True)
        self.cgroups.mkdir()
        self.set_cpu(busy=1000, idle=9000)
        self.set_process(cpu_ticks=100)
        (self.proc / "meminfo").write_text("MemTotal: 1048576 kB\nMemFree: 1 kB\nMemAvailable: 786432 kB\n")
        (self.proc / "42" / "cgroup").write_text("0::/box\n")

    def set_cpu(self, *, busy: int, idle: int) -> None:
        cores = "".join(f"cpu{n} 0 0 0 0 0 0 0 0 0 0\n" for n in range(4))
        (self.proc / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n{cores}intr 1\n")

    def set_process(
        self,
        *,
        cpu_ticks: int,
        pages: int = 1000,
        start: int = 5,
        state: str = "S",
        minor: int = 0,
        major: int = 0,
    ) -> None:
        faults = [str(minor), "0", str(major), "0"]
        fields = [
            state,
            *("0",) * 6,
            *faults,
            str(cpu_ticks),
            "0",
            *("0",) * 6,
            str(start),
            "0",
            str(pages),
            "0",
        ]
        (self.proc / "42" / "stat").write_text(f"42 (a b) c) {' '.join(fields)}\n")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def sampler(host: FakeHost, clock: Any) -> HostSampler:
    return HostSampler(clock, host.proc, host.cgroups)


def test_the_first_sample_knows_amounts_but_no_rates(sampler: HostSampler) -> None:
    sample = sampler.sample([42])
    assert sample.cores == 4
    assert sample.memory_used_ratio == pytest.approx(0.25)
    assert math.isnan(sample.cpu_ratio)
    assert math.isnan(sample.processes[42].cpu_cores)
    assert math.isnan(sample.processes[42].load_ratio)
    assert sample.processes[42].rss_bytes == 1000 * PAGE


def test_rates_are_over_the_time_between_two_samples(
    sampler: HostSampler, host: FakeHost, clock: Any
) -> None:
    sampler.sample([42])
    clock.advance(2.0)
    host.set_cpu(busy=1000 + 300, idle=9000 + 100)
    host.set_process(cpu_ticks=100 + 3 * TICKS, minor=40, major=3)
    sample = sampler.sample([42])
    assert sample.cpu_ratio == pytest.approx(0.75)
    process = sample.processes[42]
    assert (process.minor_fault_rate, process.major_fault_rate) == (20, 1.5)
    process = sample.processes[42]
    assert process.cpu_cores == pytest.approx(1.5)
    assert process.cpu_load_ratio == pytest.approx(1.5 / 4)
    assert process.memory_load_ratio == pytest.approx(1000 * PAGE / (1 << 30))
    assert process.load_ratio == pytest.approx((1.5 / 4 + 1000 * PAGE / (1 << 30)) / 2)


def test_a_cgroup_limit_is_what_load_is_measured_against(
    sampler: HostSampler, host: FakeHost, clock: Any
) -> None:
    (host.cgroups / "box").mkdir()
    (host.cgroups / "box" / "cpu.max").write_text("200000 100000\n")
    (host.cgroups / "box" / "memory.max").write_text(f"{2000 * PAGE}\n")
    sampler.sample([42])
    clock.advance(1.0)
    host.set_process(cpu_ticks=100 + TICKS)
    process = sampler.sample([42]).processes[42]
    assert process.cpu_load_ratio == pytest.approx(0.5)
    assert process.memory_load_ratio == pytest.approx(0.5)


def test_a_reborn_pid_has_no_rate(sampler: HostSampler, host: FakeHost, clock: Any) -> None:
    sampler.sample([42])
    clock.advance(1.0)
    host.set_process(cpu_ticks=900, start=6)
    assert math.isnan(sampler.sample([42]).processes[42].cpu_cores)


def test_the_dead_and_the_unknown_are_absent(sampler: HostSampler, host: FakeHost) -> None:
    host.set_process(cpu_ticks=1, state="Z")
    assert sampler.sample([42, 4711]).processes == {}


def test_what_the_kernel_does_not_say_is_nan(sampler: HostSampler, host: FakeHost) -> None:
    (host.proc / "meminfo").unlink()
    (host.proc / "stat").unlink()
    sample = sampler.sample([42])
    assert (sample.cores, math.isnan(sample.cpu_ratio), math.isnan(sample.memory_used_ratio)) == (
        0,
        True,
        True,
    )
    assert math.isnan(sample.processes[42].memory_load_ratio)
