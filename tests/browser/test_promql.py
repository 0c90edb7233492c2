# SPDX-License-Identifier: Apache-2.0
"""The page Heat from an agent, a Prometheus and a VictoriaMetrics side by side: the same numbers.

A real demo, scraped once a second by both. The agent's own bodies are written down tick by tick; whatever a
page shows must be one of them, whole. Prometheus keeps a number as it is; VictoriaMetrics keeps about twelve
digits of it, so that values are compared to 1e-9 there. Texts and places on the page are the same.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from explorers import explorer_on
from playwright.sync_api import Browser
from support.monitoring import RunningDemo, end, prometheus, running_demo, victoria_metrics, wait_for
from view import View

from hotstage_explorer import parse
from hotstage_explorer.components.point_table import View as TableView
from hotstage_explorer.components.point_table import point_table
from hotstage_explorer.figures import points as figures
from hotstage_explorer.figures.scale import grown
from hotstage_explorer.picture import HeatPoint, Picture, Section
from hotstage_explorer.sources.base import AnswerError, UnreachableError
from hotstage_explorer.sources.prometheus import PrometheusSource
from hotstage_explorer.sources.promql import PromQL
from hotstage_explorer.sources.wire import Wire

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(180)]

SCREENSHOTS = Path(__file__).parent / "screenshots"
ROWS = "() => [...document.querySelectorAll('#heat-points tbody tr')].map(row => row.textContent).sort()"
DRAWN = """() => { const d = document.querySelector('#heat-figure .js-plotly-plot')?.data?.[0];
    return d && d.ids ? [...d.ids].map((id, n) => [id, Number(d.x[n]), Number(d.z[n])]).sort() : [] }"""

Frame = frozenset[HeatPoint]


class Ledger:
    """Every distinct `/v1/heat` of an agent, while it is written."""

    def __init__(self, agent_url: str) -> None:
        self.frames: list[Frame] = []
        self._url = f"{agent_url}/v1/heat"
        self._wire = Wire()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._done.set()
        self._thread.join(10)

    def find(self, matches: Callable[[Frame], bool]) -> Frame | None:
        """The newest frame that matches; one that is younger than the ledger's last look is waited for."""
        deadline = time.monotonic() + 1.0
        while True:
            found = next((frame for frame in reversed(self.frames) if matches(frame)), None)
            if found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def nearest(self, rows: list[str]) -> str:
        """What differs from the frame that differs least."""
        frame = min(self.frames, key=lambda own: len(set(rows_of(own)) ^ set(rows)))
        mine = set(rows_of(frame))
        return f"{sorted(set(rows) - mine)} instead of {sorted(mine - set(rows))}"

    def _write(self) -> None:
        while not self._done.wait(0.08):
            try:
                reply = self._wire.get(self._url, what="heat", wait=5.0, headers={})
            except (UnreachableError, AnswerError):
                return  # the demo has ended
            frame = frozenset(parse.points(parse.body(reply.body)))
            if frame and (not self.frames or frame != self.frames[-1]):
                self.frames.append(frame)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    with running_demo(tmp_path_factory.mktemp("demo"), "--fault", "encoder-stall@8-90") as running:
        yield running


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
    """By the name of their source."""
    with ExitStack() as stack:
        places = {"agent": ("--agent", demo.agent_url)}
        places |= {name: ("--prometheus", url) for name, url in engines.items()}
        views = {}
        for name, arguments in places.items():
            address = stack.enter_context(explorer_on(*arguments))
            context = browser.new_context(viewport={"width": 1200, "height": 800})
            stack.callback(context.close)
            views[name] = View(context.new_page(), address)
            views[name].listen()
            views[name].open()
        yield views


def same(one: Frame, other: Frame, tolerance: float) -> bool:
    """The same points with the same values; unknown is the same as unknown only."""
    mine, others = ({p.key: astuple(p) for p in frame} for frame in (one, other))
    return mine.keys() == others.keys() and all(
        _equal(a, b, tolerance) for key in mine for a, b in zip(mine[key], others[key], strict=True)
    )


def _equal(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0)
    return bool(a == b)


def rows_of(frame: Frame) -> list[str]:
    """What the table says of a frame."""
    table, _ = point_table(Section(tuple(frame), read_at=1.0), TableView())
    (body,) = table.find("tbody")
    return sorted(row.text() for row in body.find("tr"))


def drawn_of(frame: Frame) -> list[list[Any]]:
    """Where the drawing has a frame's points: name, heat, load."""
    selection = figures.select(tuple(frame))
    columns = figures.columns(selection.drawn, grown(None, selection.drawn))
    return sorted([i, x, z] for i, x, z in zip(columns["ids"], columns["x"], columns["z"], strict=True))


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
    for name in ("prometheus", "victoria-metrics"):
        view = pages[name]
        assert "live" in view.text("#heat-status")
        assert view.text("#heat-status").lower().startswith("source\n" + name.replace("-", "")), "who is read"
        assert "HISTOGRAM" in view.text("#heat-stages").upper(), "what the quantiles are of"
        assert "No cause is in the metrics" in view.text("#heat-windows")
        assert "image" not in view.text("#heat-windows"), "the metric names no modality"
        SCREENSHOTS.mkdir(exist_ok=True)
        view.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"))
    assert [view.console for view in pages.values()] == [[], [], []]


@pytest.mark.long
def test_a_host_that_goes_is_old_with_its_age_and_never_live(
    demo: RunningDemo, pages: dict[str, View]
) -> None:
    end(demo.process, signal.SIGINT, seconds=60.0)
    for name in ("prometheus", "victoria-metrics"):
        view = pages[name]
        said = view.wait_text("#heat-notices", "its scrape fails", 30.0)
        assert "Old data" in said
        assert "old" in view.text("#heat-status .tick"), name
        view.wait_text("#heat-empty", "No traffic", 10.0)
    assert "Agent unreachable" in pages["agent"].wait_text("#heat-notices", "unreachable", 20.0)
