# SPDX-License-Identifier: Apache-2.0
"""All metrics with their children as of now, for every exporter: what `/metrics` shows, OTLP carries.

Told by the tick, read on demand; no client library. Nothing is kept per child but what `counts.py` holds, so
a series cannot outlive what it speaks of.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from hotstage.frame.class_table import ClassTable, no_classes
from hotstage.frame.latency_types import Latency
from hotstage.frame.token_latency import no_latency
from hotstage.sinks import metrics, self_metrics
from hotstage.sinks.base import Tick
from hotstage.sinks.classes import class_children
from hotstage.sinks.counts import Counts
from hotstage.sinks.driver import DriverSeries
from hotstage.sinks.engines import collectors_last
from hotstage.sinks.metric import Metric
from hotstage.sinks.now import Children, gauges
from hotstage.sinks.self_facts import SelfFacts, self_children
from hotstage.sinks.slo import Slos
from hotstage.sinks.tally import HistogramChildren, bounds_of
from hotstage.sinks.tokens import token_children
from hotstage.stages.pulse import Pulse
from hotstage.stages.tracker import PROBES_OFF
from hotstage.store.deliveries import DURATION_EDGES, NotifierReport

PENDING_MAX = 16
"""Pulses that are counted together, once a second or when somebody reads: ten cost what three do alone."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One metric: `children` of a counter or gauge, `histograms` of a histogram."""

    metric: Metric
    children: Children = field(default_factory=list)
    histograms: HistogramChildren = field(default_factory=list)


