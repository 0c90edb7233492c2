# SPDX-License-Identifier: Apache-2.0
"""Two hosts with equal names on the page Heat, from a real Prometheus: told apart, chosen, one goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from explorers import explorer_on
from playwright.sync_api import Browser
from support.exporter import Exporter, Host, exporting
from support.monitoring import prometheus
from view import View

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SCREENSHOT = Path(__file__).parent / "screenshots" / "hosts.png"
IDS = "() => [...document.querySelector('#heat-figure .js-plotly-plot')?.data?.[0].ids ?? []]"


@dataclass
class Seen:
    view: View
    exporters: list[Exporter]

    @property
    def names(self) -> list[str]:
        return [exporter.target for exporter in self.exporters]


@pytest.fixture(scope="module")
def seen(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with ExitStack() as stack:
        hosts = [Host(2.5, "0.25"), Host(4.25, "0.75")]
        exporters = [stack.enter_context(exporting(host.text)) for host in hosts]
        targets = [exporter.target for exporter in exporters]
        engine = stack.enter_context(prometheus(tmp_path_factory.mktemp("engine"), targets))
        address = stack.enter_context(explorer_on("--prometheus", engine.url))
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        stack.callback(context.close)
        view = View(context.new_page(), address)
        view.listen()
        view.open()
        view.wait(f"() => ({IDS})().length === 2", "both points", 20.0)
        yield Seen(view, exporters)


def test_points_of_equal_names_are_told_apart_by_host(seen: Seen) -> None:
    assert sorted(seen.view.ask(IDS)) == sorted(f"{name}|/v1/vision|i-0|image" for name in seen.names)
    table = seen.view.text("#heat-points")
    assert "Host" in table
    assert all(name in table for name in seen.names)
    assert "2 hosts" in seen.view.text("#heat-status")
    for panel in ("#heat-stages", "#heat-windows", "#heat-breakers"):
        assert all(name in seen.view.text(panel) for name in seen.names), panel
    seen.view.page.screenshot(path=str(SCREENSHOT))


def test_a_host_is_chosen_and_let_go_again(seen: Seen) -> None:
    one, other = seen.names
    seen.view.page.get_by_role("button", name=other, exact=True).click()
    seen.view.wait(f"() => ({IDS})().join() === '{other}|/v1/vision|i-0|image'", "the chosen host alone")
    assert one not in seen.view.text("#heat-points") + seen.view.text("#heat-breakers")
    assert (
        seen.view.ask("() => document.querySelector('#heat-hosts [aria-pressed=true]').textContent") == other
    )
    seen.view.page.get_by_role("button", name="All hosts").click()
    seen.view.wait(f"() => ({IDS})().length === 2", "both again")


def test_axe_finds_no_violation(seen: Seen) -> None:
    found = Axe().run(seen.view.page).response["violations"]
    assert [(v["id"], [node["target"] for node in v["nodes"]][:4]) for v in found] == []


def test_a_host_that_falls_silent_is_named_with_its_age_and_no_longer_drawn(seen: Seen) -> None:
    one, other = seen.names
    seen.exporters[0].stop()
    said = seen.view.wait_text("#heat-notices", "Silent hosts", 20.0)
    assert f"{one}: its last sample is" in said
    assert "its scrape fails" in said
    seen.view.wait(f"() => ({IDS})().join() === '{other}|/v1/vision|i-0|image'", "the other host alone")
    assert f"{one} (silent)" in seen.view.text("#heat-hosts")
    assert seen.view.console == []
