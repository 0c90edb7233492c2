# SPDX-License-Identifier: Apache-2.0
"""The explorer on the real line: a fault of the simulated host, seen by probes, shown in a real browser, from
an agent, a Prometheus and a VictoriaMetrics side by side.

Both scrape once a second. The agent's own bodies are written down tick by tick; whatever a page shows must be
one of them, whole. Prometheus keeps a number as it is; VictoriaMetrics keeps about twelve digits, so that
values are compared to 1e-9 there. Texts and places on the page are the same.

The pictures stay in `tests/browser/screenshots/`; the README shows one. The tests follow the demo's time
and stand in its order.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from explorers import explorer_on
from ledger import Frame, Ledger, drawn_of, rows_of, same
from playwright.sync_api import Browser
from support.monitoring import RunningDemo, end, prometheus, running_demo, victoria_metrics, wait_for
from view import View

from hotstage_explorer.picture import Picture
from hotstage_explorer.sources.prometheus import PrometheusSource
from hotstage_explorer.sources.promql import PromQL

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(180)]

SCREENSHOTS = Path(__file__).parent / "screenshots"
FAULTS = ("load-ramp@0-10", "encoder-stall@8-120")
ENGINES = ("prometheus", "victoria-metrics")
ROWS = "() => [...document.querySelectorAll('#heat-points tbody tr')].map(row => row.textContent).sort()"
DRAWN = """() => { const d = document.querySelector('#heat-figure .js-plotly-plot')?.data?.[0];
    return d && d.ids ? [...d.ids].map((id, n) => [id, Number(d.x[n]), Number(d.z[n])]).sort() : [] }"""
DRAWING = """() => { const top = document.querySelector('#requests-one').getBoundingClientRect();
    const end = document.querySelector('#requests-legend').getBoundingClientRect().bottom;
    return {x: top.x + scrollX, y: top.y + scrollY, width: top.width, height: end - top.y} }"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """A demo with a stalled encoder, ended by Ctrl-C; it must leave nothing behind. It begins busy:
    soon every endpoint has the requests that a P95 takes.
    """
    faults = [word for each in FAULTS for word in ("--fault", each)]
    with running_demo(tmp_path_factory.mktemp("demo"), *faults) as running:
        yield running
    assert running.process.returncode == 0, "\n".join(running.said)
    assert list(running.directory.iterdir()) == []


@pytest.fixture(scope="module")
def ledger(demo: RunningDemo) -> Iterator[Ledger]:
    made = Ledger(demo.agent_url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def engines(
    demo: RunningDemo, ledger: Ledger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Name → URL; the ledger is older than their first sample."""
    directory = tmp_path_factory.mktemp("engines")
    with prometheus(directory, [demo.target]) as one, victoria_metrics(directory, [demo.target]) as other:
        yield {each.name: each.url for each in (one, other)}


@pytest.fixture(scope="module")
def pages(demo: RunningDemo, engines: dict[str, str], browser: Browser) -> Iterator[dict[str, View]]:
    """By the name of their source; the agent's is the demo's own explorer."""
    with ExitStack() as stack:
        places = {"agent": f"{demo.explorer_url}/"}
        for name in ENGINES:
            places[name] = stack.enter_context(explorer_on("--prometheus", engines[name]))
        views = {}
        for name, address in places.items():
            context = browser.new_context(viewport={"width": 1200, "height": 800})
            stack.callback(context.close)
            views[name] = View(context.new_page(), address)
            views[name].listen()
            views[name].open()
        yield views


def test_three_pages_show_the_same_numbers_at_the_same_tick(pages: dict[str, View], ledger: Ledger) -> None:
    shown: dict[str, set[int]] = {name: set() for name in pages}
    drawn: dict[str, set[int]] = {name: set() for name in pages}

    def look() -> set[int]:
        """Ticks of which all pages have shown every number, table and drawing."""
        for name, view in pages.items():
            if rows := view.ask(ROWS):
                frame = ledger.find(lambda own, rows=rows: rows_of(own) == rows)
                assert frame, f"{name} shows a table of no tick of the agent: {ledger.nearest(rows)}"
                shown[name].add(ledger.frames.index(frame))
            if points := view.ask(DRAWN):
                frame = ledger.find(lambda own, points=points: drawn_of(own) == points)
                assert frame, f"{name} draws points of no tick of the agent: {points}"
                drawn[name].add(ledger.frames.index(frame))
        return set.intersection(*shown.values()) if all(drawn.values()) else set()

    common = wait_for(
        lambda: len(found := look()) >= 2 and found, "two ticks that all pages have shown", 40.0
    )
    print(f"the same tables at {len(common)} ticks of {len(ledger.frames)}; drawn: {drawn}")


def test_windows_breakers_and_stages_tell_of_the_same_fault(pages: dict[str, View]) -> None:
    for name, view in pages.items():
        view.wait_text("#heat-windows", "Stage latency", 30.0)
        assert "vision_encode" in view.text("#heat-windows"), name
        assert "stage:vision_encode:image" in view.wait_text("#heat-breakers", "open", 20.0), name
        assert "vision_encode" in view.text("#heat-stages"), name
    for name in ENGINES:
        view = pages[name]
        assert "live" in view.text("#heat-status")
        assert view.text("#heat-status").lower().startswith("source\n" + name.replace("-", "")), "who is read"
        assert "HISTOGRAM" in view.text("#heat-stages").upper(), "what the quantiles are of"
        assert "No cause is in the metrics" in view.text("#heat-windows")
        assert "image" not in view.text("#heat-windows"), "the metric names no modality"
        _photograph(view, f"{name}.png")
    assert [view.console for view in pages.values()] == [[], [], []]


