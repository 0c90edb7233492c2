# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from hotstage_explorer.documents.classes import classes
from hotstage_explorer.documents.latency import components, latency

HOSTILE: list[Any] = [None, 7, "x", [], [[]], {}, {"a": 1}, float("nan"), True, -3, 1e300]


def tokens(modality: str, mean: float, **more: Any) -> dict[str, Any]:
    return {"modality": modality, "requests": 30, "ttft_mean_seconds": mean, **more}


def test_all_requests_come_first_then_the_latest_first_token() -> None:
    body = {"total": tokens("all", 0.2), "modalities": [tokens("text", 0.1), tokens("video", 0.4)]}
    assert [row.modality for row in latency(body).rows] == ["all", "video", "text"]


def test_modalities_without_requests_are_left_out() -> None:
    body = {"total": tokens("all", 0.2, requests=0), "modalities": [tokens("text", 0.1, requests=None)]}
    assert latency(body).rows == ()


def test_parts_come_by_share_and_never_above_one() -> None:
    parts = [
        {"name": "a", "share": 0.2},
        {"name": "b", "share": 3.0, "kind": "wait"},
        {"name": "c", "share": "1"},
    ]
    (row,) = latency({"total": tokens("all", 0.2, parts=parts)}).rows
    assert [(part.name, part.share, part.is_wait) for part in row.parts] == [
        ("b", 1.0, True),
        ("a", 0.2, False),
    ]


@pytest.mark.parametrize("bad", HOSTILE)
def test_bodies_of_any_shape_are_read(bad: Any) -> None:
    assert latency({"total": bad, "modalities": bad, "window_seconds": bad}).rows == ()
    assert components({"request": bad, "components": bad}).window_seconds is None
    assert classes({"basis": bad, "classes": bad, "fingerprints": [bad], "endpoints": bad}).classes == ()
    fields = (
        "stage",
        "kind",
        "source",
        "count",
        "mean_seconds",
        "p95_seconds",
        "variance",
        "share",
        "lora_rank",
    )
    (row,) = components({"components": [dict.fromkeys(fields, bad)]}).rows
    assert row.mean_seconds is None or 0 <= row.mean_seconds <= 1e100


def test_an_adapter_is_named() -> None:
    row = {"stage": "lora_apply", "lora_rank": 16, "lora_module": "q_proj"}
    assert components({"components": [row]}).rows[0].lora == "rank 16, q_proj"
    assert components({"components": [{"stage": "gateway"}]}).rows[0].lora == ""


def test_a_class_is_late_above_its_target_and_unknown_without_one() -> None:
    known = {"fingerprint": "vlm", "requests": 4, "p99_seconds": 1.0}
    rows = [{**known, "p99_target_seconds": target} for target in (0.8, 2.0, None)]
    assert [row.is_late for row in classes({"classes": rows}).classes] == [True, False, None]


def test_classes_that_no_request_is_in_are_left_out_and_lists_are_bounded() -> None:
    rows = [{"fingerprint": "llm", "requests": n % 2} for n in range(5000)]
    assert len(classes({"classes": rows}).classes) == 250
