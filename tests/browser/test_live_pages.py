# SPDX-License-Identifier: Apache-2.0
"""The pages Stages, Snapshots and Classes, and what all pages beside Heat share, as a person meets them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from explorers import Served
from fake_agent import FakeAgent
from view import View, violations

pytestmark = pytest.mark.browser

PATHS = (
    "/requests/",
    "/stages/",
    "/snapshots/",
    "/snapshots/s-0002?view=compare&with=s-0001",
    "/classes/?by=size",
)
OVER = "() => document.documentElement.scrollWidth - window.innerWidth"
VERSION = "() => document.querySelector('.page')?.dataset.version"
ROWS = "s => [...document.querySelectorAll(`${s} tbody tr`)].map(row => row.innerText)"


def opened(view: View, path: str) -> View:
    view.page.goto(view.address.rstrip("/") + path)
    view.wait(VERSION, "the first answer")
    return view


def updated(view: View) -> None:
    """Until the next answer is on the page."""
    before = view.ask(VERSION)
    view.wait(f"() => ({VERSION})() !== '{before}'", "the next answer")


def test_the_navigation_leads_from_page_to_page(view: View) -> None:
    view.open()
    for title in ("Requests", "Stages", "Snapshots", "Classes"):
        view.page.get_by_role("navigation").get_by_role("link", name=title, exact=True).click()
        view.wait(VERSION, f"the page {title}")
        assert view.text("nav [aria-current=page]") == title
        assert title in view.page.title()
        assert "gpu-host-01" in view.text(f"#{title.lower()}-status")
    assert view.console == []


@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_no_violation_and_nobody_else_is_asked(view: View, path: str) -> None:
    opened(view, path)
    updated(view)
    assert violations(view) == []
    assert view.console == []
    assert [url for url in view.requests if not url.startswith((view.address, "data:", "blob:"))] == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_nothing_is_wider_than_the_window(look: Callable[..., View], width: int, height: int) -> None:
    view = look(viewport={"width": width, "height": height})
    for path in PATHS:
        opened(view, path)
        updated(view)
        assert view.ask(OVER) <= 0, path


@pytest.mark.parametrize("mode", ["empty", "young"])
def test_a_host_without_traffic_makes_pages_too(view: View, agent: FakeAgent, mode: str) -> None:
    agent.script.mode = mode
    agent.script.in_flight = 0
    for path in PATHS:
        opened(view, path)
    assert view.console == []
    opened(view, "/snapshots/")
    assert "Nothing is in flight" in view.text("#snapshots-grid")


def test_an_agent_that_goes_away_is_named_and_found_again(view: View, agent: FakeAgent) -> None:
    opened(view, "/stages/")
    view.wait_text("#stages-tokens", "vision_encode")
    agent.stop()
    assert "hotstage agent" in view.wait_text("#stages-notices", "Agent unreachable")
    assert "vision_encode" in view.text("#stages-tokens"), "the last values stay readable"
    agent.start()
    view.wait("() => document.querySelector('#stages-notices').textContent === ''", "the agent found again")


def test_one_broken_answer_leaves_the_rest_alive(view: View, agent: FakeAgent) -> None:
    agent.script.broken["/v1/latency"] = (500, b'{"error":{"code":"x","message":"out of paper"}}')
    opened(view, "/stages/")
    said = view.wait_text("#stages-notices", "Part of this page could not be read")
    assert "Latency: /v1/latency answered HTTP 500: out of paper" in said
    assert "gateway" in view.text("#stages-components")


def test_first_tokens_name_what_makes_them_late(view: View) -> None:
    opened(view, "/stages/")
    view.wait("() => document.querySelector('#stages-tokens-chart .bars .point')", "the bars")
    rows = view.ask(ROWS, "#stages-tokens")
    assert any(row.startswith("image") and "vision_encode" in row for row in rows)
    assert "n < 20" in next(row for row in rows if row.startswith("video"))
    view.page.click("#stages-parts summary")
    updated(view)
    assert "queue wait between marks" in view.text("#stages-parts")
    assert "window open" in view.text("#stages-table")
    view.page.locator("#stages-components a", has_text="vision_encode").click()
    view.wait("() => document.querySelector('#requests-list tbody tr')", "the page Requests")
    assert view.text("#requests-filters [aria-label=Passed] [aria-current]") == "vision_encode"
    stages = view.ask(
        "() => [...document.querySelectorAll('#requests-list tbody tr')].map(r => r.cells[2].innerText)"
    )
    assert {stage.split()[0] for stage in stages} == {"/v1/vision"}


def test_a_snapshot_says_stage_and_call_of_what_hangs(view: View) -> None:
    opened(view, "/snapshots/s-0002")
    first = view.wait_text("#snapshots-rows tbody tr:first-child", "cuStreamSynchronize")
    assert "vision_encode" in first
    assert "GPU 0" in first
    assert "w-0004" in view.text("#snapshots-facts")
    view.page.locator("#snapshots-grid a", has_text="vision_encode").click()
    view.wait("() => location.search.includes('stage=vision_encode')", "the choice in the address")
    view.wait_text("#snapshots-rows-title", "Requests in vision_encode")
    assert all("vision_encode" in row for row in view.ask(ROWS, "#snapshots-rows"))


def test_a_window_leads_to_what_was_in_flight_when_it_opened(view: View) -> None:
    view.open()
    view.wait_text("#heat-windows", "In flight when it opened")
    view.page.locator("#heat-windows .window.open a").first.click()
    view.wait_text("#snapshots-facts", "window w-0004")


def test_two_snapshots_are_compared_and_a_plan_is_shown(view: View) -> None:
    opened(view, "/snapshots/s-0002")
    view.page.locator("#snapshots-stored a.compare").last.click()
    view.wait_text("#snapshots-rows", "Stand still: 8")
    assert "300.0 s apart" in view.text("#snapshots-note")
    assert "s-0001" in view.page.url
    view.page.get_by_role("link", name="Recovery plan").click()
    view.wait_text("#snapshots-rows", "resume")
    assert "Advice: nothing acts on it." in view.text("#snapshots-note")
    view.page.get_by_role("link", name="Now", exact=True).click()
    view.wait_text("#snapshots-title", "In flight now")


def test_a_snapshot_that_is_gone_is_said_so(view: View) -> None:
    opened(view, "/snapshots/no-such")
    assert "answered HTTP 404" in view.wait_text("#snapshots-grid", "Not found")


def test_late_classes_are_marked_and_told_by_size_and_endpoint(view: View) -> None:
    opened(view, "/classes/")
    view.wait("() => document.querySelector('#classes-chart .bars .point')", "the bars")
    assert "late" in view.text("#classes-table tr.marked")
    view.page.get_by_role("link", name="Modality and size").click()
    view.wait_text("#classes-table", "> 128K")
    view.page.get_by_role("link", name="Endpoint", exact=True).click()
    view.wait_text("#classes-table", "/v1/vision")


def test_an_update_leaves_focus_scroll_and_an_opened_detail_where_they_are(view: View) -> None:
    opened(view, "/classes/")
    view.wait_text("#classes-basis", "How these are defined")
    view.page.click("#classes-basis summary")
    view.page.locator("#classes-by a").first.focus()
    updated(view)
    updated(view)
    assert view.ask("() => document.querySelector('#classes-basis details').open")
    assert view.ask("() => document.activeElement.closest('#classes-by') !== null")


def test_pause_stops_everything(view: View) -> None:
    opened(view, "/snapshots/")
    view.page.click("#snapshots-pause")
    view.wait_text("#snapshots-paused", "Paused at")
    view.page.wait_for_timeout(600)
    before = view.ask(VERSION)
    view.page.wait_for_timeout(2200)
    assert view.ask(VERSION) == before
    view.page.click("#snapshots-pause")
    updated(view)


@pytest.mark.slow
def test_a_page_that_lost_its_server_says_so(view: View, served: Served) -> None:
    opened(view, "/stages/")
    served.process.kill()
    view.wait_text("#stages-lost", "Explorer unreachable")
