# SPDX-License-Identifier: Apache-2.0
"""The page Heat as a person meets it: real server, real browser, an agent that lives and fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from explorers import Served
from fake_agent import FakeAgent
from view import View

pytestmark = pytest.mark.browser

PLOT = "document.querySelector('#heat-figure .js-plotly-plot')"
EYE = f"() => {PLOT}._fullLayout.scene._scene.getCamera().eye"
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


def distance(a: dict[str, float], b: dict[str, float]) -> float:
    return max(abs(a[axis] - b[axis]) for axis in "xyz")


def overlap(a: dict[str, float], b: dict[str, float]) -> bool:
    return (
        min(a["right"], b["right"]) - max(a["left"], b["left"]) > 0.5
        and min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > 0.5
    )


def drag(view: View, *, hold_seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Rotate as a hand does and hold the button down; (eye right after the move, eye after holding)."""
    box = view.ask("() => document.querySelector('#heat-figure').getBoundingClientRect().toJSON()")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    mouse = view.page.mouse
    mouse.move(x, y)
    mouse.down()
    for step in range(20):  # fewer, faster moves are swallowed by the software renderer
        mouse.move(x + 9 * step, y + 3 * step)
        time.sleep(0.04)
    time.sleep(0.3)
    moved = view.ask(EYE)
    time.sleep(hold_seconds)
    return moved, view.ask(EYE)


def test_everything_is_there_with_units(view: View) -> None:
    view.open_drawn()
    titles = view.ask(
        "() => { const s = document.querySelector('#heat-figure .js-plotly-plot')._fullLayout.scene;"
        " return ['xaxis', 'yaxis', 'zaxis'].map(a => s[a].title.text) }"
    )
    assert titles == ["Endpoint heat (weighted requests/s)", "P95 latency (s)", "Instance load (%)"]
    for words in ("gpu-host-01", "libbpf · rung S", "74 symbols", "live"):
        view.wait_text("#heat-status", words)
    assert "Stage latency" in view.text("#heat-windows")
    assert "half open" in view.text("#heat-breakers")
    assert "vision_encode" in view.text("#heat-stages")
    assert "n < 20" in view.text("#heat-points")


def test_each_marker_has_a_stem_down_to_the_floor_and_the_hottest_a_name(view: View) -> None:
    view.open_drawn()
    markers, stems = view.ask(f"() => {PLOT}.data.map(t => ({{x: t.x, z: t.z, mode: t.mode}}))")
    assert len(stems["x"]) == 3 * len(markers["x"])
    assert stems["z"][:3] == [0, markers["z"][0], None]
    assert (markers["mode"], stems["mode"]) == ("markers", "lines")
    names = view.ask(NAMES)
    assert sorted(name["name"] for name in names) == [
        "/v1/audio/transcriptions",
        "/v1/chat/completions",
        "/v1/encode",
        "/v1/video/describe",
    ]
    assert [(a["name"], b["name"]) for a, b in combinations(names, 2) if overlap(a, b)] == []


def test_the_camera_stays_while_the_scene_is_updated(view: View) -> None:
    view.open_drawn()
    before = view.ask(EYE)
    view.wait_updates(6)
    assert distance(before, view.ask(EYE)) < 1e-6


def test_a_drag_is_never_snapped_back_and_updates_resume_after_it(view: View) -> None:
    view.open_drawn()
    start = view.ask(EYE)
    moved, held = drag(view, hold_seconds=3.6)
    assert distance(start, moved) > 0.1, "the drag did not rotate anything: the test shows nothing"
    assert distance(moved, held) < 1e-6
    assert view.text("#heat-badge") == "Updates wait while you move the view"
    waiting = view.updates()
    view.page.mouse.up()
    view.wait_updates(3)
    assert view.updates() >= waiting + 3
    assert distance(moved, view.ask(EYE)) < 1e-3
    assert view.text("#heat-badge") == ""


def test_no_update_arrives_while_the_pointer_is_down(view: View) -> None:
    view.open_drawn()
    drag(view, hold_seconds=0.1)
    waiting = view.updates()
    time.sleep(2.5)
    assert view.updates() == waiting
    view.page.mouse.up()


