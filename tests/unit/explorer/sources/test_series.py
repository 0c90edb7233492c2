# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from hotstage_explorer.sources import series
from hotstage_explorer.sources.promql import Series

ONE = (("instance", "gpu-1:9178"), ("job", "hotstage"))
TWO = (("instance", "gpu-2:9178"), ("job", "hotstage"))
NAMES = {ONE: "gpu-1:9178", TWO: "gpu-2:9178"}
ROUTE = {"endpoint": "/v1/vision", "instance_id": "i-0", "modality": "image"}


def sample(name: str, value: float | None, host: series.Identity = ONE, **own: str) -> Series:
    return Series({"__name__": name, **dict(host), **own}, ((100.0, value),))


def now(*samples: Series) -> series.Now:
    return series.sorted_out(samples)


def marked(mark: str, value: float | None, host: series.Identity = ONE, **own: str) -> Series:
    return Series({**dict(host), **own, "hotstage_sample": mark}, ((100.0, value),))


def test_a_point_has_its_own_gauges_and_those_of_its_instance() -> None:
    (point,) = series.points(
        now(
            sample("hotstage_endpoint_instance_heat", 2.5, **ROUTE),
            sample("hotstage_endpoint_instance_request_rate", 1.25, **ROUTE),
            sample("hotstage_endpoint_instance_latency_p95_seconds", 0.31, **ROUTE),
            sample("hotstage_endpoint_instance_requests", 70.0, **ROUTE),
            sample("hotstage_instance_load_ratio", 0.4, instance_id="i-0"),
            sample("hotstage_instance_cpu_load_ratio", 0.5, instance_id="i-0"),
            sample("hotstage_instance_memory_load_ratio", 0.3, instance_id="i-0"),
            sample("hotstage_instance_dispatch_deviation", -0.2, instance_id="i-0"),
            sample("hotstage_instance_load_ratio", 0.9, instance_id="i-1"),
        ),
        NAMES,
    )
    assert (point.endpoint, point.instance, point.modality) == ("/v1/vision", "i-0", "image")
    assert (point.heat, point.request_rate, point.p95_seconds, point.requests) == (2.5, 1.25, 0.31, 70)
    assert (point.load_ratio, point.cpu_load_ratio, point.memory_load_ratio) == (0.4, 0.5, 0.3)
    assert point.deviation == -0.2
    assert point.is_drawable


def test_what_is_not_exported_is_unknown_and_not_zero() -> None:
    (point,) = series.points(now(sample("hotstage_endpoint_instance_heat", 0.0, **ROUTE)), NAMES)
    assert point.heat == 0.0
    assert point.p95_seconds is None
    assert point.load_ratio is None
    assert not point.is_drawable


@pytest.mark.parametrize("value", [None, -1.0])
def test_a_value_that_cannot_be_is_unknown(value: float | None) -> None:
    points = series.points(
        now(
            sample("hotstage_endpoint_instance_requests", 3.0, **ROUTE),
            sample("hotstage_endpoint_instance_heat", value, **ROUTE),
        ),
        NAMES,
    )
    assert [(p.heat, p.requests) for p in points] == [(None, 3)]


def test_equal_names_on_two_hosts_are_two_points_with_two_loads() -> None:
    points = series.points(
        now(
            sample("hotstage_endpoint_instance_heat", 1.0, ONE, **ROUTE),
            sample("hotstage_endpoint_instance_heat", 2.0, TWO, **ROUTE),
            sample("hotstage_instance_load_ratio", 0.1, ONE, instance_id="i-0"),
            sample("hotstage_instance_load_ratio", 0.2, TWO, instance_id="i-0"),
        ),
        NAMES,
    )
    assert {(p.host, p.heat, p.load_ratio) for p in points} == {
        ("gpu-1:9178", 1.0, 0.1),
        ("gpu-2:9178", 2.0, 0.2),
    }
    assert len({p.key for p in points}) == 2


def test_hosts_are_told_apart_by_what_differs() -> None:
    one, other = ((("cluster", c), ("instance", "gpu-1"), ("job", "hotstage")) for c in ("a", "b"))
    assert series.host_names([one, other, TWO]) == {
        one: "gpu-1 (cluster=a)",
        other: "gpu-1 (cluster=b)",
        TWO: "gpu-2:9178",
    }


def test_no_two_hosts_share_a_name_however_long_theirs_are() -> None:
    hosts = [(("instance", "x" * 100 + end),) for end in "ab"]
    assert len(set(series.host_names(hosts).values())) == 2


