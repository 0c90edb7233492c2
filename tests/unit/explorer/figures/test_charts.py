# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from hotstage_explorer.documents.classes import ClassRow
from hotstage_explorer.documents.latency import Part, TokenLatency
from hotstage_explorer.figures.class_times import MAX_CLASSES, class_times
from hotstage_explorer.figures.first_token import first_token

EVIL = "<img src=x onerror=alert(1)>"


def part(name: str, share: float, is_wait: bool = False) -> Part:
    return Part(name, is_wait, 30, 0.01, 0.02, share)


def row(fingerprint: str, requests: int = 30, **more: float | None) -> ClassRow:
    known: dict[str, float | None] = dict.fromkeys(
        ("rate", "mean_seconds", "p50_seconds", "p95_seconds", "p99_seconds", "p99_target_seconds"), None
    )
    late = dict.fromkeys(("within_target_ratio", "token_equivalent_ms", "slo_penalty_ms"), None)
    return ClassRow(fingerprint, "", EVIL, requests, 30, **{**known, **late, **more})


def test_a_bar_is_as_long_as_the_mean_and_made_of_its_parts() -> None:
    parts = (part("llm_prefill", 0.6), part("queue", 0.3, True), *(part(f"s{n}", 0.005) for n in range(20)))
    figure = first_token([TokenLatency("image", 30, ttft_mean_seconds=0.4, parts=parts)])
    assert figure is not None
    stages, waits = figure["data"]
    assert sum(stages["x"]) + sum(waits["x"]) == pytest.approx(400)
    assert waits["base"] == pytest.approx([240])
    assert len(stages["x"]) == 2, "what is small is one piece"
    assert waits["text"] == [""], "no text on hatching"


def test_nothing_known_draws_nothing() -> None:
    assert first_token([TokenLatency("text", 30, parts=(part("a", 1.0),))]) is None
    assert first_token([]) is None
    assert class_times([row("llm")], "fingerprint") is None


def test_names_are_text() -> None:
    figures = [
        first_token([TokenLatency(EVIL, 3, ttft_mean_seconds=0.2, parts=(part(EVIL, 1.0),))]),
        class_times([row(EVIL, p50_seconds=0.2, p99_target_seconds=0.3)], "endpoint"),
    ]
    assert "<img" not in json.dumps(figures, allow_nan=False)


def test_classes_have_a_bar_a_quantile_and_a_stroke_at_the_target() -> None:
    rows = [row("vlm", p50_seconds=0.2, p95_seconds=0.4, p99_target_seconds=0.8), row("llm", p50_seconds=0.1)]
    figure = class_times(rows, "fingerprint")
    assert figure is not None
    assert [trace["name"] for trace in figure["data"]] == ["P50", "P95", "P99", "target of P99"]
    assert figure["data"][1]["x"] == [pytest.approx(400), None], "unknown is no bar of length 0"
    assert figure["data"][3]["x"] == [pytest.approx(800)]


def test_many_classes_are_cut_to_those_of_most_requests() -> None:
    figure = class_times([row(f"c{n}", n, p50_seconds=0.1) for n in range(1, 400)], "fingerprint")
    assert figure is not None
    assert len(figure["data"][0]["x"]) == MAX_CLASSES
    assert figure["layout"]["yaxis"]["ticktext"][0].strip() == "c399"
