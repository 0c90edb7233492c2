# SPDX-License-Identifier: Apache-2.0
"""What tracepoints of GPU drivers say of host and processes → cells. Never judges.

A timeline, a class of ioctls and a ring are no entities: of several the worst is here, `/v1/coverage` and the
metrics have them one by one. What is not attached on this host has no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.served import Cells
from hotstage.probes.driver.report import DriverReport, IoctlClass, Timeline


class DriverRates:
    """`fill` once a second with what the tracepoints have told so far. Not thread-safe."""

    def __init__(self) -> None:
        self._before: tuple[int, DriverReport] | None = None

    def fill(self, report: DriverReport | None, at_ns: int, pids: Iterable[int], cells: Cells) -> None:
        """`at_ns` (CLOCK_MONOTONIC): when it was read. Of processes, those in `pids` alone."""
        before, self._before = self._before, None if report is None else (at_ns, report)
        if report is None:
            return
        _put_state(report, pids, cells)
        if before is not None and at_ns > before[0]:
            _put_rates(before[1], report, (at_ns - before[0]) / 1e9, pids, cells)


def _put_state(report: DriverReport, pids: Iterable[int], cells: Cells) -> None:
    host = cells[HOST]
    if report.timelines is not None:
        host["fences_open"] = float(sum(each.open for each in report.timelines))
        ages = [each.oldest_open_seconds for each in report.timelines if each.oldest_open_seconds is not None]
        if ages:
            host["fence_oldest_open_seconds"] = max(ages)
    if report.memory:
        of_gpus = {each.gpu: each.bytes for each in report.memory if each.pid is None}
        host["driver_memory_bytes"] = float(sum(of_gpus.values())) if of_gpus else float("nan")
        for pid in pids:
            own = [each.bytes for each in report.memory if each.pid == pid]
            if own:
                _process(cells, pid)["driver_memory_bytes"] = float(sum(own))


def _put_rates(
    before: DriverReport, now: DriverReport, seconds: float, pids: Iterable[int], cells: Cells
) -> None:
    host = cells[HOST]
    same_source = before.queue_submit.through == now.queue_submit.through
    if same_source and before.queue_submit.count is not None and now.queue_submit.count is not None:
        host["queue_submit_rate"] = _grown(before.queue_submit.count, now.queue_submit.count) / seconds
    if before.timelines is not None and now.timelines is not None:
        latencies = _latencies(before.timelines, now.timelines)
        if latencies:
            host["fence_latency_seconds"] = max(latencies)
    if before.fence_waits is not None and now.fence_waits is not None:
        earlier = {each.pid: each.total_seconds for each in before.fence_waits}
        later = {each.pid: each.total_seconds for each in now.fence_waits}
        for pid in pids:
            waited = _grown(earlier.get(pid, 0.0), later.get(pid, 0.0))
            _process(cells, pid)["fence_wait_threads"] = waited / seconds
        if before.fence_wait_seconds_total is not None and now.fence_wait_seconds_total is not None:
            waited = _grown(before.fence_wait_seconds_total, now.fence_wait_seconds_total)
            host["fence_wait_threads"] = waited / seconds
    if before.ioctls is not None and now.ioctls is not None:
        _put_ioctls(_by_class(before.ioctls), now.ioctls, seconds, host)


def _put_ioctls(
    before: Mapping[tuple[str, str], IoctlClass],
    now: Iterable[IoctlClass],
    seconds: float,
    host: dict[str, float],
) -> None:
    count, slow, total, means = 0.0, 0.0, 0.0, []
    for each in now:
        earlier = before.get((each.device, each.kind))
        made = _grown(earlier.count if earlier else 0, each.count)
        took = _grown(earlier.total_seconds if earlier else 0.0, each.total_seconds)
        count, total = count + made, total + took
        slow += _grown(earlier.slow if earlier else 0, each.slow)
        means += [took / made] if made else []
    host["gpu_ioctl_rate"], host["gpu_ioctl_slow_rate"] = count / seconds, slow / seconds
    host["gpu_ioctl_threads"] = total / seconds
    if means:
        host["gpu_ioctl_slowest_class_seconds"] = max(means)


def _latencies(before: Iterable[Timeline], now: Iterable[Timeline]) -> list[float]:
    """Mean latency of what each timeline has signaled in between; none of those that signaled nothing."""
    earlier = {(each.driver, each.timeline): each for each in before}
    found = []
    for each in now:
        was = earlier.get((each.driver, each.timeline))
        signaled = each.signaled - (was.signaled if was else 0)
        took = each.total_seconds - (was.total_seconds if was else 0.0)
        if signaled > 0 and took >= 0:
            found.append(took / signaled)
    return found


def _by_class(ioctls: Iterable[IoctlClass]) -> dict[tuple[str, str], IoctlClass]:
    return {(each.device, each.kind): each for each in ioctls}


def _grown(before: float, now: float) -> float:
    """Counters begin anew when the programs were taken out and put back."""
    return now - before if now >= before else now


def _process(cells: Cells, pid: int) -> dict[str, float]:
    return cells.setdefault(Entity(EntityKind.process, pid=pid), {})
