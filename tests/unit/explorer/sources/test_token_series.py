# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from hotstage_explorer.sources.promql import Series
from hotstage_explorer.sources.token_series import PART, latency


def series(name: str, value: float | None, host: str = "a", **labels: str) -> Series:
    known = {"__name__": name, "job": "hotstage", "instance": host}
    return Series({**known, **labels}, ((0.0, value),))


PARTS = [
    series(PART, 0.3, modality="image", part="vision_encode"),
    series(PART, 0.1, modality="image", part="queue"),
    series(PART, 0.05, modality="text", part="llm_prefill"),
    series("hotstage_ttft_p95_seconds", 0.9, modality="image"),
]


def test_parts_add_up_to_the_mean_and_have_shares() -> None:
    image, text = latency(PARTS).rows
    assert (image.modality, text.modality) == ("image", "text")
    assert image.ttft_mean_seconds == pytest.approx(0.4)
    assert [(part.name, part.is_wait) for part in image.parts] == [("vision_encode", False), ("queue", True)]
    assert image.parts[0].share == pytest.approx(0.75)
    assert (image.ttft_p95_seconds, image.slowest, image.requests) == (0.9, "vision_encode", None)


def test_two_hosts_stay_two_and_one_can_be_chosen() -> None:
    found = latency([*PARTS, series(PART, 0.9, "b", modality="image", part="vision_encode")])
    assert found.rows[0].name == "image on b"
    assert [row.host for row in found.of_host("a").rows] == ["a", "a"]
    assert found.of_host("nobody") is found
    assert {row.host for row in latency(PARTS).rows} == {""}


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -1.0, 1e300])
def test_values_that_cannot_be_are_left_out(value: float | None) -> None:
    assert latency([series(PART, value, modality="image", part="a")]).rows == ()


def test_parts_of_nothing_have_no_shares() -> None:
    (row,) = latency([series(PART, 0.0, modality="image", part="a")]).rows
    assert (row.parts, row.ttft_mean_seconds) == ((), None)