def test_zooming_by_wheel_is_kept(view: View) -> None:
    view.open_drawn()
    start = view.ask(EYE)
    view.page.hover("#heat-figure")
    until = time.monotonic() + 15.0  # a busy machine takes its time to hear the wheel
    while distance(start, view.ask(EYE)) <= 0.05:
        assert time.monotonic() < until, "the wheel did nothing: the test shows nothing"
        view.page.mouse.wheel(0, 240)
        time.sleep(0.2)
    view.wait_updates(1)
    zoomed = view.ask(EYE)
    view.wait_updates(3)
    assert distance(zoomed, view.ask(EYE)) < 1e-3


def test_a_new_scene_is_held_still_too(view: View) -> None:
    view.open_drawn()
    view.page.click("#heat-view-2d")
    view.wait("() => document.querySelector('#heat-figure svg .scatterlayer')", "the flat view")
    view.page.click("#heat-view-3d")
    view.wait(f"() => {PLOT}?._fullLayout?.scene?._scene?.glplot?.mouseListener", "the scene again")
    view.wait_updates(1)
    moved, held = drag(view, hold_seconds=2.5)
    assert distance(moved, held) < 1e-6
    view.page.mouse.up()


@pytest.mark.slow
def test_a_lost_pointer_up_holds_updates_for_ten_seconds_at_most(view: View) -> None:
    view.open_drawn()
    view.ask(f"() => {PLOT}.dispatchEvent(new PointerEvent('pointerdown', {{bubbles: true}}))")
    waiting = view.updates()
    time.sleep(5)
    assert view.updates() == waiting
    view.wait_updates(1)


def test_a_growing_axis_keeps_the_rotated_camera(view: View, agent: FakeAgent) -> None:
    view.open_drawn()
    drag(view, hold_seconds=0)
    view.page.mouse.up()
    view.wait_updates(1)
    rotated = view.ask(EYE)
    script = "() => document.querySelector('#heat-figure .js-plotly-plot')._fullLayout.scene.xaxis.range[1]"
    end = view.ask(script)
    agent.script.growth = 7.0
    view.wait(f"() => ({script})() > {end}", "a longer heat axis")
    assert distance(rotated, view.ask(EYE)) < 1e-3
    agent.script.growth = 1.0
    grown = view.ask(script)
    view.wait_updates(2)
    assert view.ask(script) == grown, "an axis must not shrink by itself"
    view.page.click("#heat-refit")
    view.wait(f"() => ({script})() === {end}", "the axis fitted again")


def test_the_camera_stays_when_the_window_is_resized(view: View) -> None:
    view.open_drawn()
    drag(view, hold_seconds=0)
    view.page.mouse.up()
    view.wait_updates(1)
    rotated = view.ask(EYE)
    view.page.set_viewport_size({"width": 1500, "height": 900})
    view.wait_updates(2)
    assert distance(rotated, view.ask(EYE)) < 1e-3


def test_camera_buttons_work_from_the_keyboard(view: View) -> None:
    view.open_drawn()
    view.page.focus("[data-camera=front]")
    view.page.keyboard.press("Enter")
    view.wait(f"() => ({EYE})().y < -1.9", "the view from the front")
    view.page.focus("[data-camera=overview]")
    view.page.keyboard.press("Enter")
    view.wait(f"() => Math.abs(({EYE})().y - 1.45) < 0.01", "the overview")


def test_it_says_nothing_on_the_console_and_asks_nobody_else(view: View) -> None:
    view.open_drawn()
    view.page.click("#heat-view-2d")
    view.wait("() => document.querySelector('#heat-figure svg .scatterlayer')", "the flat view")
    view.page.click("#heat-view-3d")
    view.wait("() => document.querySelector('#heat-figure canvas')", "the scene again")
    view.wait_updates(2)
    assert view.console == []
    strangers = [url for url in view.requests if not url.startswith((view.address, "data:", "blob:"))]
    assert strangers == []


def test_no_drawing_offers_to_send_its_data_away(view: View) -> None:
    view.open_drawn()
    view.page.hover("#heat-figure")
    shared = view.ask(
        "() => [...document.querySelectorAll('.modebar-btn, [data-title]')].map(e => e.dataset.title || '')"
        ".filter(t => /cloud|share|chart studio/i.test(t))"
    )
    context = view.ask(
        "() => { const c = document.querySelector('#heat-figure .js-plotly-plot')._context;"
        " return [c.showSendToCloud, c.displaylogo] }"
    )
    assert shared == []
    assert context == [False, False]


