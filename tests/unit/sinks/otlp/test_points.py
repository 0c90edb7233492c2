# SPDX-License-Identifier: Apache-2.0
"""Readings in OpenTelemetry's data model, and what its own encoder makes of them."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource

from hotstage.sinks import metrics, self_metrics
from hotstage.sinks.otlp.points import metrics_data
from hotstage.sinks.readings import Reading

STAGE = ("vision_encode", "image", "vlm", "")
DESTINATION = ("pager",)


@pytest.fixture
def encoded():
    def build(*readings):
        data = metrics_data(readings, Resource({"service.name": "hotstage"}), "0.1.0", started_ns=5, now_ns=9)
        (part,) = encode_metrics(data).resource_metrics
        (scope,) = part.scope_metrics
        assert (scope.scope.name, scope.scope.version) == ("hotstage", "0.1.0")
        return scope.metrics

    return build


def attributes(point):
    return {pair.key: pair.value.string_value for pair in point.attributes}


def test_a_counter_is_a_cumulative_monotonic_sum_since_the_start(encoded):
    (found,) = encoded(Reading(self_metrics.TICKS, [(("fast",), 20.0)]))
    assert (found.name, found.unit, found.description) == (
        "hotstage.ticks",
        "{tick}",
        self_metrics.TICKS.help,
    )
    assert (found.sum.is_monotonic, found.sum.aggregation_temporality) == (True, 2)
    (point,) = found.sum.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano, point.as_double) == (5, 9, 20.0)
    assert attributes(point) == {"tick": "fast"}


def test_a_gauge_is_of_now(encoded):
    (found,) = encoded(Reading(metrics.INSTANCE_LOAD, [(("i-0",), 0.5)]))
    assert (found.name, found.unit) == ("hotstage.instance.load", "1")
    (point,) = found.gauge.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano, point.as_double) == (0, 9, 0.5)


def test_a_histogram_has_its_bounds_and_the_counts_between_them(encoded):
    edges = metrics.STAGE_DURATION.edges
    cumulative = [0] * 4 + [2] * 5 + [3] * (len(edges) - 9) + [4]
    buckets = [(str(number), float(count)) for number, count in enumerate(cumulative)]
    (found,) = encoded(Reading(metrics.STAGE_DURATION, histograms=[(STAGE, buckets, 41.5)]))
    assert found.histogram.aggregation_temporality == 2
    (point,) = found.histogram.data_points
    assert list(point.explicit_bounds) == list(edges)
    assert list(point.bucket_counts) == [0, 0, 0, 0, 2, 0, 0, 0, 0, 1] + [0] * (len(edges) - 10) + [1]
    assert (point.count, point.sum, point.start_time_unix_nano) == (4, 41.5, 5)
    assert (point.HasField("min"), point.HasField("max")) == (False, False)
    assert attributes(point) == {"stage": "vision_encode", "modality": "image", "model_name": "vlm"}


def test_what_was_counted_before_the_agent_began_has_no_start(encoded):
    counts = [("0.1", 1.0)] * (len(self_metrics.WEBHOOK_DURATION.edges) + 1)
    found = encoded(
        Reading(self_metrics.OUTBOX_ENQUEUED, [((), 23.0)]),
        Reading(self_metrics.WEBHOOK_DURATION, histograms=[(DESTINATION, counts, 0.1)]),
    )
    assert found[0].sum.data_points[0].start_time_unix_nano == 0
    assert found[1].histogram.data_points[0].start_time_unix_nano == 0


def test_every_row_of_the_table_can_be_encoded(encoded):
    def reading(metric):
        labels = ("x",) * len(metric.labels)
        buckets = [("1", 1.0)] * (len(metric.edges) + 1)
        return Reading(metric, [(labels, 1.0)], [(labels, buckets, 0.5)])

    found = encoded(*map(reading, metrics.METRICS))
    assert [each.name for each in found] == [metric.otel_name for metric in metrics.METRICS]
    assert len({each.name for each in found}) == len(found)
