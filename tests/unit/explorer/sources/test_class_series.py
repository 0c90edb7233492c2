# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from hotstage_explorer.sources.class_series import classes
from hotstage_explorer.sources.expressions import MARK
from hotstage_explorer.sources.promql import Series

BASE = "hotstage_request_class_"


def series(name: str, value: float | None, host: str = "a", **labels: str) -> Series:
    known = {"__name__": name} if name else {MARK: "rate"}
    return Series({**known, "job": "hotstage", "instance": host, **labels}, ((0.0, value),))


SIZED = [
    series(f"{BASE}requests_total", 40.0, request_class="vlm", size="up_to_1K"),
    series(f"{BASE}requests_total", 2.0, request_class="vlm", size="over_128K"),
    series("", 0.5, request_class="vlm", size="up_to_1K"),
    series("", 0.25, request_class="vlm", size="over_128K"),
    series(f"{BASE}latency_p99_seconds", 0.9, request_class="vlm", size="up_to_1K"),
]
WHOLE = [
    series(f"{BASE}latency_p99_seconds", 1.1, request_class="vlm", size="all"),
    series(f"{BASE}p99_target_seconds", 0.8, request_class="vlm"),
    series(f"{BASE}slo_penalty_seconds", 0.18, request_class="vlm"),
    series(f"{BASE}token_equivalent_latency_seconds", 0.0004, request_class="vlm"),
    series("hotstage_endpoint_slo_penalty_seconds", 0.2, request_class="vlm", endpoint="/v1/vision"),
]


def test_a_fingerprint_has_what_is_said_of_it_and_the_sum_of_its_sizes() -> None:
    (row,) = classes([*SIZED, *WHOLE]).fingerprints
    assert (row.requests, row.rate, row.p99_seconds) == (42, 0.75, 1.1)
    assert row.slo_penalty_ms == pytest.approx(180)
    assert row.token_equivalent_ms == pytest.approx(0.4)
    assert row.is_late


def test_sizes_and_endpoints_are_rows_of_their_own() -> None:
    found = classes([*SIZED, *WHOLE])
    assert {(row.size, row.requests) for row in found.classes} == {("up_to_1K", 40), ("over_128K", 2)}
    assert [(row.endpoint, row.slo_penalty_ms) for row in found.endpoints] == [("/v1/vision", 200)]


def test_two_hosts_stay_two_and_one_can_be_chosen() -> None:
    found = classes([*WHOLE, series(f"{BASE}p99_target_seconds", 0.5, "b", request_class="vlm")])
    assert sorted(row.host for row in found.fingerprints) == ["a", "b"]
    assert [row.host for row in found.of_host("b").fingerprints] == ["b"]
    assert found.of_host("nobody") is found
    assert {row.host for row in classes(WHOLE).fingerprints} == {""}


@pytest.mark.parametrize("value", [None, math.nan, -3.0, 1e300])
def test_values_that_cannot_be_are_unknown(value: float | None) -> None:
    rows = classes(
        [series(f"{BASE}latency_p95_seconds", value, request_class="<b>", size="all")]
    ).fingerprints
    assert all(row.p95_seconds is None for row in rows)


def test_other_metrics_are_left_out() -> None:
    assert classes([series("hotstage_stage_inflight", 3.0, stage="queue")]).fingerprints == ()