def test_pause_stops_everything_and_resume_catches_up(view: View) -> None:
    view.open_drawn()
    view.page.click("#heat-pause")
    view.wait_text("#heat-paused", "Paused at")
    time.sleep(1.2)
    before = view.text("#heat-status"), view.updates()
    time.sleep(2.2)
    assert (view.text("#heat-status"), view.updates()) == before
    assert view.text("#heat-pause") == "Resume"
    view.page.click("#heat-pause")
    view.wait_updates(1)
    assert view.text("#heat-paused") == ""


def test_a_host_without_traffic_says_so(view: View, agent: FakeAgent) -> None:
    agent.script.mode = "empty"
    view.open()
    view.wait_text("#heat-empty", "No traffic yet")
    view.wait_text("#heat-windows", "No anomaly window")
    assert "No breaker" in view.text("#heat-breakers")
    assert "No stage has run yet" in view.text("#heat-stages")
    assert "unknown: no launch-class call was seen yet" in view.ask(
        "() => document.querySelector('#heat-status').textContent"
    )
    agent.script.mode = "calm"
    view.wait("() => document.querySelector('#heat-empty').textContent === ''", "the first points")
    view.wait_updates(1)


def test_points_without_a_p95_are_listed_and_never_drawn_at_zero(view: View, agent: FakeAgent) -> None:
    agent.script.mode = "young"
    view.open()
    view.wait_text("#heat-empty", "none can be placed yet")
    view.wait(f"() => {PLOT}?.data[0].y.length === 0", "an empty drawing")
    assert view.text("#heat-points").count("n < 20") == 8


def test_old_data_is_dimmed_and_dated_and_comes_back(view: View, agent: FakeAgent) -> None:
    view.open_drawn()
    agent.script.frozen_at = time.time() - 30
    said = view.wait_text("#heat-notices", "Old data")
    assert "s ago" in said
    opacity = "() => Number(getComputedStyle(document.querySelector('main')).opacity)"
    view.wait(f"() => ({opacity})() < 0.8", "dimmed values")
    agent.script.frozen_at = None
    view.wait("() => document.querySelector('#heat-notices').textContent === ''", "an end of the notice")
    view.wait(f"() => ({opacity})() === 1", "values in full")


def test_an_agent_that_goes_away_is_named_with_a_remedy_and_found_again(view: View, agent: FakeAgent) -> None:
    view.open_drawn()
    agent.stop()
    said = view.wait_text("#heat-notices", "Agent unreachable")
    assert agent.address in said
    assert "connection refused" in said
    assert "hotstage agent" in said
    assert "/v1/encode" in view.text("#heat-points"), "the last values stay readable"
    agent.start()
    view.wait("() => document.querySelector('#heat-notices').textContent === ''", "the agent found again")
    view.wait_updates(2)


@pytest.mark.slow
def test_a_page_that_lost_its_server_says_so(view: View, served: Served) -> None:
    view.open_drawn()
    served.process.kill()
    view.wait_text("#heat-lost", "Explorer unreachable")


def test_one_broken_answer_leaves_the_rest_alive(view: View, agent: FakeAgent) -> None:
    agent.script.broken["/v1/breakers"] = (
        500,
        b'{"error":{"code":"x","message":"the store refused a read"}}',
    )
    agent.script.broken["/v1/stages"] = (200, b"<html>not json")
    view.open_drawn()
    said = view.wait_text("#heat-notices", "Part of this page could not be read")
    assert "Breakers: /v1/breakers answered HTTP 500: the store refused a read" in said
    assert "Stages: /v1/stages answered with no JSON" in said
    assert "Stage latency" in view.text("#heat-windows")
    view.wait_updates(2)


def test_names_that_are_markup_stay_names(view: View, agent: FakeAgent) -> None:
    evil = "<img src=x onerror=window.hit=1><b>bold</b>"
    agent.script.rename = evil
    view.open_drawn()
    view.wait_text("#heat-points", evil[:20])
    assert view.ask(
        "() => window.hit === undefined && !document.querySelector('#heat-points img, #heat-points b')"
    )
    text = view.ask("() => document.querySelector('#heat-figure .js-plotly-plot').data[0].customdata[0][0]")
    assert "<" not in text


