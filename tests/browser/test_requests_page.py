# SPDX-License-Identifier: Apache-2.0
"""The page Requests as a person meets it: real server, real browser, an agent with two thousand requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_agent import FakeAgent
from view import View, violations

from hotstage_explorer.figures import palette

pytestmark = pytest.mark.browser

CHART = "document.querySelector('#requests-waterfall')"
SLOW = 1969
"""A request of the stand-in whose image encoder took most of its time."""
OVER = "() => document.documentElement.scrollWidth - window.innerWidth"


def opened(view: View, path: str = "/requests/") -> View:
    view.page.goto(view.address.rstrip("/") + path)
    view.wait("() => document.querySelector('#requests-list tbody tr')", "the list")
    return view


def drawn(view: View) -> None:
    view.wait(f"() => {CHART}.querySelector('.bars .point')", "the waterfall's bars")


def test_the_list_leads_to_a_waterfall_and_back(view: View) -> None:
    opened(view)
    view.page.locator("#requests-list tbody a").first.click()
    drawn(view)
    assert view.page.url.split("/requests/")[1].startswith("req-")
    names = view.ask(f"() => [...{CHART}.querySelectorAll('.ytick text')].map(e => e.textContent.trim())")
    assert any("llm_decode" in name for name in names)
    rows = view.ask("() => document.querySelectorAll('#requests-segments tbody tr').length")
    assert rows > len(names), "each wait has a row of its own in the table"
    view.page.go_back()
    view.wait("() => document.querySelector('#requests-one h1') === null", "the list alone")


def test_a_deep_link_shows_what_took_the_time(view: View) -> None:
    opened(view, f"/requests/{SLOW}?modality=image")
    drawn(view)
    facts = view.text("#requests-facts")
    assert "/v1/vision on i-0" in facts
    assert "begin of llm_decode" in facts
    longest = view.ask(
        "() => [...document.querySelectorAll('#requests-segments tbody tr')].map(row => ["
        "parseFloat(/([\\d.]+) %/.exec(row.cells[5].textContent)?.[1] || 0), row.cells[0].textContent])"
        ".sort((a, b) => b[0] - a[0])[0][1]"
    )
    assert "vision_encode" in longest
    current = view.ask("() => document.querySelector('#requests-filters [aria-current]').textContent")
    assert current == "Newest"
    modalities = view.ask(
        "() => [...document.querySelectorAll('#requests-list tbody tr')].map(r => r.cells[3].textContent)"
    )
    assert modalities
    assert all("image" in each for each in modalities)


def test_all_columns_are_within_a_window_of_1440_px(view: View) -> None:
    view.page.set_viewport_size({"width": 1440, "height": 900})
    opened(view, f"/requests/{SLOW}")
    drawn(view)
    for table in ("segments", "list"):
        over = f"() => (e => e.scrollWidth - e.clientWidth)(document.querySelector('#requests-{table}'))"
        assert view.ask(over) <= 0, table
    lefts = view.ask(
        "() => [...new Set([...document.querySelectorAll('#requests-list .bar')]"
        ".map(e => Math.round(e.getBoundingClientRect().left)))]"
    )
    assert len(lefts) == 1, "bars of a column stand below each other"


def test_no_bar_or_figure_of_a_waterfall_is_crossed_or_past_the_end(view: View) -> None:
    opened(view, f"/requests/{SLOW}")
    drawn(view)
    end = view.ask(f"() => {CHART}.layout.xaxis.range[1] / 1.13")
    ends = view.ask(
        f"() => {CHART}.data.slice(0, 2).flatMap(t => t.x.map((length, n) => t.base[n] + length))"
    )
    assert len(ends) > 4
    assert max(ends) <= end * (1 + 1e-9)
    grounds = view.ask(f"() => [...{CHART}.querySelectorAll('.annotation rect.bg')].map(e => e.style.fill)")
    panel = "rgb({}, {}, {})".format(*bytes.fromhex(palette.PANEL.removeprefix("#")))
    assert len(grounds) > 4
    assert set(grounds[1:]) == {panel}, "figures have the drawing's ground, so that no line crosses them"


def test_choices_are_in_the_address_and_filter_the_list(view: View) -> None:
    opened(view)
    view.page.get_by_role("link", name="error", exact=True).click()
    view.wait_text("#requests-list tbody tr:first-child", "error")
    assert "outcome=error" in view.page.url
    view.page.get_by_role("link", name="Slowest").click()
    view.wait("() => new URLSearchParams(location.search).get('sort') === 'slow'", "the order in the address")
    view.wait("() => document.querySelector('[aria-current][href*=\"sort=slow\"]')", "the order")
    view.page.fill("#requests-words", "no-such-request")
    view.wait_text("#requests-list", "No request matches")


def test_a_link_works_from_the_keyboard_and_keeps_the_focus_near(view: View) -> None:
    opened(view)
    view.page.locator("#requests-list tbody a").first.focus()
    view.page.keyboard.press("Enter")
    drawn(view)
    assert view.ask("() => document.activeElement.tagName") == "H1"


def test_a_request_that_is_not_there_is_said_so(view: View) -> None:
    opened(view, "/requests/no-such")
    said = view.wait_text("#requests-segments", "Not found")
    assert "/v1/requests/no-such answered HTTP 404" in said
    assert "One in flight is among the snapshots of now" in said


def test_hostile_names_are_text_everywhere(view: View, agent: FakeAgent) -> None:
    agent.script.evil_id = "<img src=x onerror=window.hit=1><b>bold</b>"
    opened(view, f"/requests/{SLOW}")
    drawn(view)
    assert "<img src=x" in view.text("#requests-title")
    assert view.ask("() => window.hit === undefined && !document.querySelector('main img, main td b')")
    assert view.console == []


@pytest.mark.parametrize(
    "item", ["%3Cscript%3Ewindow.hit=1%3C%2Fscript%3E", "..%2F..%2Fv1%2Fheat", "%00%1b%5B31m"]
)
def test_hostile_addresses_are_text_too(view: View, item: str) -> None:
    choices = "?modality=%22%3E%3Cimg%3E&endpoint=" + "x" * 300
    view.page.goto(f"{view.address}requests/{item}{choices}")
    view.wait("() => document.querySelector('#requests-one h1')", "a title")
    assert view.ask("() => window.hit === undefined && !document.querySelector('main img')")


def test_a_waterfall_that_was_drawn_is_not_drawn_again(view: View) -> None:
    opened(view, f"/requests/{SLOW}")
    drawn(view)
    before = view.ask(f"() => {CHART}.dataset.updates")
    version = view.ask("() => document.querySelector('.page').dataset.version")
    view.wait(f"() => document.querySelector('.page').dataset.version !== '{version}'", "the next update")
    assert view.ask(f"() => {CHART}.dataset.updates") == before


def test_a_point_of_the_drawing_leads_to_its_request(view: View) -> None:
    opened(view)
    view.wait("() => document.querySelector('#requests-times .points path')", "the points")
    view.ask(
        "() => { const at = document.querySelector('#requests-times');"
        " at.emit('plotly_click', {points: [{data: at.data[0], pointNumber: 0}]}) }"
    )
    drawn(view)


def test_it_asks_nobody_else_and_says_nothing(view: View) -> None:
    opened(view, f"/requests/{SLOW}")
    drawn(view)
    assert view.console == []
    strangers = [url for url in view.requests if not url.startswith((view.address, "data:", "blob:"))]
    assert strangers == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_nothing_is_wider_than_the_window(look: Callable[..., View], width: int, height: int) -> None:
    view = look(viewport={"width": width, "height": height})
    opened(view, f"/requests/{SLOW}")
    drawn(view)
    assert view.ask(OVER) <= 0


def test_axe_finds_no_violation(view: View) -> None:
    opened(view, f"/requests/{SLOW}")
    drawn(view)
    assert violations(view) == []