def test_the_time_of_a_scrape_and_its_failure_are_told_by_host() -> None:
    seen = now(marked("time", 99.5, ONE), marked("up", 1.0, ONE), marked("up", 0.0, TWO))
    assert seen.sampled == {ONE: 99.5}
    assert seen.scraped == {ONE: True, TWO: False}


def test_stages_come_in_pipeline_order_and_sum_over_models_and_gpus() -> None:
    stage = {"stage": "vision_encode", "modality": "image"}
    rows = series.stages(
        now(
            sample("hotstage_stage_inflight", 2.0, **stage, model_name="a", gpu_uuid="GPU-1"),
            sample("hotstage_stage_inflight", 3.0, **stage, model_name="b", gpu_uuid="GPU-2"),
            sample("hotstage_stage_duration_seconds_count", 40.0, **stage, model_name="a", gpu_uuid="GPU-1"),
            sample("hotstage_stage_duration_seconds_count", 2.0, stage="tokenize", modality="text"),
            sample("hotstage_stage_state", 1.0, stage="tokenize", modality="text", state="idle"),
            sample("hotstage_stage_state", 0.0, **stage, state="idle"),
        ),
        [marked("p95", 0.25, **stage), marked("rate", 1.5, **stage), marked("p50", None, **stage)],
        NAMES,
    )
    assert [(r.stage, r.inflight, r.requests) for r in rows] == [
        ("tokenize", 0, 2),
        ("vision_encode", 5, 40),
    ]
    assert (rows[1].p50_seconds, rows[1].p95_seconds, rows[1].rate) == (None, 0.25, 1.5)
    assert rows[0].p95_seconds is None
    assert all(r.oldest_age_seconds is None for r in rows), "metrics do not have it"


WINDOW = {"kind": "stage_latency", "severity": "critical", "stage": "vision_encode"}


def window_series(*points: tuple[float, float]) -> Series:
    return Series({"__name__": "hotstage_window_active", **dict(ONE), **WINDOW}, points)


def test_an_open_window_began_with_its_last_run_of_samples() -> None:
    found = series.windows(
        now(sample("hotstage_window_active", 2.0, **WINDOW)),
        [window_series((10.0, 1.0), (15.0, 1.0), (40.0, 1.0), (45.0, 2.0))],
        NAMES,
        interval_seconds=5.0,
    )
    opened, closed = found
    assert (opened.is_open, opened.opened_ns, opened.count) == (True, 40_000_000_000, 2)
    assert (closed.is_open, closed.opened_ns, closed.closed_ns) == (False, 10_000_000_000, 15_000_000_000)
    assert opened.is_about and closed.is_about
    assert opened.cause == "" and opened.evidence == ()
    assert opened.names("stage") == "vision_encode"
    assert opened.names("modality") is None


def test_a_window_younger_than_a_sample_has_no_beginning_yet() -> None:
    (found,) = series.windows(
        now(sample("hotstage_window_active", 1.0, **WINDOW)), [], NAMES, interval_seconds=5.0
    )
    assert found.is_open
    assert found.opened_ns is None


def test_a_window_that_is_open_no_more_is_closed() -> None:
    (found,) = series.windows(now(), [window_series((10.0, 1.0), (15.0, 1.0))], NAMES, interval_seconds=5.0)
    assert not found.is_open


def test_a_breaker_is_in_the_state_whose_series_is_one() -> None:
    rows = series.breakers(
        now(
            sample("hotstage_breaker_state", 0.0, breaker="host", state="closed"),
            sample("hotstage_breaker_state", 1.0, breaker="host", state="open"),
            sample("hotstage_breaker_state", 1.0, TWO, breaker="host", state="closed"),
            sample("hotstage_breaker_enforced", 1.0, breaker="host"),
            sample("hotstage_breaker_stale", 0.0, breaker="host"),
            sample("hotstage_breaker_last_transition_timestamp_seconds", 1_700_000_000.5, breaker="host"),
        ),
        NAMES,
    )
    assert [(b.host, b.state, b.is_enforced) for b in rows] == [
        ("gpu-1:9178", "open", True),
        ("gpu-2:9178", "closed", False),
    ]
    assert rows[0].since_ns == 1_700_000_000_500_000_000
    assert rows[1].since_ns is None


def test_coverage_is_what_metrics_say_and_no_more() -> None:
    found: Any = series.coverages(
        now(
            sample("hotstage_build_info", 1.0, version="0", loader="libbpf", rung="S"),
            sample("hotstage_coverage_attached_symbols", 60.0),
        )
    )[ONE]
    assert (found.loader, found.rung, found.attached) == ("libbpf", "S", 60)
    assert (found.missed, found.counted, found.lost) == (None, None, None)
