# SPDX-License-Identifier: Apache-2.0
"""Readings → OpenTelemetry's data model: the families of `/metrics`, cumulative, under OpenTelemetry names.

Made once a period from what the tick has counted already: nothing is recorded twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from hotstage.sinks import self_metrics as table
from hotstage.sinks.otlp import attributes as names
from hotstage.sinks.readings import Reading
from hotstage.sinks.tally import Labels

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

COUNTED_ELSEWHERE = frozenset({table.OUTBOX_ENQUEUED, table.WEBHOOK_DELIVERIES, table.WEBHOOK_DURATION})
"""They live in databases that outlive the agent: nobody knows here when they began."""

_UNKNOWN_START = 0
"""OTLP's own value for it."""


def metrics_data(
    readings: Iterable[Reading], resource: Resource, version: str, *, started_ns: int, now_ns: int
) -> MetricsData:
    """`started_ns` is when the counting began, `now_ns` when the readings were taken; wall time."""
    scope = InstrumentationScope("hotstage", version, names.SCHEMA_URL)
    found = [_metric(reading, started_ns, now_ns) for reading in readings]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, found, names.SCHEMA_URL)], "")])


def _metric(reading: Reading, started_ns: int, now_ns: int) -> Metric:
    metric = reading.metric
    since_ns = _UNKNOWN_START if metric in COUNTED_ELSEWHERE else started_ns
    data: Gauge | Histogram | Sum
    if metric.kind == "histogram":
        data = Histogram(_histogram_points(reading, since_ns, now_ns), AggregationTemporality.CUMULATIVE)
    elif metric.kind == "counter":
        data = Sum(_numbers(reading, since_ns, now_ns), AggregationTemporality.CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(_numbers(reading, None, now_ns))
    return Metric(metric.otel_name, metric.help, metric.otel_unit, data)


def _numbers(reading: Reading, since_ns: int | None, now_ns: int) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(_attributes(reading, labels), since_ns, now_ns, value)  # type: ignore[arg-type]
        for labels, value in reading.children
    ]


def _histogram_points(reading: Reading, since_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    points = []
    for labels, buckets, total in reading.histograms:
        cumulative = [0, *(int(count) for _, count in buckets)]
        points.append(
            HistogramDataPoint(
                attributes=_attributes(reading, labels),
                start_time_unix_nano=since_ns,
                time_unix_nano=now_ns,
                count=cumulative[-1],
                sum=total,
                bucket_counts=[after - before for before, after in pairwise(cumulative)],
                explicit_bounds=list(reading.metric.edges),
                # Optional in OTLP, and nobody keeps them.
                min=None,  # type: ignore[arg-type]
                max=None,  # type: ignore[arg-type]
            )
        )
    return points


def _attributes(reading: Reading, labels: Labels) -> dict[str, str]:
    """An empty label is an absent one, as in Prometheus."""
    return {name: value for name, value in zip(reading.metric.labels, labels, strict=True) if value}
