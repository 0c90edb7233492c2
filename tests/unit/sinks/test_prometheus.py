# SPDX-License-Identifier: Apache-2.0
"""The exposition: what a scraper reads, and what promtool thinks of it."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.sinks import metrics
from hotstage.sinks import prometheus as module
from hotstage.sinks.metrics import METRICS
from hotstage.sinks.prometheus import PrometheusSink
from hotstage.sinks.readings import PENDING_MAX, Reading
from hotstage.sinks.self_facts import OtlpState
from hotstage.sinks.tally import bounds_of
from hotstage.store.deliveries import DestinationReport, NotifierReport
from hotstage.store.journal import JournalState
from hotstage.store.outbox import OutboxState
from hotstage.windows.window import WindowUpdate

DURATIONS = (0,) * 3 + (2, 1) + (0,) * 7


@pytest.fixture
def facts(plain_facts):
    report = DestinationReport(name="pager", delivered=3, failed=1, dead=0, pending=2, oldest_age_seconds=1.5,
        duration_counts=DURATIONS, duration_sum_seconds=0.4)  # fmt: skip
    return replace(
        plain_facts,
        journal=JournalState(1, 5, 9, 0, None),
        outbox=OutboxState(4, time.time_ns() - 2_000_000_000, 23),
        notifier=NotifierReport(1, (report,)),
        otlp=OtlpState(7, {"rate_limit": 2}),
    )


@pytest.fixture
def sink(facts):
    return PrometheusSink(lambda: facts)


@pytest.fixture
def full_tick(a_tick, a_pulse, a_frame, make):
    stage = Entity(EntityKind.stage, stage="vision_encode", modality="image")
    endpoint, instance = (
        Entity(EntityKind.endpoint, endpoint="/v1/chat"),
        Entity(EntityKind.instance, instance="i"),
    )
    route = Entity(EntityKind.route, endpoint="/v1/chat", instance="i")
    return a_tick(
        pulse=a_pulse(
            stages=[("vision_encode", "image", 0.02, 7, 1)],
            requests=[("/v1/chat", "image", 0, 1.5)],
            open_stages=[("vision_encode", "image", 7)],
        ),
        frame=a_frame(
            {
                HOST: {"unattributed_ratio": 0.0},
                stage: {"inflight": 1},
                endpoint: {"endpoint_heat": 4.0, "latency_p95_seconds": 1.0},
                instance: {"load_ratio": 0.5, "cpu_load_ratio": 0.4, "dispatch_deviation": -0.5},
                route: {"endpoint_heat": 4.0, "request_rate": 4.0, "requests_ended": 1},
            }
        ),
        windows=WindowUpdate(opened=(make.window(),), open=(make.window(),)),
        breakers=(make.breaker(),),
        transitions=(make.transition(),),
        endpoint_modality={"/v1/chat": "image"},
    )


def samples(sink):
    body, _ = sink.render("")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_a_scrape_tells_of_the_tick_and_of_the_agent(sink, full_tick):
    sink.publish(full_tick)
    found = samples(sink)
    stage = (("gpu_uuid", ""), ("modality", "image"), ("model_name", "vlm"), ("stage", "vision_encode"))
    assert found["hotstage_stage_duration_seconds_count", stage] == 1
    assert found["hotstage_stage_duration_seconds_sum", stage] == 0.02
    request = (("endpoint", "/v1/chat"), ("modality", "image"), ("model_name", "vlm"), ("outcome", "ok"))
    assert found["hotstage_endpoint_requests_total", request] == 1
    assert found["hotstage_endpoint_heat", (("endpoint", "/v1/chat"), ("modality", "image"))] == 4.0
    breaker = (("breaker", "stage:vision_encode:image"), ("state", "open"))
    assert found["hotstage_breaker_state", breaker] == 1
    assert found["hotstage_up", ()] == 1
    assert found["hotstage_webhook_outbox_pending", ()] == 4
    assert 1.9 < found["hotstage_webhook_outbox_oldest_age_seconds", ()] < 20
    delivered = (("destination", "pager"), ("result", "delivered"))
    assert found["hotstage_webhook_deliveries_total", delivered] == 3
    assert found["hotstage_webhook_refused", (("destination", "pager"),)] == 0
    duration = "hotstage_webhook_delivery_duration_seconds"
    assert found[f"{duration}_count", (("destination", "pager"),)] == 3
    assert found[f"{duration}_bucket", (("destination", "pager"), ("le", "0.0625"))] == 2
    assert found[f"{duration}_sum", (("destination", "pager"),)] == 0.4
    assert found["hotstage_otlp_spans_dropped_total", (("reason", "rate_limit"),)] == 2
    assert found["hotstage_config_last_reload_successful", ()] == 1
    fresh = ("hotstage_collector_last_success_timestamp_seconds", (("collector", "calls"),))
    assert found[fresh] == 1_000.000001
    assert ("hotstage_tick_p99_seconds", (("tick", "slow"),)) not in found
    assert found["hotstage_series", ()] > 20


def test_an_agent_whose_ticks_stand_still_is_not_up_though_it_has_ticked(full_tick, plain_facts):
    sink = PrometheusSink(lambda: replace(plain_facts, is_ticking=False))
    sink.publish(full_tick)
    assert samples(sink)["hotstage_up", ()] == 0


def test_counters_stay_and_gauges_go_with_what_they_speak_of(sink, full_tick, a_tick, monkeypatch):
    monkeypatch.setattr(module, "CACHE_SECONDS", 0.0)
    sink.publish(full_tick)
    sink.publish(a_tick(frame=None))
    found = samples(sink)
    names = {name for name, _ in found}
    assert "hotstage_breaker_state" not in names
    assert "hotstage_stage_inflight" not in names
    assert "hotstage_breaker_transitions_total" in names
    assert "hotstage_endpoint_heat" in names, "gauges of the slow tick stand until the next one"


def test_what_ended_in_a_fast_tick_is_there_for_whoever_reads_and_counts_once(
    sink, full_tick, a_tick, a_pulse
):
    ended = a_pulse([("vision_encode", "image", 0.01, 7, 1)])

    def counted():
        (stages,) = (each for each in sink.readings.collect() if each.metric is metrics.STAGE_DURATION)
        return sum(buckets[-1][1] for _, buckets, _ in stages.histograms)

    sink.publish(full_tick)
    before = counted()
    for ticks in (1, PENDING_MAX + 3):
        for _ in range(ticks):
            sink.publish(a_tick(frame=None, pulse=ended))
        assert (counted(), counted()) == (before + ticks, before + ticks)
        before += ticks
    sink.publish(full_tick)
    assert len(sink.readings._pending) == 0, "nothing waits for longer than a second"


def test_the_stage_histogram_is_cumulative_with_scale_3_edges(sink, full_tick):
    sink.publish(full_tick)
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in samples(sink).items()
        if name == "hotstage_stage_duration_seconds_bucket"
    }
    assert buckets["0.015625"] == 0
    assert buckets["0.03125"] == 1
    assert buckets["+Inf"] == 1
    assert len(buckets) == len(metrics.STAGE_EDGES) + 1


def test_scrapers_that_come_together_share_one_body(sink, full_tick):
    sink.publish(full_tick)
    assert sink.render("")[0] is sink.render("")[0]


def test_gauges_beyond_their_cap_are_left_out_and_counted(sink, a_tick, a_frame):
    many = {Entity(EntityKind.instance, instance=f"i-{n}"): {"load_ratio": 0.5} for n in range(150)}
    sink.publish(a_tick(frame=a_frame(many)))
    found = samples(sink)
    cap = metrics.INSTANCE_LOAD.cap
    assert sum(name == metrics.INSTANCE_LOAD.name for name, _ in found) == cap
    dropped = ("hotstage_series_dropped_total", (("metric", metrics.INSTANCE_LOAD.name),))
    assert found[dropped] == 150 - cap


def test_openmetrics_is_given_to_those_who_ask(sink, full_tick):
    sink.publish(full_tick)
    body, content_type = sink.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_every_exported_family_is_in_the_table(sink, full_tick):
    sink.publish(full_tick)
    table = {metric.name for metric in METRICS}
    exported = {
        name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name, _ in samples(sink)
    }
    assert exported <= table


def promtool_says(body):
    promtool = shutil.which("promtool")
    assert promtool, "promtool is part of Debian's prometheus package (see [tool.hotstage.system-packages])"
    checked = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)
    return checked.returncode, checked.stdout + checked.stderr


def test_promtool_finds_nothing_to_complain_about(sink, full_tick):
    sink.publish(full_tick)
    assert promtool_says(sink.render("")[0]) == (0, b"")


def test_promtool_finds_nothing_to_complain_about_in_any_row_of_the_table():
    def readings():
        for metric in METRICS:
            labels = ("x",) * len(metric.labels)
            buckets = [(bound, 1.0) for bound in bounds_of(metric.edges)]
            yield Reading(metric, [(labels, 1.0)], [(labels, buckets, 0.5)])

    registry = CollectorRegistry(auto_describe=False)
    registry.register(module.Scrape(readings))
    body = generate_latest(registry)
    assert body.count(b"# HELP") == len(METRICS)
    assert promtool_says(body) == (0, b"")


def test_a_hostile_name_cannot_break_the_exposition(sink, a_tick, a_pulse):
    sink.publish(a_tick(pulse=a_pulse(requests=[('/v1/"x"\n\\', "text", 0, 1.0)])))
    found = samples(sink)
    endpoints = {
        dict(labels)["endpoint"] for name, labels in found if name == "hotstage_endpoint_requests_total"
    }
    assert endpoints == {'/v1/"x"\n\\'}
