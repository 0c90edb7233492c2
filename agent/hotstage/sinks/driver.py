# SPDX-License-Identifier: Apache-2.0
"""What tracepoints of GPU drivers and the operator's own programs tell → children, as read at a scrape."""

from __future__ import annotations

from collections.abc import Iterable

from hotstage.probes.custom.watch import CustomReading
from hotstage.probes.driver.report import DriverReport
from hotstage.sinks import driver_metrics as metrics
from hotstage.sinks.admission import Admission
from hotstage.sinks.budget import CUSTOM_SERIES
from hotstage.sinks.metric import Metric
from hotstage.sinks.now import Children

CUSTOM_CAP = 12
"""Children of one metric of an operator's."""


class DriverSeries:
    """Which children have found room stays so, since a counter may not fall. Not thread-safe."""

    def __init__(self) -> None:
        self.admission = Admission()
        self.custom_admission = Admission(CUSTOM_SERIES)

    def children(self, report: DriverReport | None) -> dict[Metric, Children]:
        """Every metric of the driver with what is known for it."""
        if report is None:
            return {}
        found = _events(report) | _fences(report) | _ioctls(report) | _memory(report)
        return {metric: self.admission.admit(metric, each) for metric, each in found.items()}

    def custom(self, readings: Iterable[CustomReading]) -> list[tuple[Metric, Children]]:
        """The operator's metrics, each with what found room."""
        found = []
        for reading in readings:
            own = reading.metric
            metric = Metric(
                own.name,
                "counter" if own.is_counter else "gauge",
                tuple(label.name for label in own.labels),
                own.help.rstrip(".") + ".",
                cap=CUSTOM_CAP,
            )
            found.append((metric, self.custom_admission.admit(metric, reading.children)))
        return found

    def dropped(self) -> dict[str, int]:
        """Metric's name → children that found no room; the operator's together, as `hotstage_custom`."""
        return dict(self.admission.dropped) | {"hotstage_custom": self.custom_admission.dropped.total()}


def _events(report: DriverReport) -> dict[Metric, Children]:
    found: dict[Metric, Children] = {
        metrics.EVENTS: [
            ((each.event,), float(each.hits)) for each in report.events if each.hits is not None
        ],
        metrics.RING_JOBS: [((name,), float(count)) for name, count in report.rings.items()],
    }
    submit = report.queue_submit
    if submit.count is not None:
        found[metrics.QUEUE_SUBMITS] = [((submit.through,), float(submit.count))]
    if report.oom_kills_total is not None:
        found[metrics.OOM_KILLS] = _kills(report.oom_kills_total, report.oom_kills_gpu_total)
    return found


def _kills(total: int, of_gpus: int | None) -> Children:
    if of_gpus is None:
        return [(("other",), float(total))]
    return [(("gpu",), float(of_gpus)), (("other",), float(total - of_gpus))]


def _fences(report: DriverReport) -> dict[Metric, Children]:
    timelines = report.timelines or ()
    found: dict[Metric, Children] = {
        metrics.FENCES: [((each.driver, each.timeline), float(each.signaled)) for each in timelines],
        metrics.FENCE_SECONDS: [((each.driver, each.timeline), each.total_seconds) for each in timelines],
        metrics.FENCES_OPEN: [((each.driver, each.timeline), float(each.open)) for each in timelines],
    }
    ages = [each.oldest_open_seconds for each in timelines if each.oldest_open_seconds is not None]
    if ages:
        found[metrics.FENCE_OLDEST] = [((), max(ages))]
    if report.fence_wait_seconds_total is not None:
        found[metrics.FENCE_WAITS] = [((), report.fence_wait_seconds_total)]
    return found


def _memory(report: DriverReport) -> dict[Metric, Children]:
    """Of a GPU whose driver tells no sum, the sum over its processes."""
    whole = {each.gpu: each.bytes for each in report.memory or () if each.pid is None}
    summed: dict[int, int] = {}
    for each in report.memory or ():
        if each.pid is not None:
            summed[each.gpu] = summed.get(each.gpu, 0) + each.bytes
    return {metrics.MEMORY: [((str(gpu),), float(count)) for gpu, count in (summed | whole).items()]}


def _ioctls(report: DriverReport) -> dict[Metric, Children]:
    if report.ioctls is None:
        return {}
    return {
        metrics.IOCTLS: [((each.device, each.kind), float(each.count)) for each in report.ioctls],
        metrics.IOCTL_SECONDS: [((each.device, each.kind), each.total_seconds) for each in report.ioctls],
        metrics.IOCTLS_SLOW: [((), float(sum(each.slow for each in report.ioctls)))],
    }
