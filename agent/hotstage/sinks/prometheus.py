# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: the readings through prometheus_client, made on a scrape only. Never renames or rescales."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from hotstage.frame.class_table import ClassTable, no_classes
from hotstage.frame.latency_types import Latency
from hotstage.frame.token_latency import no_latency
from hotstage.sinks.base import Tick
from hotstage.sinks.metric import Metric
from hotstage.sinks.readings import Reading, Readings
from hotstage.sinks.self_facts import SelfFacts
from hotstage.sinks.slo import Slos
from hotstage.sinks.tally import HistogramChildren

CACHE_SECONDS = 0.5


class PrometheusSink:
    """`publish` on the tick, `render` from the API's threads."""

    name = "prometheus"

    def __init__(
        self,
        facts: Callable[[], SelfFacts],
        slos: Slos | None = None,
        classes: Callable[[int], ClassTable] = no_classes,
        latency: Callable[[int], Latency] = no_latency,
    ) -> None:
        self.readings = Readings(facts, slos, classes, latency)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Scrape(self.readings.collect))
        self._cached: dict[str, tuple[float, bytes]] = {}

    def publish(self, tick: Tick) -> None:
        self.readings.publish(tick)

    def render(self, accept: str) -> tuple[bytes, str]:
        """(body, content type) for an `Accept` header; scrapers that come together share one body."""
        encode, content_type = choose_encoder(accept)
        made_at, body = self._cached.get(content_type, (-CACHE_SECONDS, b""))
        now = time.monotonic()
        if now - made_at >= CACHE_SECONDS:
            body = encode(self._registry)
            self.readings.scrape_seconds = time.monotonic() - now
            self._cached[content_type] = (now, body)
        return body, content_type


class Scrape(Collector):
    """What the client library asks; it never calls `collect` only to learn the names."""

    def __init__(self, collect: Callable[[], Iterable[Reading]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Family]:
        return (_family(reading) for reading in self._collect())


def _family(reading: Reading) -> Family:
    metric = reading.metric
    if metric.kind == "histogram":
        return _histogram(metric, reading.histograms)
    family: CounterMetricFamily | GaugeMetricFamily
    if metric.kind == "counter":
        # The client appends `_total` itself.
        family = CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
    else:
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in reading.children:
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, children: HistogramChildren) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, buckets, total in children:
        family.add_metric(labels, buckets, total)
    return family
