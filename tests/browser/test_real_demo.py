# SPDX-License-Identifier: Apache-2.0
"""The explorer on the real line: a fault of the simulated host, seen by probes, shown in a real browser.

The picture that it takes stays in `tests/browser/screenshots/`; the README's is one of them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from view import View

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(150)]

PICTURE = Path(__file__).parent / "screenshots" / "demo.png"
WATERFALL = PICTURE.with_name("waterfall.png")
DRAWING = """() => { const top = document.querySelector('#requests-one').getBoundingClientRect();
    const end = document.querySelector('#requests-legend').getBoundingClientRect().bottom;
    return {x: top.x + scrollX, y: top.y + scrollY, width: top.width, height: end - top.y} }"""
START_SECONDS = 60.0
STOP_SECONDS = 40.0


@pytest.fixture
def demo_address() -> Iterator[str]:
    """A demo with a stalled encoder, ended by Ctrl-C; it must leave nothing behind."""
    command = [sys.executable, "-m", "hotstage", "demo", "--seed", "4720", "--fault", "encoder-stall@14-90"]
    with tempfile.TemporaryDirectory(prefix="hs-") as own:
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": own}
        )
        said: list[str] = []
        assert process.stderr is not None
        reader = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
        reader.start()
        try:
            yield _address(process, said)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(STOP_SECONDS) == 0, "".join(said)
            reader.join(STOP_SECONDS)
            process.stderr.close()
        assert list(Path(own).iterdir()) == []


def _address(process: subprocess.Popen[str], said: list[str]) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"explorer: (http://127\.0\.0\.1:\d+/)", "".join(said))
        if found:
            return found.group(1)
        time.sleep(0.1)
    pytest.fail(f"waited {START_SECONDS:.0f} s in vain for the explorer's address: {''.join(said)}")


def test_a_fault_of_the_simulated_host_is_seen_on_the_page(browser: Browser, demo_address: str) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        view = View(context.new_page(), demo_address)
        view.listen()
        view.open()
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
            "() => Object.values(document.querySelector('#heat-figure .js-plotly-plot')"
            ".layout.scene.zaxis.range)"
        )
        assert tops[0] == 0 and 5 < tops[1] <= 50, "quotas lift the load off the floor, and its axis fits"
        assert view.console == []
        PICTURE.parent.mkdir(exist_ok=True)
        view.page.screenshot(path=str(PICTURE))
        assert PICTURE.stat().st_size > 10_000
        _see_requests(view)
        _see_stages_and_classes(view)
        _see_snapshots(view)
        assert view.console == []
    finally:
        context.close()


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
    view.page.screenshot(path=str(WATERFALL), clip=view.ask(DRAWING))
    assert WATERFALL.stat().st_size > 10_000


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
