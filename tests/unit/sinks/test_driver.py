# SPDX-License-Identifier: Apache-2.0
"""What tracepoints of the driver and an operator's programs become; what is absent has no series."""

from __future__ import annotations

from hotstage.probes.custom.convention import CustomMetric, Label
from hotstage.probes.custom.watch import CustomReading
from hotstage.probes.driver.report import (
    DriverReport,
    EventReport,
    EventState,
    GpuMemory,
    IoctlClass,
    QueueSubmit,
    Timeline,
)
from hotstage.probes.driver.table import TABLE, choose
from hotstage.sinks import driver_metrics as metrics
from hotstage.sinks.driver import DriverSeries


def report(**changed: object) -> DriverReport:
    event = EventReport("oom:mark_victim", "oom kills", "who", EventState.ATTACHED, 3, 9, 1, None)
    absent = EventReport(
        "xe:xe_sched_job_run", "queue_submit", "x", EventState.ABSENT, None, None, None, "no"
    )
    values: dict[str, object] = {
        "state": "watching",
        "reason": None,
        "remedy": None,
        "queue_submit": QueueSubmit("cuLaunch*", is_derived=True, count=7, reason="derived"),
        "events": (event, absent),
        "rings": {},
        "timelines": None,
        "fence_waits": None,
        "fence_wait_seconds_total": None,
        "memory": None,
        "oom_kills_total": 3,
        "oom_kills_gpu_total": 1,
        "oom_kills": (),
        "ioctls": None,
        "slow_ioctls": None,
        "lost": 0,
    }
    return DriverReport(**(values | changed))  # type: ignore[arg-type]


def test_absent_events_have_no_series_and_launches_stand_for_submits() -> None:
    found = DriverSeries().children(report())
    assert found[metrics.EVENTS] == [(("oom:mark_victim",), 3.0)]
    assert found[metrics.QUEUE_SUBMITS] == [(("cuLaunch*",), 7.0)]
    assert found[metrics.OOM_KILLS] == [(("gpu",), 1.0), (("other",), 2.0)]
    counted_alone = DriverSeries().children(report(oom_kills_gpu_total=None))
    assert counted_alone[metrics.OOM_KILLS] == [(("other",), 3.0)]
    for metric in (metrics.FENCES, metrics.FENCE_WAITS, metrics.FENCE_OLDEST, metrics.MEMORY, metrics.IOCTLS):
        assert not found.get(metric), metric.name
    assert DriverSeries().children(None) == {}


def test_kills_by_others_and_a_driver_that_comes_up_later_drop_nothing() -> None:
    series = DriverSeries()
    series.children(report())
    later = report(queue_submit=QueueSubmit("xe:xe_sched_job_run", is_derived=False, count=2, reason=None))
    assert series.children(later)[metrics.QUEUE_SUBMITS] == [(("xe:xe_sched_job_run",), 2.0)]
    assert not any(series.dropped().values())


def test_every_tracepoint_of_a_host_with_two_drivers_has_its_series() -> None:
    renamed = {
        "gpu_scheduler:drm_run_job",
        "gpu_scheduler:drm_sched_job",
        "gpu_scheduler:drm_sched_process_job",
    }
    layouts = {each.event: {*each.fields} for each in TABLE if each.event not in renamed}
    chosen = choose(layouts, ioctls=True).chosen
    events = tuple(
        EventReport(each.event, each.logical, "x", EventState.ATTACHED, 1, 1, 1, None) for each in chosen
    )
    series = DriverSeries()
    assert len(series.children(report(events=events))[metrics.EVENTS]) == len(chosen) == 15
    assert not any(series.dropped().values())


def test_fences_are_told_by_timeline_and_the_oldest_once() -> None:
    timelines = (
        Timeline("amdgpu", "gfx", 9, 7, 2, 4.5, 1.25, 0.5, None, None),
        Timeline("amdgpu", "sdma", 1, 0, 1, 6.0, 0.0, None, None, None),
    )
    found = DriverSeries().children(report(timelines=timelines, fence_wait_seconds_total=2.0))
    assert found[metrics.FENCES] == [(("amdgpu", "gfx"), 7.0), (("amdgpu", "sdma"), 0.0)]
    assert found[metrics.FENCE_SECONDS][0] == (("amdgpu", "gfx"), 1.25)
    assert found[metrics.FENCES_OPEN][1] == (("amdgpu", "sdma"), 1.0)
    assert found[metrics.FENCE_OLDEST] == [((), 6.0)]
    assert found[metrics.FENCE_WAITS] == [((), 2.0)]


def test_memory_is_what_the_driver_says_of_the_gpu_else_the_sum_of_processes() -> None:
    memory = (
        GpuMemory(0, 7, 10, 1),
        GpuMemory(0, None, 64, 1),
        GpuMemory(1, 7, 10, 1),
        GpuMemory(1, 8, 5, 1),
    )
    found = DriverSeries().children(report(memory=memory))
    assert sorted(found[metrics.MEMORY]) == [(("0",), 64.0), (("1",), 15.0)]


def test_ioctls_are_told_by_device_and_class() -> None:
    ioctls = (IoctlClass("nvidia", "map", 5, 1, 2, 0.5, 0.4), IoctlClass("dri", "wait", 1, 0, 1, 0.25, 0.25))
    found = DriverSeries().children(report(ioctls=ioctls))
    assert found[metrics.IOCTLS] == [(("nvidia", "map"), 5.0), (("dri", "wait"), 1.0)]
    assert found[metrics.IOCTL_SECONDS][1] == (("dri", "wait"), 0.25)
    assert found[metrics.IOCTLS_SLOW] == [((), 3.0)]


def test_an_operators_metrics_carry_their_labels_within_bounds() -> None:
    counter = CustomMetric("hotstage_custom_io_reads_total", "m", (Label("dev", "u", 4),), "Reads")
    gauge = CustomMetric("hotstage_custom_io_depth", "d", (), "Depth.")
    series = DriverSeries()
    readings = [
        CustomReading(counter, [((str(number),), 1.0) for number in range(100)]),
        CustomReading(gauge, [((), 4.0)]),
    ]
    (first, children), (second, depth) = series.custom(readings)
    assert (first.name, first.kind, first.labels, first.help) == (counter.name, "counter", ("dev",), "Reads.")
    assert len(children) == first.cap == 12
    assert children[-1] == (("other",), 89.0)
    assert (second.kind, second.help, depth) == ("gauge", "Depth.", [((), 4.0)])
    assert series.dropped()["hotstage_custom"] == 89
