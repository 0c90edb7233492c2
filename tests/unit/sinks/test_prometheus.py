# SPDX-License-Identifier: Apache-2.0
"""The exposition: what a scraper reads, and what promtool thinks of it."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.sinks import prometheus as module
from hotstage.sinks.metrics import METRICS
from hotstage.sinks.prometheus import PrometheusSink, SelfFacts
from hotstage.store.deliveries import DestinationReport, NotifierReport
from hotstage.store.journal import JournalState
from hotstage.store.outbox import OutboxState
from hotstage.windows.window import WindowUpdate

FACTS = SelfFacts(
    version="0.1.0", loader="libbpf", rung="S", fast_ticks=20, slow_ticks=2, late_ticks=1,
    fast_tick_p99_seconds=0.004, slow_tick_p99_seconds=None, attached_symbols=40, missed_symbols=2,
    map_bytes=1 << 20, page_dropped=0, losses={"lost_threads": 0}, sink_errors={"prometheus": 0},
)  # fmt: skip


@pytest.fixture
def facts():
    report = DestinationReport(name="pager", delivered=3, failed=1, dead=0, pending=2, oldest_age_seconds=1.5)
    return replace(
        FACTS,
        journal=JournalState(1, 5, 9, 0, None),
        outbox=OutboxState(4, time.time_ns() - 2_000_000_000, 23),
        notifier=NotifierReport(1, (report,)),
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
                instance: {"load_ratio": 0.5, "dispatch_deviation": -0.5},
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
    assert ("hotstage_tick_p99_seconds", (("tick", "slow"),)) not in found
    assert found["hotstage_series", ()] > 20


def test_before_the_first_tick_the_agent_is_not_up(sink):
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
    assert len(buckets) == 17


def test_scrapers_that_come_together_share_one_body(sink, full_tick):
    sink.publish(full_tick)
    assert sink.render("")[0] is sink.render("")[0]


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


def test_promtool_finds_nothing_to_complain_about(sink, full_tick):
    promtool = shutil.which("promtool")
    assert promtool, "promtool is part of Debian's prometheus package (see [tool.hotstage.system-packages])"
    sink.publish(full_tick)
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=sink.render("")[0], capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_a_hostile_name_cannot_break_the_exposition(sink, a_tick, a_pulse):
    sink.publish(a_tick(pulse=a_pulse(requests=[('/v1/"x"\n\\', "text", 0, 1.0)])))
    found = samples(sink)
    endpoints = {
        dict(labels)["endpoint"] for name, labels in found if name == "hotstage_endpoint_requests_total"
    }
    assert endpoints == {'/v1/"x"\n\\'}
