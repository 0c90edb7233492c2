# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hotstage_explorer
from hotstage_explorer.documents.requests import RequestRow
from hotstage_explorer.documents.waterfall import Segment, Waterfall
from hotstage_explorer.figures import palette
from hotstage_explorer.figures.request_times import MAX_POINTS, request_times
from hotstage_explorer.figures.waterfall import TO_THE_END, rows, waterfall
from hotstage_explorer.parse import PIPELINE
from hotstage_explorer.where import Where

EVIL = "<img src=x onerror=alert(1)><b>a</b>"


def request(seq: int = 1, **more: Any) -> RequestRow:
    known = {"ended_ns": 10**18 + seq, "duration_seconds": 0.5, **more}
    return RequestRow(seq, f"r{seq}", "/v1/a", "i-0", "m", 7, "ok", **known)  # type: ignore[arg-type]


def evil_request() -> RequestRow:
    return RequestRow(1, EVIL, EVIL, EVIL, EVIL, 7, EVIL, 10**18, 0.5)


def stage(name: str, offset: float, seconds: float, **more: Any) -> Segment:
    return Segment(name, False, "image", offset, seconds, runs=1, **more)


def gap(offset: float, seconds: float, before: str = "", after: str = "") -> Segment:
    return Segment("queue", True, "", offset, seconds, before=before, after=after)


FOUND = Waterfall(
    request(first_token_seconds=0.3),
    (
        stage("preprocess", 0.0, 0.1, critical_seconds=0.1),
        gap(0.1, 0.1, before="vision_encode", after="preprocess"),
        stage("vision_encode", 0.2, 0.2, parts=(("run_queue", 0.05), ("sync", 0.3), ("host", None))),
        gap(0.4, 0.1, after="vision_encode"),
    ),
)


def test_a_wait_stands_on_the_row_of_the_stage_that_it_leads_to() -> None:
    made = rows(FOUND)
    assert [row.label for row in made] == ["preprocess", "vision_encode", TO_THE_END]
    assert [len(row.waits) for row in made] == [0, 1, 1]


def test_bars_stand_on_the_requests_own_clock() -> None:
    figure = waterfall(FOUND)
    assert figure is not None
    stages, waits = figure["data"][:2]
    assert stages["base"] == pytest.approx([0, 200])
    assert stages["x"] == pytest.approx([100, 200])
    assert waits["base"] == pytest.approx([100, 400])
    assert "(ms)" in figure["layout"]["xaxis"]["title"]["text"]
    assert waits["marker"]["pattern"]["shape"] == ["/", "/"]
    assert figure["layout"]["shapes"][0]["x0"] == pytest.approx(300)


def test_several_runs_are_a_dotted_bar_over_what_holds_them_that_ends_with_the_request() -> None:
    several = replace(
        stage("llm_decode", 0.2, 0.25, critical_seconds=0.25),
        placement="earliest",
        end_seconds=0.9,
        last_begin_seconds=0.45,
        runs=9,
    )
    rest = replace(gap(0.2, 0.05, after="preprocess"), placement="sum", end_seconds=0.5)
    found = Waterfall(request(), (stage("preprocess", 0.0, 0.2), several, rest))
    figure = waterfall(found)
    assert figure is not None
    stages, waits = figure["data"][:2]
    assert [base + length for base, length in zip(stages["base"], stages["x"], strict=True)] == [200, 500]
    assert stages["marker"]["pattern"]["shape"] == ["", "."]
    assert (waits["base"], waits["x"], waits["marker"]["pattern"]["shape"]) == ([200], [300], ["."])
    said = [each["text"] for each in figure["layout"]["annotations"]]
    assert said == ["200 ms", "250 ms in all", "50.0 ms of it"]
    assert "the last of 9 runs began at 450 ms" in stages["customdata"][1][1]


def test_figures_have_a_ground_that_keeps_the_line_of_the_first_token_out() -> None:
    figure = waterfall(FOUND)
    assert figure is not None
    words, *figures = figure["layout"]["annotations"]
    assert words["text"] == "first token 300 ms"
    assert [each["text"] for each in figures] == ["100 ms", "200 ms", "100 ms"]
    assert {each["bgcolor"] for each in figures} == {palette.PANEL}
    assert figure["layout"]["shapes"][0]["layer"] == "below"


def test_what_decides_the_duration_has_an_outline() -> None:
    figure = waterfall(FOUND)
    assert figure is not None
    assert figure["data"][0]["marker"]["line"]["width"] == [1.6, 0.8]


def test_a_strip_is_never_longer_than_its_stage() -> None:
    figure = waterfall(FOUND)
    assert figure is not None
    strips = {trace["name"]: trace for trace in figure["data"][2:]}
    assert set(strips) == {"run_queue", "sync"}
    assert strips["sync"]["base"] == pytest.approx([250])
    assert strips["sync"]["x"] == pytest.approx([150]), "of 300 ms only what is left of the stage"


def test_a_request_without_segments_draws_nothing() -> None:
    assert waterfall(Waterfall(request())) is None


def test_names_are_text_in_every_label() -> None:
    found = Waterfall(request(), (stage(EVIL, 0, 0.1), gap(0.1, 0.1, before=EVIL, after=EVIL)))
    said = json.dumps([waterfall(found), request_times([evil_request()], Where("/r/"))], allow_nan=False)
    assert "<img" not in said
    assert "<b>a" not in said


def test_two_thousand_requests_are_points_with_their_links() -> None:
    many = [request(n, duration_seconds=0.1 + n % 7) for n in range(1, MAX_POINTS + 501)]
    figure = request_times(many, Where("/requests/", "", (("modality", "image"),)))
    assert figure is not None
    (trace,) = figure["data"]
    assert len(trace["x"]) == MAX_POINTS
    assert trace["meta"]["hrefs"][-1] == f"/requests/r{MAX_POINTS + 500}?modality=image"


@pytest.mark.parametrize("seconds", [[0.061, 0.0625, 0.07], [0.3], [0.0000021, 0.0000022], [0.011, 40.0]])
def test_the_duration_axis_has_ticks_however_narrow_its_range_is(seconds: list[float]) -> None:
    figure = request_times(
        [request(n, duration_seconds=each) for n, each in enumerate(seconds, 1)], Where("/r/")
    )
    assert figure is not None
    axis = figure["layout"]["yaxis"]
    low, high = (10**end for end in axis["range"])
    assert low < min(seconds) and max(seconds) < high
    assert 2 <= sum(low <= tick <= high for tick in axis["tickvals"]) == len(axis["tickvals"]) <= 8


def test_requests_without_a_time_are_not_placed() -> None:
    assert request_times([request(duration_seconds=None), request(ended_ns=None)], Where("/r/")) is None
    assert request_times([], Where("/r/")) is None


def test_every_stage_has_a_family_and_its_colour_is_the_stylesheets_too() -> None:
    assert {palette.family(name) for name in PIPELINE} <= set(palette.FAMILIES)
    sheet = (Path(hotstage_explorer.__file__).parent / "assets" / "live.css").read_text()
    shown = dict(re.findall(r"\.swatch\.family-(\w+) \{ background: (#\w+)", sheet))
    assert shown == {name: colour for name, colour in palette.FAMILIES.items() if name != "other"}
    parts = dict(re.findall(r"\.swatch\.part-(\w+) \{ background: (#\w+)", sheet))
    assert parts == palette.WAITS
