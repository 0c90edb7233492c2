# SPDX-License-Identifier: Apache-2.0
"""The page Heat as a person meets it: real server, real browser, an agent with a fault. One page stays open
for all tests, and each leaves it as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations

import pytest
from explorers import Served
from playwright.sync_api import Browser
from view import EYE, PLOT, View, apart, viewed, violations

pytestmark = pytest.mark.browser

BOXES = """() => [...document.querySelectorAll('.panel, .status, .header, .notice:not([hidden])')].map(at => {
    const {left, right, top, bottom} = at.getBoundingClientRect();
    return {name: at.className, left, right, top, bottom};
})"""
NAMES = """() => [...document.querySelectorAll('#heat-figure .annotation-text')].map(at => {
    const {left, right, top, bottom} = at.getBoundingClientRect();
    return {name: at.textContent, left, right, top, bottom};
})"""
TOO_WIDE = """() => document.documentElement.scrollWidth <= window.innerWidth ? [] :
    [...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > window.innerWidth)
        .map(e => e.id || e.className)"""


@pytest.fixture(scope="module")
def drawn(browser: Browser, shared: Served) -> Iterator[View]:
    """A page whose drawing is there."""
    for view in viewed(browser, shared.address):
        view.open_drawn()
        yield view


def overlap(a: dict[str, float], b: dict[str, float]) -> bool:
    return (
        min(a["right"], b["right"]) - max(a["left"], b["left"]) > 0.5
        and min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > 0.5
    )


def test_everything_is_there_with_units(drawn: View) -> None:
    titles = drawn.ask(
        "() => { const s = document.querySelector('#heat-figure .js-plotly-plot')._fullLayout.scene;"
        " return ['xaxis', 'yaxis', 'zaxis'].map(a => s[a].title.text) }"
    )
    assert titles == ["Endpoint heat (weighted requests/s)", "P95 latency (s)", "Instance load (%)"]
    for words in ("gpu-host-01", "libbpf · rung S", "74 symbols", "live"):
        drawn.wait_text("#heat-status", words)
    assert "Stage latency" in drawn.text("#heat-windows")
    assert "half open" in drawn.text("#heat-breakers")
    assert "vision_encode" in drawn.text("#heat-stages")
    assert "n < 20" in drawn.text("#heat-points")


def test_each_marker_has_a_stem_down_to_the_floor_and_the_hottest_a_name(drawn: View) -> None:
    markers, stems = drawn.ask(f"() => {PLOT}.data.map(t => ({{x: t.x, z: t.z, mode: t.mode}}))")
    assert len(stems["x"]) == 3 * len(markers["x"])
    assert stems["z"][:3] == [0, markers["z"][0], None]
    assert (markers["mode"], stems["mode"]) == ("markers", "lines")
    names = drawn.ask(NAMES)
    assert sorted(name["name"] for name in names) == [
        "/v1/audio/transcriptions",
        "/v1/chat/completions",
        "/v1/encode",
        "/v1/video/describe",
    ]
    assert [(a["name"], b["name"]) for a, b in combinations(names, 2) if overlap(a, b)] == []


def test_the_camera_stays_while_the_scene_is_updated(drawn: View) -> None:
    before = drawn.ask(EYE)
    drawn.wait_updates(6)
    assert apart(before, drawn.ask(EYE)) < 1e-6


def test_no_drawing_offers_to_send_its_data_away(drawn: View) -> None:
    drawn.page.hover("#heat-figure")
    shared = drawn.ask(
        "() => [...document.querySelectorAll('.modebar-btn, [data-title]')].map(e => e.dataset.title || '')"
        ".filter(t => /cloud|share|chart studio/i.test(t))"
    )
    context = drawn.ask(
        "() => { const c = document.querySelector('#heat-figure .js-plotly-plot')._context;"
        " return [c.showSendToCloud, c.displaylogo] }"
    )
    assert shared == []
    assert context == [False, False]


def test_axe_finds_no_violation(drawn: View) -> None:
    assert violations(drawn) == []


def test_camera_buttons_work_from_the_keyboard(drawn: View) -> None:
    drawn.page.focus("[data-camera=front]")
    drawn.page.keyboard.press("Enter")
    drawn.wait(f"() => ({EYE})().y < -1.9", "the view from the front")
    drawn.page.focus("[data-camera=overview]")
    drawn.page.keyboard.press("Enter")
    drawn.wait(f"() => Math.abs(({EYE})().y - 1.45) < 0.01", "the overview")


def test_the_log_axis_keeps_the_camera(drawn: View) -> None:
    drawn.page.click("[data-camera=side]")
    drawn.wait(f"() => ({EYE})().x > 2", "the view from the side")
    before = drawn.ask(EYE)
    drawn.page.click("#heat-p95-axis-log")
    kind = "() => document.querySelector('#heat-figure .js-plotly-plot')._fullLayout.scene.yaxis.type"
    drawn.wait(f"() => ({kind})() === 'log'", "a logarithmic axis")
    drawn.wait_updates(2)
    assert apart(before, drawn.ask(EYE)) < 1e-6
    drawn.page.click("#heat-p95-axis-linear")
    drawn.page.click("[data-camera=overview]")


def test_it_says_nothing_on_the_console_and_asks_nobody_else(drawn: View) -> None:
    drawn.page.click("#heat-view-2d")
    drawn.wait("() => document.querySelector('#heat-figure svg .scatterlayer')", "the flat view")
    drawn.page.click("#heat-view-3d")
    drawn.wait("() => document.querySelector('#heat-figure canvas')", "the scene again")
    drawn.wait_updates(2)
    assert drawn.console == []
    strangers = [url for url in drawn.requests if not url.startswith((drawn.address, "data:", "blob:"))]
    assert strangers == []


def test_an_opened_window_stays_open_over_updates(drawn: View) -> None:
    drawn.page.click("#heat-windows summary >> nth=0")
    drawn.wait_updates(3)
    assert "stage_open_age_seconds" in drawn.text("#heat-windows details[open]")
    drawn.page.click("#heat-windows summary >> nth=0")


def test_pause_stops_everything_and_resume_catches_up(drawn: View) -> None:
    drawn.page.click("#heat-pause")
    drawn.wait_text("#heat-paused", "Paused at")
    time.sleep(1.2)
    before = drawn.text("#heat-status"), drawn.updates()
    time.sleep(2.2)
    assert (drawn.text("#heat-status"), drawn.updates()) == before
    assert drawn.text("#heat-pause") == "Resume"
    drawn.page.click("#heat-pause")
    drawn.wait_updates(1)
    assert drawn.text("#heat-paused") == ""


def test_nothing_overlaps_or_is_wider_than_the_window(drawn: View) -> None:
    for width, height in ((1280, 800), (1600, 1000), (900, 900), (480, 900)):
        drawn.page.set_viewport_size({"width": width, "height": height})
        drawn.wait_updates(1)
        boxes = drawn.ask(BOXES)
        assert len(boxes) >= 6
        overlaps = [(a["name"], b["name"]) for a, b in combinations(boxes, 2) if overlap(a, b)]
        assert overlaps == [], f"at {width} × {height}"
        assert drawn.ask(TOO_WIDE) == [], f"at {width} × {height}"