def test_without_webgl_the_flat_view_takes_over(flat_view: View) -> None:
    flat_view.open()
    flat_view.wait(
        "() => document.querySelector('#heat-figure svg .scatterlayer .point')", "points in the flat view"
    )
    flat_view.wait_updates(2)
    assert flat_view.ask("() => document.querySelector('#heat-view-3d').disabled")
    assert flat_view.ask("() => document.querySelector('#heat-view-2d').ariaPressed") == "true"
    assert (
        flat_view.ask("() => document.querySelector('#heat-figure .xtitle').textContent")
        == "Endpoint heat (weighted requests/s)"
    )
    assert (
        flat_view.ask("() => document.querySelector('#heat-figure .ytitle').textContent") == "P95 latency (s)"
    )


def test_the_log_axis_keeps_the_camera(view: View) -> None:
    view.open_drawn()
    view.page.click("[data-camera=side]")
    view.wait(f"() => ({EYE})().x > 2", "the view from the side")
    before = view.ask(EYE)
    view.page.click("#heat-p95-axis-log")
    kind = "() => document.querySelector('#heat-figure .js-plotly-plot')._fullLayout.scene.yaxis.type"
    view.wait(f"() => ({kind})() === 'log'", "a logarithmic axis")
    view.wait_updates(2)
    assert distance(before, view.ask(EYE)) < 1e-6


def test_the_table_sorts_filters_and_turns_pages(view: View, agent: FakeAgent) -> None:
    agent.script.count = 45
    view.open_drawn()
    view.wait_text("#heat-points-place", "1–20 of 45")
    view.page.click("[data-sort=p95]")
    view.wait("() => document.querySelector('[aria-sort]')?.textContent.startsWith('P95')", "the P95 order")
    view.page.click("[data-sort=p95]")
    view.wait("() => document.querySelector('[aria-sort=ascending]')", "the other way round")
    assert view.ask("() => document.activeElement.dataset.sort") == "p95", "focus stays where it was"
    view.page.click("#heat-points-on")
    view.wait_text("#heat-points-place", "21–40 of 45")
    view.page.fill("#heat-filter", "video i-1")
    view.wait(
        "() => /^1–\\d+ of \\d+$/.test(document.querySelector('#heat-points-place').textContent)",
        "the first page",
    )
    rows = view.ask("() => [...document.querySelectorAll('#heat-points tbody th')].map(e => e.textContent)")
    assert rows
    assert all("/v1/video/describe" in row for row in rows)


def test_an_opened_window_stays_open_over_updates(view: View) -> None:
    view.open_drawn()
    view.page.click("#heat-windows summary >> nth=0")
    view.wait_updates(3)
    assert "stage_open_age_seconds" in view.text("#heat-windows details[open]")


def test_nothing_overlaps_or_is_wider_than_the_window(view: View) -> None:
    view.open_drawn()
    for width, height in ((1280, 800), (1600, 1000), (900, 900), (480, 900)):
        view.page.set_viewport_size({"width": width, "height": height})
        view.wait_updates(1)
        boxes = view.ask(BOXES)
        assert len(boxes) >= 6
        overlaps = [(a["name"], b["name"]) for a, b in combinations(boxes, 2) if overlap(a, b)]
        assert overlaps == [], f"at {width} × {height}"
        assert view.ask(TOO_WIDE) == [], f"at {width} × {height}"


@pytest.mark.parametrize("mode", ["fault", "empty"])
def test_axe_finds_no_violation(view: View, agent: FakeAgent, mode: str) -> None:
    agent.script.mode = mode
    view.open()
    time.sleep(3)
    assert _violations(view) == []


def test_axe_finds_no_violation_when_the_agent_is_gone(view: View, agent: FakeAgent) -> None:
    view.open_drawn()
    agent.stop()
    view.wait_text("#heat-notices", "Agent unreachable")
    time.sleep(1)
    assert _violations(view) == []


def test_no_motion_where_none_is_wanted(look: Callable[..., View]) -> None:
    view = look(reduced_motion="reduce")
    view.open()
    moving = view.ask("""() => [...document.querySelectorAll('*')].filter(element => {
        const s = getComputedStyle(element);
        const moves = s.transitionProperty !== 'none' && s.transitionDuration !== '0s';
        return moves || s.animationName !== 'none';
    }).length""")
    assert moving == 0


def _violations(view: View) -> list[Any]:
    found = Axe().run(view.page).response["violations"]
    return [(v["id"], [node["target"] for node in v["nodes"]][:4]) for v in found]
