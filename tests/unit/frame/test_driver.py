# SPDX-License-Identifier: Apache-2.0
"""Two reports a second apart → columns; what is not attached has none."""

from __future__ import annotations

import math

import pytest

from hotstage.frame.driver import DriverRates
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.served import Cells
from hotstage.probes.driver.report import (
    DriverReport,
    FenceWaits,
    GpuMemory,
    IoctlClass,
    QueueSubmit,
    Timeline,
)

SECOND = 1_000_000_000
SERVER = Entity(EntityKind.process, pid=7)


def report(**changed: object) -> DriverReport:
    values: dict[str, object] = {
        "state": "watching", "reason": None, "remedy": None,
        "queue_submit": QueueSubmit("cuLaunch*", is_derived=True, count=100, reason=None),
        "events": (), "rings": {}, "timelines": None, "fence_waits": None, "fence_wait_seconds_total": None,
        "memory": None, "oom_kills_total": None, "oom_kills_gpu_total": None, "oom_kills": None,
        "ioctls": None, "slow_ioctls": None, "lost": 0,
    }  # fmt: skip
    return DriverReport(**(values | changed))  # type: ignore[arg-type]


def filled(*reports: DriverReport | None, gap_ns: int = 2 * SECOND) -> Cells:
    rates, cells = DriverRates(), {HOST: {}}
    for number, each in enumerate(reports):
        cells = {HOST: {}}
        rates.fill(each, SECOND + number * gap_ns, [7], cells)
    return cells


def test_without_tracepoints_submits_alone_have_a_rate() -> None:
    now = report(queue_submit=QueueSubmit("cuLaunch*", is_derived=True, count=140, reason=None))
    assert filled(report(), now) == {HOST: {"queue_submit_rate": 20.0}}
    assert filled(None, now) == filled(now) == filled(now, None) == {HOST: {}}


def test_a_source_that_changed_has_no_rate_and_counters_that_began_anew_a_true_one() -> None:
    driver = QueueSubmit("gpu_scheduler:drm_run_job", is_derived=False, count=5, reason=None)
    assert filled(report(), report(queue_submit=driver)) == {HOST: {}}
    fewer = QueueSubmit("cuLaunch*", is_derived=True, count=30, reason=None)
    assert filled(report(), report(queue_submit=fewer))[HOST]["queue_submit_rate"] == 15.0


def test_the_slowest_timeline_and_the_oldest_fence_speak_for_the_host() -> None:
    before = (
        Timeline("amdgpu", "gfx", 10, 10, 0, None, 1.0, 0.5, None, None),
        Timeline("amdgpu", "sdma", 4, 4, 0, None, 4.0, 1.0, None, None),
    )
    now = (
        Timeline("amdgpu", "gfx", 32, 30, 2, 0.25, 2.0, 0.5, None, None),
        Timeline("amdgpu", "sdma", 5, 4, 1, 12.5, 4.0, 1.0, None, None),
    )
    host = filled(report(timelines=before), report(timelines=now))[HOST]
    assert (host["fences_open"], host["fence_oldest_open_seconds"]) == (3.0, 12.5)
    assert host["fence_latency_seconds"] == pytest.approx(0.05)
    quiet = filled(report(timelines=before), report(timelines=before))[HOST]
    assert quiet["fences_open"] == 0.0
    assert "fence_oldest_open_seconds" not in quiet
    assert "fence_latency_seconds" not in quiet


def test_waits_and_memory_belong_to_processes() -> None:
    before = report(fence_waits=(FenceWaits(7, 3, 1.0),), fence_wait_seconds_total=5.0)
    now = report(
        fence_waits=(FenceWaits(7, 9, 2.5), FenceWaits(8, 1, 9.0)),
        fence_wait_seconds_total=8.0,
        memory=(
            GpuMemory(0, 7, 10, 1),
            GpuMemory(1, 7, 5, 1),
            GpuMemory(0, 8, 99, 1),
            GpuMemory(0, None, 200, 1),
        ),
    )
    cells = filled(before, now)
    assert cells[SERVER] == {"driver_memory_bytes": 15.0, "fence_wait_threads": 0.75}
    assert cells[HOST]["driver_memory_bytes"] == 200.0
    assert cells[HOST]["fence_wait_threads"] == 1.5
    alone = filled(report(memory=(GpuMemory(0, 7, 10, 1),)))
    assert math.isnan(alone[HOST]["driver_memory_bytes"])


def test_ioctls_are_summed_and_the_slowest_class_is_told() -> None:
    before = report(ioctls=(IoctlClass("dri", "wait", 10, 0, 1, 5.0, 1.0),))
    now = report(
        ioctls=(IoctlClass("dri", "wait", 14, 0, 3, 7.0, 1.0), IoctlClass("dri", "map", 6, 0, 0, 0.6, 0.3))
    )
    host = filled(before, now)[HOST]
    assert (host["gpu_ioctl_rate"], host["gpu_ioctl_slow_rate"]) == (5.0, 1.0)
    assert host["gpu_ioctl_threads"] == pytest.approx(1.3)
    assert host["gpu_ioctl_slowest_class_seconds"] == pytest.approx(0.5)
