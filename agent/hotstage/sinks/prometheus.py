# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: counts of the ticks and the host as of now, through prometheus_client. Never renames or
rescales.

Nothing is kept per child but what `counts.py` holds, so a series cannot outlive what it speaks of.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from hotstage.sinks import metrics
from hotstage.sinks.base import Tick
from hotstage.sinks.counts import Counts
from hotstage.sinks.metrics import Metric
from hotstage.sinks.now import Children, gauges
from hotstage.store.deliveries import NotifierReport
from hotstage.store.journal import JournalState
from hotstage.store.outbox import OutboxState

CACHE_SECONDS = 0.5
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class SelfFacts:
    """What the agent says of itself; asked for at each scrape. None = unknown, and then absent."""

    version: str
    loader: str
    rung: str
    fast_ticks: int
    slow_ticks: int
    late_ticks: int
    fast_tick_p99_seconds: float | None
    slow_tick_p99_seconds: float | None
    attached_symbols: int
    missed_symbols: int
    map_bytes: int
    page_dropped: int
    losses: Mapping[str, int] = field(default_factory=dict)
    sink_errors: Mapping[str, int] = field(default_factory=dict)
    journal: JournalState | None = None
    outbox: OutboxState | None = None
    notifier: NotifierReport | None = None


class PrometheusSink:
    """`publish` on the tick, `render` from the API's threads."""

    name = "prometheus"

    def __init__(self, facts: Callable[[], SelfFacts]) -> None:
        self._facts = facts
        self._lock = threading.Lock()
        self._counts = Counts()
        self._tick: Tick | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Scrape(self))
        self._scrape_seconds: float | None = None
        self._cached: dict[str, tuple[float, bytes]] = {}

    def publish(self, tick: Tick) -> None:
        with self._lock:
            counts = self._counts
            counts.add_pulse(tick.pulse, tick.gpu_of_pid)
            counts.add_windows(tick.windows.opened)
            counts.add_transitions(tick.transitions)
            uuid_by_bus = {} if tick.devices is None or not tick.pulse.xids else tick.devices.uuid_by_bus
            counts.add_xids(tick.pulse.xids, uuid_by_bus, tick.wall_offset_ns)
            if tick.calls is not None:
                counts.add_calls(tick.calls)
            self._tick = _with_last_frame(tick, self._tick)

    def render(self, accept: str) -> tuple[bytes, str]:
        """(body, content type) for an `Accept` header; scrapers that come together share one body."""
        encode, content_type = choose_encoder(accept)
        made_at, body = self._cached.get(content_type, (-CACHE_SECONDS, b""))
        now = time.monotonic()
        if now - made_at >= CACHE_SECONDS:
            body = encode(self._registry)
            self._scrape_seconds = time.monotonic() - now
            self._cached[content_type] = (now, body)
        return body, content_type

    def families(self) -> Iterator[Family]:
        """Everything, in the order of the metric table."""
        facts = self._facts()
        with self._lock:
            tick = self._tick
            children = {} if tick is None else gauges(tick)
            for tally in self._counts.tallies:
                children[tally.metric] = list(tally.items())
            children[metrics.GPU_XID_LAST] = list(self._counts.xid_last_seconds.items())
            dropped = {tally.metric: tally.dropped for tally in self._counts.tallies}
            dropped |= {tally.metric: tally.dropped for tally in self._counts.histograms}
            histograms = {tally.metric: list(tally.items()) for tally in self._counts.histograms}
        series = sum(len(each) for each in children.values())
        series += sum(len(each) * (len(metric.edges) + 3) for metric, each in histograms.items())
        children |= _self_children(facts, is_ticking=tick is not None)
        children[metrics.SERIES] = [((), float(series))]
        children[metrics.SERIES_DROPPED] = [
            ((metric.name,), float(count)) for metric, count in dropped.items() if count
        ]
        if self._scrape_seconds is not None:
            children[metrics.SCRAPE_SECONDS] = [((), self._scrape_seconds)]
        for metric in metrics.METRICS:
            if metric.kind == "histogram":
                yield _histogram(metric, histograms.get(metric, []))
            elif children.get(metric):
                yield _family(metric, children[metric])


