# SPDX-License-Identifier: Apache-2.0
"""Request classes as metrics: base units, no series for the unknown, sizes never summed with their whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage

from hotstage.config.classes import ClassesConfig
from hotstage.config.settings import FrameConfig
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.request_statistics import RequestStatistics
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.sinks import class_metrics as metrics
from hotstage.sinks.classes import class_children
from hotstage.sinks.prometheus import PrometheusSink

START = 1000 * SECOND


def ended(seconds, *, modality=Modality.image, tokens=500, endpoint="/v1/vision", number=0):
    took = round(seconds * SECOND)
    one = KernelRequest(number, at_ns=START - took, endpoint=endpoint)
    one.begin(Stage.llm_prefill, START - took, modality=modality, tokens=tokens)
    return one.end(Stage.llm_prefill, START - took + MS).finished(START)


@pytest.fixture
def statistics():
    """Twenty images of 2 s and 500 tokens, five large ones of 4 s, a text of 1 s that says no tokens."""
    rows = [ended(2.0, number=n) for n in range(20)]
    rows += [ended(4.0, tokens=2000, endpoint="/v1/album", number=n) for n in range(20, 25)]
    rows += [ended(1.0, modality=Modality.text, tokens=0, endpoint="/v1/chat", number=99)]
    found = RequestStatistics(ClassesConfig(), FrameConfig())
    found.keep(START, np.array(rows, FINISHED_DTYPE))
    return found


def test_every_metric_of_classes_has_what_is_known_in_base_units(statistics):
    children = {metric: dict(each) for metric, each in class_children(statistics.classes(START)).items()}
    assert children[metrics.REQUESTS] == {
        ("llm", "unknown"): 1.0,
        ("vlm", "up_to_1K"): 20.0,
        ("vlm", "up_to_8K"): 5.0,
    }
    assert children[metrics.P99] == {("vlm", "all"): 4.0, ("vlm", "up_to_1K"): 2.0}
    assert children[metrics.P95] == {("vlm", "all"): 4.0, ("vlm", "up_to_1K"): 2.0}
    assert children[metrics.MEAN] == pytest.approx(
        {
            ("llm", "all"): 1.0,
            ("vlm", "all"): 2.4,
            ("llm", "unknown"): 1.0,
            ("vlm", "up_to_1K"): 2.0,
            ("vlm", "up_to_8K"): 4.0,
        }
    )
    assert children[metrics.TARGET] == {("llm",): 2.0, ("vlm",): 0.8}
    assert children[metrics.WITHIN] == {("vlm",): 0.0}
    assert children[metrics.TOKEN_LATENCY] == pytest.approx({("vlm",): 60.0 / 20_000})
    assert children[metrics.PENALTY] == pytest.approx({("vlm",): 0.3 * 3.5})
    assert children[metrics.ENDPOINT_PENALTY] == pytest.approx({("/v1/vision", "vlm"): 0.3 * 1.5})
    assert set(children) | {metrics.ENDPOINT_TOKEN_LATENCY} == set(metrics.CLASS_METRICS)


def test_a_cap_leaves_out_sizes_before_classes_and_small_penalties_before_large_ones(statistics):
    table = statistics.classes(START)
    (row,) = [each for each in table.endpoints if each.endpoint == "/v1/vision"]
    many = replace(
        table, endpoints=tuple(replace(row, endpoint=f"/{n}", slo_penalty_ms=float(n)) for n in range(100))
    )
    children = class_children(many)
    cut = children[metrics.ENDPOINT_PENALTY][: metrics.ENDPOINT_PENALTY.cap]
    assert min(value for _, value in cut) == pytest.approx((100 - metrics.ENDPOINT_PENALTY.cap) / 1e3)
    assert [labels[1] for labels, _ in children[metrics.MEAN]][:2] == ["all", "all"]


def test_a_scrape_asks_for_the_classes_of_the_last_tick(statistics, a_tick, a_frame, plain_facts):
    asked = []

    def classes(at_ns):
        asked.append(at_ns)
        return statistics.classes(START)

    sink = PrometheusSink(lambda: plain_facts, classes=classes)
    sink.render("")
    assert asked == [], "no tick yet"
    endpoint = Entity(EntityKind.endpoint, endpoint="/v1/vision")
    tick = a_tick(
        frame=a_frame({endpoint: {"token_equivalent_latency_seconds": 0.004}}),
        endpoint_modality={"/v1/vision": "image"},
    )
    sink.publish(tick)
    body, _ = sink.render("text/plain; version=1.0.0")
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert asked == [tick.pulse.at_ns]
    assert (
        found["hotstage_request_class_latency_p99_seconds", (("request_class", "vlm"), ("size", "all"))] == 4
    )
    by_endpoint = (("endpoint", "/v1/vision"), ("modality", "image"))
    assert found["hotstage_token_equivalent_latency_seconds", by_endpoint] == 0.004


def test_what_the_agent_could_not_take_on_is_counted(plain_facts):
    facts = replace(plain_facts, threadless=3, log_records={"refused": 2, "dropped": 1})
    body = PrometheusSink(lambda: facts).render("")[0].decode()
    assert "hotstage_api_threadless_connections_total 3.0" in body
    assert 'hotstage_log_records_not_journaled_total{fate="dropped"} 1.0' in body
    plain = PrometheusSink(lambda: plain_facts).render("")[0].decode()
    assert "hotstage_log_records_not_journaled_total{" not in plain, "unknown where no journal is written to"