def test_points_from_promql_are_the_agents_own(engines: dict[str, str], ledger: Ledger) -> None:
    tolerances = {"prometheus": 0.0, "victoria-metrics": 1e-9}
    sources = {name: PrometheusSource(PromQL(url), 'job="hotstage"') for name, url in engines.items()}
    pictures = {name: Picture(source.address, source.origin) for name, source in sources.items()}
    shown: dict[str, set[Frame]] = {name: set() for name in sources}

    def enough() -> bool:
        for name, source in sources.items():
            pictures[name] = source.read(pictures[name])
            frame = frozenset(pictures[name].heat.value)
            if frame and frame not in shown[name]:
                found = ledger.find(lambda own, name=name, frame=frame: same(own, frame, tolerances[name]))
                assert found, f"{name} has points of no tick of the agent: {frame}"
                shown[name].add(frame)
        return min(len(frames) for frames in shown.values()) >= 4

    wait_for(enough, "four scrapes of both")


def test_a_fault_of_the_simulated_host_is_seen_on_the_page(pages: dict[str, View]) -> None:
    for name in ENGINES:
        pages[name].page.goto("about:blank")  # it was drawn: leave the cores to the one that is looked at
    view = pages["agent"]
    view.page.set_viewport_size({"width": 1440, "height": 900})
    view.wait_text("#heat-windows", "Stage latency", 60.0)
    windows = view.text("#heat-windows")
    assert "vision_encode" in windows
    assert "image" in windows
    assert "stage:vision_encode:image" in view.wait_text("#heat-breakers", "open", 20.0)
    assert re.search(r"\b0\b", view.text("#heat-status")), "lost calls are shown"
    points = view.wait_text("#heat-points", "/v1/vision", 20.0)
    assert all(instance in points for instance in ("i-0", "i-1"))
    view.wait(
        "() => document.querySelector('#heat-figure .js-plotly-plot').data[0].x.length === 8",
        "a P95 of every endpoint on both instances",
        60.0,
    )
    view.page.get_by_role("button", name="Refit axes").click()
    view.wait_updates(3)
    tops = view.ask(
        "() => Object.values(document.querySelector('#heat-figure .js-plotly-plot').layout.scene.zaxis.range)"
    )
    assert tops[0] == 0 and 5 < tops[1] <= 50, "quotas lift the load off the floor, and its axis fits"
    assert view.console == []
    _photograph(view, "demo.png")
    _see_requests(view)
    _see_stages_and_classes(view)
    _see_snapshots(view)
    assert view.console == []


def _photograph(view: View, name: str, **how: Any) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    view.page.screenshot(path=str(SCREENSHOTS / name), **how)
    assert (SCREENSHOTS / name).stat().st_size > 10_000


def _goto(view: View, path: str) -> None:
    view.page.goto(view.address.rstrip("/") + path)
    view.wait("() => document.querySelector('.page')?.dataset.version", f"the first answer on {path}")


def _see_requests(view: View) -> None:
    """A slow image request and where its time went."""
    _goto(view, "/requests/?sort=slow&modality=image&outcome=ok")
    view.wait_text("#requests-list", "/v1/vision")
    view.page.locator("#requests-list tbody a").first.click()
    view.wait("() => document.querySelector('#requests-waterfall .bars .point')", "the waterfall's bars")
    segments = view.text("#requests-segments")
    for stage in ("vision_encode", "llm_prefill", "llm_decode"):
        assert stage in segments
    assert "image" in view.text("#requests-facts")
    decided = view.ask(
        "() => [...document.querySelectorAll('#requests-segments .critical-path strong')].length"
    )
    assert decided >= 3, "the critical path has several segments"
    view.page.mouse.move(0, 0)
    _photograph(view, "waterfall.png", clip=view.ask(DRAWING))


def _see_stages_and_classes(view: View) -> None:
    _goto(view, "/stages/")
    view.wait("() => document.querySelector('#stages-tokens-chart .bars .point')", "first tokens by stage")
    view.page.click("#stages-parts summary")
    assert "vision_encode" in view.text("#stages-parts")
    assert "gateway" in view.text("#stages-components")
    _goto(view, "/classes/")
    view.wait_text("#classes-table", "vlm")


def _see_snapshots(view: View) -> None:
    """One of now, and the one that the window's opening left behind."""
    _goto(view, "/snapshots/")
    view.wait_text("#snapshots-facts", "In flight")
    view.wait_text("#snapshots-stored", "window")
    view.page.locator("#snapshots-stored li:not(.here) .snapshot-line a").first.click()
    view.wait_text("#snapshots-facts", "Because of")
    view.page.get_by_role("link", name="Recovery plan").click()
    view.wait_text("#snapshots-note", "nothing acts on it")


@pytest.mark.long
def test_a_host_that_goes_is_old_with_its_age_and_never_live(
    demo: RunningDemo, pages: dict[str, View]
) -> None:
    for view in pages.values():
        view.open_drawn()
    end(demo.process, signal.SIGINT, seconds=60.0)
    for name in ENGINES:
        view = pages[name]
        said = view.wait_text("#heat-notices", "its scrape fails", 30.0)
        assert "Old data" in said
        assert "old" in view.text("#heat-status .tick"), name
        view.wait_text("#heat-empty", "No traffic", 10.0)
    assert "Agent unreachable" in pages["agent"].wait_text("#heat-notices", "unreachable", 20.0)