class _Scrape(Collector):
    """What the client library asks; it never calls `collect` only to learn the names."""

    def __init__(self, sink: PrometheusSink) -> None:
        self._sink = sink

    def collect(self) -> Iterable[Family]:
        return self._sink.families()


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
        endpoint_modality=tick.endpoint_modality or before.endpoint_modality,
        gpu_of_pid=tick.gpu_of_pid,
    )


def _family(metric: Metric, children: Children) -> Family:
    family: Family
    if metric.kind == "counter":
        # The client appends `_total` itself.
        family = CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
        for labels, value in children:
            family.add_metric(labels, value)
        return family
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in children:
        family.add_metric(labels, value)
    return family


def _histogram(
    metric: Metric, children: Iterable[tuple[tuple[str, ...], list[tuple[str, float]], float]]
) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, buckets, total in children:
        family.add_metric(labels, buckets, total)
    return family


def _self_children(facts: SelfFacts, *, is_ticking: bool) -> dict[Metric, Children]:
    children: dict[Metric, Children] = {
        metrics.BUILD_INFO: [((facts.version, facts.loader, facts.rung), 1.0)],
        metrics.UP: [((), float(is_ticking))],
        metrics.TICKS: [(("fast",), float(facts.fast_ticks)), (("slow",), float(facts.slow_ticks))],
        metrics.TICKS_LATE: [((), float(facts.late_ticks))],
        metrics.TICK_P99: [
            ((tick,), seconds)
            for tick, seconds in (
                ("fast", facts.fast_tick_p99_seconds),
                ("slow", facts.slow_tick_p99_seconds),
            )
            if seconds is not None
        ],
        metrics.LOSSES: [((name,), float(count)) for name, count in facts.losses.items()],
        metrics.ATTACHED: [((), float(facts.attached_symbols))],
        metrics.MISSED: [((), float(facts.missed_symbols))],
        metrics.AGENT_CPU: [((), sum(os.times()[:2]))],
        metrics.AGENT_RESIDENT: [((), float(_resident_bytes()))],
        metrics.MAP_BYTES: [((), float(facts.map_bytes))],
        metrics.PAGE_DROPPED: [((), float(facts.page_dropped))],
        metrics.SINK_ERRORS: [((name,), float(count)) for name, count in facts.sink_errors.items()],
    }
    if facts.journal is not None:
        children[metrics.STORE_PENDING] = [((), float(facts.journal.pending))]
        children[metrics.STORE_COMMITTED] = [((), float(facts.journal.committed_total))]
        children[metrics.STORE_LOST] = [((), float(facts.journal.lost_total))]
    if facts.outbox is not None:
        children[metrics.OUTBOX_PENDING] = [((), float(facts.outbox.pending))]
        children[metrics.OUTBOX_ENQUEUED] = [((), float(facts.outbox.enqueued_total))]
        oldest_ns = facts.outbox.oldest_created_ns
        age = 0.0 if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9)
        children[metrics.OUTBOX_AGE] = [((), age)]
    if facts.notifier is not None:
        children |= _webhook_children(facts.notifier)
    return children


def _webhook_children(report: NotifierReport) -> dict[Metric, Children]:
    return {
        metrics.WEBHOOK_DELIVERIES: [
            ((each.name, result), float(count))
            for each in report.destinations
            for result, count in (
                ("delivered", each.delivered),
                ("failed", each.failed),
                ("dead", each.dead),
            )
        ],
        metrics.WEBHOOK_PENDING: [((each.name,), float(each.pending)) for each in report.destinations],
        metrics.WEBHOOK_AGE: [((each.name,), each.oldest_age_seconds or 0.0) for each in report.destinations],
        metrics.WEBHOOK_DISABLED: [((each.name,), float(each.is_disabled)) for each in report.destinations],
    }


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
