# SPDX-License-Identifier: Apache-2.0
"""The page Heat of an agent that has nothing to say, or other things than usual, or goes away."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from explorers import Served
from fake_agent import FakeAgent
from view import PLOT, View, violations

pytestmark = pytest.mark.browser


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
    assert violations(view) == []
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
    time.sleep(1)  # until they are dimmed
    assert violations(view) == []
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


def test_no_motion_where_none_is_wanted(look: Callable[..., View]) -> None:
    view = look(reduced_motion="reduce")
    view.open()
    moving = view.ask("""() => [...document.querySelectorAll('*')].filter(element => {
        const s = getComputedStyle(element);
        const moves = s.transitionProperty !== 'none' && s.transitionDuration !== '0s';
        return moves || s.animationName !== 'none';
    }).length""")
    assert moving == 0
