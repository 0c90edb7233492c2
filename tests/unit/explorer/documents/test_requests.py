# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from hotstage_explorer.documents.requests import KEPT, RequestList, items, requests
from hotstage_explorer.documents.waterfall import MAX_SEGMENTS, waterfall


def row(seq: int, **more: Any) -> dict[str, Any]:
    stages = [
        {"stage": "llm_decode", "modality": "text", "seconds": 0.3, "count": 40, "tokens": 12},
        {"stage": "vision_encode", "modality": "image", "seconds": 0.5, "count": 1, "tokens": 1024},
    ]
    return {"seq": seq, "id": f"r{seq}", "endpoint": "/v1/a", "outcome": "ok", "stages": stages, **more}


def body(first: int, last: int, **totals: int) -> dict[str, Any]:
    said = {"finished": last, "refused": 0, "open": 2, **totals}
    return {"requests": [row(n) for n in range(first, last + 1)], "next": last, "totals": said}


def test_answers_join_to_one_list_of_the_newest() -> None:
    found = requests(body(1, 3), RequestList())
    found = requests(body(4, 5), found)
    assert [each.seq for each in found.rows] == [1, 2, 3, 4, 5]
    assert (found.next, found.finished, found.open) == (5, 5, 2)
    many = requests(body(6, KEPT + 5), found)
    assert len(many.rows) == KEPT
    assert many.rows[-1].seq == KEPT + 5


def test_an_answer_that_repeats_adds_nothing() -> None:
    found = requests(body(1, 3), RequestList())
    assert requests(body(2, 3), found).rows == found.rows


def test_an_agent_that_began_anew_makes_the_list_begin_anew() -> None:
    found = requests(body(1, 90), RequestList())
    empty = requests({"requests": [], "next": 90, "totals": {"finished": 1, "refused": 1}}, found)
    assert (empty.rows, empty.next) == ((), 0)
    assert [each.seq for each in requests(body(1, 2), empty).rows] == [1, 2]


def test_stages_stand_in_pipeline_order_and_the_slowest_is_known() -> None:
    (only,) = requests(body(1, 1), RequestList()).rows
    assert [part.stage for part in only.stages] == ["vision_encode", "llm_decode"]
    assert only.modalities == ("image", "text")
    assert only.slowest is not None
    assert only.slowest.stage == "vision_encode"


@pytest.mark.parametrize("name", ["17", "a/b", "", "<b>", "x" * 65, "ü", "twice"])
def test_an_id_that_is_not_plain_or_not_its_own_is_asked_for_by_number(name: str) -> None:
    rows = requests(
        {"requests": [row(1, id=name), row(2, id="req-2"), row(3, id="twice")]}, RequestList()
    ).rows
    assert items(rows)[1] == "1"
    assert items(rows)[2] == "req-2"


HOSTILE: list[Any] = [None, 7, "x", [], {"seq": "1"}, {"seq": -1}, {"seq": 1 << 70}, {"seq": True}]


@pytest.mark.parametrize("bad", HOSTILE)
def test_rows_that_are_none_are_left_out(bad: Any) -> None:
    assert requests({"requests": [bad, row(1)]}, RequestList()).rows[0].seq == 1


@pytest.mark.parametrize("bad", [None, 3, "a", {}, [[]], float("inf"), -1, 1e300, True, {"a": "b"}])
def test_any_field_may_be_anything(bad: Any) -> None:
    fields = (
        "id",
        "endpoint",
        "outcome",
        "stages",
        "duration_seconds",
        "ended_at_ns",
        "output_tokens",
        "pid",
    )
    (made,) = requests(
        {"requests": [row(1, **dict.fromkeys(fields, bad))], "totals": bad}, RequestList()
    ).rows
    assert made.duration_seconds is None or 0 <= made.duration_seconds <= 1e100
    assert isinstance(made.id, str)
    assert isinstance(made.stages, tuple)


def test_long_and_invisible_names_are_cut() -> None:
    (made,) = requests({"requests": [row(1, id="\x1b[31m\u202e" + "y" * 100_000)]}, RequestList()).rows
    assert len(made.id) <= 160
    assert made.id.startswith("[31my")


def segment(**more: Any) -> dict[str, Any]:
    return {
        "kind": "stage",
        "name": "queue",
        "offset_seconds": 0.5,
        "duration_seconds": 0.1,
        "runs": 1,
        **more,
    }


def test_a_waterfall_is_ordered_by_begin() -> None:
    found = waterfall({"request": row(4), "segments": [segment(), segment(offset_seconds=0.1, name="a")]})
    assert found is not None
    assert [part.name for part in found.segments] == ["a", "queue"]
    assert found.length_seconds == pytest.approx(0.6)


@pytest.mark.parametrize("bad", [None, [], {}, {"request": None}, {"request": {"seq": "x"}}])
def test_a_body_without_a_request_is_no_waterfall(bad: Any) -> None:
    assert waterfall(bad if isinstance(bad, dict) else {"request": bad}) is None


@pytest.mark.parametrize("bad", [None, "x", -5, float("nan"), 1e300, [], {}, True])
def test_segments_that_cannot_be_placed_are_left_out(bad: Any) -> None:
    found = waterfall({"request": row(1), "segments": [segment(duration_seconds=bad), segment(name="b")]})
    assert found is not None
    assert [part.name for part in found.segments] == ["b"]
    odd = waterfall(
        {"request": row(1), "segments": [segment(parts=bad, contexts=bad, placement=bad, name=bad)]}
    )
    assert odd is not None
    assert len(odd.segments) == 1


def test_segments_are_bounded() -> None:
    found = waterfall({"request": row(1), "segments": [segment()] * 10_000})
    assert found is not None
    assert len(found.segments) == MAX_SEGMENTS