class Readings:
    """`publish` on the tick; `collect` from any thread."""

    def __init__(
        self,
        facts: Callable[[], SelfFacts],
        slos: Slos | None = None,
        classes: Callable[[int], ClassTable] = no_classes,
        latency: Callable[[int], Latency] = no_latency,
    ) -> None:
        """`classes`, `latency`: time of the last fast tick → what finished requests say as of it."""
        self._facts = facts
        self._classes = classes
        self._latency = latency
        self._slos = slos or Slos(())
        self._lock = threading.Lock()
        self._counts = Counts(self._slos)
        self._pending: list[tuple[Pulse, Mapping[int, str]]] = []
        self._driver = DriverSeries()
        self._left_out: Counter[Metric] = Counter()
        self._tick: Tick | None = None
        self.scrape_seconds: float | None = None
        """Time the last scrape's body took, told by who made it."""

    def publish(self, tick: Tick) -> None:
        with self._lock:
            counts = self._counts
            self._pending.append((tick.pulse, tick.gpu_of_pid))
            if tick.frame is not None or len(self._pending) >= PENDING_MAX:
                self._add_pending()
            counts.add_windows(tick.windows.opened)
            counts.add_transitions(tick.transitions)
            uuid_by_bus = {} if tick.devices is None or not tick.pulse.xids else tick.devices.uuid_by_bus
            counts.add_xids(tick.pulse.xids, uuid_by_bus, tick.wall_offset_ns)
            if tick.calls is not None:
                counts.add_calls(tick.calls, tick.pulse.names.stages)
            if tick.scheduling is not None:
                counts.scheduling.add(tick.scheduling, tick.pulse.names.stages)
            if tick.frame is not None:
                counts.add_frame(tick.frame, tick.wall_offset_ns)
            self._tick = _with_last_frame(tick, self._tick)

    def _add_pending(self) -> None:
        """Count what ended in the pulses since the last time; with the lock held."""
        for pulse, gpu_of_pid in self._pending:
            self._counts.add_pulse(pulse, gpu_of_pid)
        self._pending.clear()

    def collect(self) -> Iterator[Reading]:
        """Everything that has a child, in the order of the metric table; the operator's own metrics last."""
        facts, finished = self._facts(), self._of_finished()
        with self._lock:
            self._add_pending()
            tick = self._tick
            driver, custom = self._driver.children(facts.driver), self._driver.custom(facts.custom)
            children = self._within_caps({} if tick is None else gauges(tick) | finished)
            for tally in self._counts.tallies:
                children[tally.metric] = list(tally.items())
            children[metrics.GPU_XID_LAST] = list(self._counts.xid_last_seconds.items())
            children[metrics.SLO_OBJECTIVE] = [
                ((each.name,), each.objective) for each in self._slos.objectives
            ]
            children[self_metrics.COLLECTOR_LAST] = [
                ((name,), seconds) for name, seconds in self._counts.fresh_seconds.items()
            ]
            if tick is not None:
                children[self_metrics.COLLECTOR_LAST] += collectors_last(tick.engines, tick.wall_offset_ns)
            dropped = Counter(self._left_out)
            dropped.update({each.metric: each.dropped for each in self._counts.tallies})
            dropped.update({each.metric: each.dropped for each in self._counts.histograms})
            histograms = {tally.metric: list(tally.items()) for tally in self._counts.histograms}
            dropped_names = self._driver.dropped() | {metric.name: n for metric, n in dropped.items()}
        histograms[self_metrics.WEBHOOK_DURATION] = _delivery_durations(facts.notifier)
        children |= driver
        children[self_metrics.SERIES] = [((), float(_series(children | dict(custom), histograms)))]
        children[self_metrics.SERIES_DROPPED] = [
            ((name,), float(count)) for name, count in dropped_names.items() if count
        ]
        if self.scrape_seconds is not None:
            children[self_metrics.SCRAPE_SECONDS] = [((), self.scrape_seconds)]
        children |= self_children(facts)
        for metric in metrics.METRICS:
            if children.get(metric) or histograms.get(metric):
                yield Reading(metric, children.get(metric, []), histograms.get(metric, []))
        yield from (Reading(metric, each) for metric, each in custom if each)

    def _of_finished(self) -> dict[Metric, Children]:
        """Without the lock: these tables are sorted, and the tick must not wait for that. Their last minutes
        are not now while the probes are off.
        """
        tick = self._tick
        if tick is None or PROBES_OFF in tick.pulse.stale:
            return {}
        at_ns = tick.pulse.at_ns
        return class_children(self._classes(at_ns)) | token_children(self._latency(at_ns))

    def _within_caps(self, children: dict[Metric, Children]) -> dict[Metric, Children]:
        for metric, each in children.items():
            self._left_out[metric] += max(0, len(each) - metric.cap)
        return {metric: each[: metric.cap] for metric, each in children.items()}


def _series(children: dict[Metric, Children], histograms: dict[Metric, HistogramChildren]) -> int:
    return sum(len(each) for each in children.values()) + sum(
        len(each) * (len(metric.edges) + 3) for metric, each in histograms.items()
    )


def _delivery_durations(report: NotifierReport | None) -> HistogramChildren:
    """One histogram per destination whose notifier counts them."""
    bounds = bounds_of(DURATION_EDGES)
    destinations = () if report is None else report.destinations
    return [
        (
            (each.name,),
            list(zip(bounds, accumulate(each.duration_counts), strict=True)),
            each.duration_sum_seconds,
        )
        for each in destinations[: self_metrics.WEBHOOK_DURATION.cap]
        if len(each.duration_counts) == len(bounds)
    ]


def _with_last_frame(tick: Tick, before: Tick | None) -> Tick:
    """Gauges of the slow tick stand until the next one."""
    if tick.frame is not None or before is None:
        return tick
    return Tick(
        pulse=tick.pulse,
        windows=tick.windows,
        breakers=tick.breakers,
        transitions=tick.transitions,
        wall_offset_ns=tick.wall_offset_ns,
        frame=before.frame,
        calls=None,
        devices=tick.devices,
        engines=tick.engines,
        endpoint_modality=tick.endpoint_modality or before.endpoint_modality,
        gpu_of_pid=tick.gpu_of_pid,
        memory=tick.memory,
    )
