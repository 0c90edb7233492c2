# SPDX-License-Identifier: Apache-2.0
"""The table itself: names, units, bounds."""

from __future__ import annotations

import math
import re

import pytest

from hotstage.probes.maps.layout import Loss
from hotstage.sinks import metrics, self_metrics
from hotstage.sinks.budget import CUSTOM_SERIES, HISTOGRAMS_MAX, PARTS, SERIES_MAX, part_of, series_by_part
from hotstage.sinks.metrics import METRICS, REQUEST_EDGES, STAGE_EDGES

UNITS = ("seconds", "bytes", "ratio", "total", "info", "celsius", "watts", "joules")
FORBIDDEN = {"engine", "instance", "job", "model", "hostname", "pid", "le", "quantile"}


def test_names_are_unique_prefixed_and_plain():
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"hotstage_[a-z0-9]+(_[a-z0-9]+)*", name) for name in names)


def test_counters_and_only_counters_end_in_total():
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name


def test_labels_do_not_collide_with_what_prometheus_and_the_engines_use():
    for metric in METRICS:
        assert not FORBIDDEN & set(metric.labels), metric.name
        assert not {"window_id", "request_id", "trace_id"} & set(metric.labels), metric.name


def test_every_metric_has_a_help_sentence():
    assert all(metric.help.endswith(".") for metric in METRICS if not metric.help.endswith("…"))


def test_histograms_have_at_most_sixteen_edges_and_all_are_scale_3_edges():
    for edges in (STAGE_EDGES, REQUEST_EDGES):
        assert len(edges) <= 16
        assert list(edges) == sorted(edges)
        for edge in edges:
            assert math.isclose(math.log2(edge) * 8, round(math.log2(edge) * 8))


def test_a_host_never_exports_more_than_five_thousand_series_and_three_hundred_histograms():
    series = sum(
        (metric.cap if metric.labels else 1) * (len(metric.edges) + 3 if metric.kind == "histogram" else 1)
        for metric in METRICS
    )
    assert series == sum(metric.series_max for metric in METRICS) == sum(PARTS.values())
    assert series + CUSTOM_SERIES <= SERIES_MAX == 5000
    histograms = sum(metric.cap for metric in METRICS if metric.kind == "histogram")
    assert histograms <= HISTOGRAMS_MAX == 300


def test_every_part_of_the_budget_is_what_the_caps_of_its_metrics_add_up_to():
    assert series_by_part(METRICS) == PARTS


def test_every_loss_has_its_series():
    assert self_metrics.LOSSES.cap == len(Loss)


def test_a_metric_belongs_to_the_part_that_says_most_of_its_name():
    assert part_of(metrics.CALLS) == "calls" and part_of(metrics.CALL_ERRORS) == "call"
    assert part_of(self_metrics.TICKS) == part_of(self_metrics.AGENT_CPU) == "agent"


def prometheus_name(metric):
    """What a Collector's Prometheus exporter calls it: opentelemetry.io, "Prometheus and OpenMetrics
    compatibility", OTLP metric points to Prometheus."""
    name = metric.otel_name.replace(".", "_")
    unit = re.sub(r"\{.*\}", "", metric.otel_unit)
    suffix = {"s": "_seconds", "By": "_bytes", "1": "_ratio" if metric.kind == "gauge" else "", "": ""}[unit]
    return name + suffix + ("_total" if metric.kind == "counter" else "")


def test_the_opentelemetry_name_becomes_the_prometheus_name_in_a_collector():
    assert {metric: prometheus_name(metric) for metric in METRICS} == {
        metric: metric.name for metric in METRICS
    }


@pytest.mark.parametrize(
    ("metric", "name", "unit"),
    [
        (metrics.STAGE_DURATION, "hotstage.stage.duration", "s"),
        (metrics.STAGE_WAIT, "hotstage.stage.wait", "s"),
        (metrics.INSTANCE_LOAD, "hotstage.instance.load", "1"),
        (self_metrics.AGENT_RESIDENT, "hotstage.agent.resident", "By"),
        (metrics.ENDPOINT_REQUESTS, "hotstage.endpoint.requests", "{request}"),
        (metrics.BREAKER_STATE, "hotstage.breaker.state", ""),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_names_and_units_of_opentelemetry_come_from_the_prometheus_name(metric, name, unit):
    assert (metric.otel_name, metric.otel_unit) == (name, unit)
