# SPDX-License-Identifier: Apache-2.0
"""Bodies as an agent sends them, and as nobody should."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotstage_explorer import parse

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
# fmt: off
FIELDS = st.sampled_from([
    "points", "stages", "windows", "breakers", "calls", "missed", "processes", "endpoint", "instance",
    "heat", "requests", "load_ratio", "modality", "stage", "inflight", "p95_seconds", "id", "kind",
    "severity", "state", "entity", "cause", "evidence", "candidates", "override", "counted", "lost",
    "basis", "unattributed_ratio",
])
# fmt: on
HOSTILE = st.dictionaries(
    FIELDS, ANYTHING | st.lists(st.dictionaries(FIELDS, ANYTHING, max_size=8), max_size=4), max_size=8
)


def test_a_point_is_read_with_all_its_figures() -> None:
    (point,) = parse.points(
        {
            "points": [
                {
                    "endpoint": "/v1/encode",
                    "instance": "i-0",
                    "modality": "image",
                    "heat": 20.8,
                    "request_rate": 13,
                    "latency_p95_seconds": 0.31,
                    "requests": 780,
                    "load_ratio": 0.55,
                    "cpu_load_ratio": 0.6,
                    "memory_load_ratio": 0.5,
                    "deviation": -0.2,
                }
            ]
        }
    )
    assert (point.heat, point.request_rate, point.p95_seconds, point.requests) == (20.8, 13.0, 0.31, 780)
    assert (point.load_ratio, point.cpu_load_ratio, point.memory_load_ratio) == (0.55, 0.6, 0.5)
    assert point.deviation == -0.2
    assert point.is_drawable


def test_missing_figures_are_none_and_not_zero() -> None:
    (point,) = parse.points({"points": [{"endpoint": "/a", "instance": "i-0", "latency_p95_seconds": None}]})
    assert point.heat is None
    assert point.p95_seconds is None
    assert point.requests is None
    assert not point.is_drawable


@pytest.mark.parametrize("value", ["1", True, None, [], {}, math.nan, math.inf, -1, 10**400])
def test_what_is_no_measure_is_unknown(value: Any) -> None:
    assert parse.positive(value) is None


def test_the_same_point_twice_is_one() -> None:
    row = {"endpoint": "/a", "instance": "i-0", "modality": "text"}
    assert (
        len(parse.points({"points": [{**row, "heat": 1}, {**row, "heat": 2}, {**row, "modality": "image"}]}))
        == 2
    )


def test_open_windows_come_first_then_the_latest() -> None:
    rows = [
        {"id": "old", "state": "closed", "opened_at_ns": 1, "closed_at_ns": 5},
        {"id": "new", "state": "closed", "opened_at_ns": 2, "closed_at_ns": 9},
        {"id": "now", "state": "open", "opened_at_ns": 3},
    ]
    assert [w.id for w in parse.windows({"windows": rows})] == ["now", "new", "old"]


def test_breakers_that_do_not_admit_come_first() -> None:
    rows = [
        {"name": name, "state": state} for name, state in (("a", "closed"), ("b", "half_open"), ("c", "open"))
    ]
    assert [b.name for b in parse.breakers({"breakers": rows})] == ["c", "b", "a"]


def test_only_a_true_enforced_is_enforced() -> None:
    (breaker,) = parse.breakers({"breakers": [{"name": "a", "state": "open", "enforced": "yes"}]})
    assert not breaker.is_enforced


def test_coverage_counts_what_was_missed() -> None:
    seen = parse.coverage(
        {"attached": 74, "missed": [{}, {}], "processes": [{}], "calls": {"counted": 9, "lost": 0}}
    )
    assert (seen.attached, seen.missed, seen.processes, seen.counted, seen.lost) == (74, 2, 1, 9, 0)


def test_names_lose_control_and_direction_characters_and_end() -> None:
    assert parse.text("a\x00b\x1b[31m\u202egnp") == "ab[31mgnp"
    assert len(parse.text("x" * 10_000)) == parse.MAX_TEXT
    assert parse.text("\ud800") == "?"


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 200_000, b"<html>", b'{"a":' + b"9" * 5000 + b"}"]
)
def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(parse.BodyError):
        parse.body(raw)


def test_a_nan_in_a_body_is_unknown() -> None:
    assert parse.body(b'{"heat": NaN, "load": -Infinity}') == {"heat": None, "load": None}


@settings(deadline=None)
@given(HOSTILE)
def test_no_object_whatever_breaks_a_reader(content: dict[str, Any]) -> None:
    parse.points(content)
    parse.stages(content)
    parse.windows(content)
    parse.breakers(content)
    parse.coverage(content)
    parse.basis(content)


@settings(deadline=None)
@given(HOSTILE)
def test_what_is_read_can_be_sent_to_a_browser(content: dict[str, Any]) -> None:
    for point in parse.points(content):
        json.dumps([point.endpoint, point.heat], allow_nan=False).encode("utf-8")


def test_stages_come_in_pipeline_order_and_made_up_ones_last() -> None:
    names = ["zoom", "llm_decode", "gateway", "llm_decode"]
    rows = [
        {"stage": name, "modality": m}
        for name, m in zip(names, ["text", "video", "text", "image"], strict=True)
    ]
    made = parse.stages({"stages": rows}).rows
    assert [(r.stage, r.modality) for r in made] == [
        ("gateway", "text"),
        ("llm_decode", "image"),
        ("llm_decode", "video"),
        ("zoom", "text"),
    ]
