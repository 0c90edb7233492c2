# SPDX-License-Identifier: Apache-2.0
"""Engines among the exported metrics: labels, freshness, bounds."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hotstage.engines.quantiles import Basis, Phase
from hotstage.engines.samples import EngineSample, ModelSample
from hotstage.engines.table import Runtime
from hotstage.sinks import engine_metrics
from hotstage.sinks.engine_metrics import ENGINE_METRICS
from hotstage.sinks.metrics import METRICS
from hotstage.sinks.prometheus import PrometheusSink

SECOND = 1_000_000_000
AT = 1_000  # the pulse's time in `a_tick`
MODEL = ModelSample(
    "sim/vlm", queue=3.0, running=12.0, kv_use_ratio=0.6, prompt_tokens_total=900.0,
    output_tokens_total=500.0, preemptions_total=2.0, mm_cache_hits_total=1.0, mm_cache_queries_total=4.0,
    prefix_cache_hits_total=10.0,
    prefix_cache_queries_total=900.0, waiting={"capacity": 3.0}, requests={"ok": 7.0, "cancelled": 1.0},
    phases={
        "ttft": Phase(0.1, 0.4, 0.2, 50.0, Basis.histogram),
        "queue": Phase(math.nan, math.nan, 0.0, 9.0, Basis.histogram),
    },
)  # fmt: skip


def engine(name="vllm-0", *models, at_ns: int | None = AT, failures=None, runtime=Runtime.vllm):
    return EngineSample(
        name, name, runtime, at_ns, 6 * SECOND, "", 0, models or (MODEL,), MODEL, 0.02, failures or {}
    )


@pytest.fixture
def exported(a_tick, plain_facts):
    """`exported(engines…)` → {name: {label values, by the labels' names: value}} of a scrape."""

    def build(*engines, **changed):
        sink = PrometheusSink(lambda: plain_facts)
        sink.publish(a_tick(engines=engines, **changed))
        text = sink.render("")[0].decode()
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[
                    tuple(sample.labels[key] for key in sorted(sample.labels))
                ] = sample.value
        return found

    return build


def test_an_engine_is_told_apart_by_instance_model_and_runtime(exported):
    found = exported(engine())
    assert found["hotstage_engine_queue_requests"] == {("vllm-0", "sim/vlm", "vllm"): 3.0}
    assert found["hotstage_engine_waiting_requests"] == {("vllm-0", "sim/vlm", "capacity", "vllm"): 3.0}
    assert found["hotstage_engine_requests_total"] == {
        ("vllm-0", "sim/vlm", "ok", "vllm"): 7.0,
        ("vllm-0", "sim/vlm", "cancelled", "vllm"): 1.0,
    }
    assert found["hotstage_engine_output_tokens_total"] == {("vllm-0", "sim/vlm", "vllm"): 500.0}
    assert found["hotstage_engine_scrape_duration_seconds"] == {("vllm-0",): 0.02}


def test_a_quantile_that_is_not_known_has_no_series_and_a_mean_that_is_has_one(exported):
    found = exported(engine())
    assert {labels[2]: value for labels, value in found["hotstage_engine_phase_mean_seconds"].items()} == {
        "ttft": 0.2,
        "queue": 0.0,
    }
    assert found["hotstage_engine_phase_p95_seconds"] == {("vllm-0", "sim/vlm", "ttft", "vllm"): 0.4}


def test_all_metrics_of_engines_are_exported_when_all_is_told(exported):
    found = exported(engine(failures={"timeout": 2}))
    assert {metric.name for metric in ENGINE_METRICS} <= set(found)


def test_an_engine_that_is_too_old_has_no_numbers_and_is_not_up(exported):
    gone = engine("gone", at_ns=AT - 7 * SECOND, failures={"timeout": 2})
    found = exported(engine(), gone)
    assert found["hotstage_collector_up"] == {("engine:vllm-0",): 1.0, ("engine:gone",): 0.0}
    assert set(found["hotstage_engine_queue_requests"]) == {("vllm-0", "sim/vlm", "vllm")}
    assert found["hotstage_engine_scrape_failures_total"] == {("gone", "timeout"): 2.0}
    last = found["hotstage_collector_last_success_timestamp_seconds"]
    assert last[("engine:vllm-0",)] - last[("engine:gone",)] == pytest.approx(7.0, abs=1e-3)


def test_an_engine_that_was_never_heard_is_not_up_and_has_no_last_time(exported):
    found = exported(engine(at_ns=None, runtime=None))
    assert found["hotstage_collector_up"] == {("engine:vllm-0",): 0.0}
    assert "hotstage_collector_last_success_timestamp_seconds" not in found


def test_sources_of_the_frame_and_engines_are_one_metric(exported, a_frame):
    found = exported(engine(), frame=a_frame({}, stale={"calls"}))
    assert found["hotstage_collector_up"][("engine:vllm-0",)] == 1.0
    assert found["hotstage_collector_up"][("calls",)] == 0.0


def test_without_engines_nothing_is_exported_of_them(exported):
    assert [name for name in exported() if name.startswith("hotstage_engine_")] == []


def test_models_beyond_the_cap_are_left_out_and_counted(exported):
    models = [ModelSample(f"m{number}", queue=1.0) for number in range(20)]
    found = exported(engine("many", *models))
    assert len(found["hotstage_engine_queue_requests"]) == engine_metrics.QUEUE.cap == 8
    assert found["hotstage_series_dropped_total"][("hotstage_engine_queue_requests",)] >= 12.0


def test_the_rows_are_in_the_table_once():
    assert [METRICS.count(metric) for metric in ENGINE_METRICS] == [1] * len(ENGINE_METRICS)
