# SPDX-License-Identifier: Apache-2.0
"""One open page: what it shows, what it said on the console, whom it asked."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

PLOT = "document.querySelector('#heat-figure .js-plotly-plot')"
EYE = f"() => {PLOT}._fullLayout.scene._scene.getCamera().eye"
UPDATES = "() => Number(document.querySelector('#heat-figure .js-plotly-plot')?.dataset.updates || 0)"
# What the software renderer says about itself; nothing that a page could do about it.
_RENDERER_NOISE = re.compile(r"GL Driver Message|willReadFrequently")


@dataclass
class View:
    """A page with its address; `listen` before `open`."""

    page: Page
    address: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.console.append(f"uncaught: {error}"))
        self.page.on("request", self._on_request)

    def ask(self, script: str, argument: Any = None) -> Any:
        """Run a function in the page. (Playwright's waiting uses eval, which the page's policy forbids.)"""
        return self.page.evaluate(script, argument)

    def wait(self, script: str, what: str, seconds: float = 40.0) -> Any:
        """Until the function returns something true; what runs beside the host's tests gets little time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := self.ask(script):
                return value
            time.sleep(0.05)
        pytest.fail(f"waited {seconds:.0f} s in vain for {what}; the page says: {self.text('.page')[:400]}")

    def open(self) -> None:
        self.page.goto(self.address)
        self.wait("() => document.querySelector('#heat-status dd')", "the first panels")

    def open_drawn(self, updates: int = 1) -> None:
        """Open the page and wait until the drawing has been updated so many times."""
        self.open()
        self.wait_updates(updates)

    def updates(self) -> int:
        return int(self.ask(UPDATES))

    def wait_updates(self, more: int) -> None:
        goal = self.updates() + more
        self.wait(f"() => ({UPDATES})() >= {goal}", f"{more} updates of the drawing")

    def text(self, selector: str) -> str:
        return str(self.ask("s => document.querySelector(s)?.innerText ?? ''", selector))

    def wait_text(self, selector: str, words: str, seconds: float = 40.0) -> str:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if words in (said := self.text(selector)):
                return said
            time.sleep(0.05)
        pytest.fail(f"waited {seconds:.0f} s in vain for {words!r} in {selector}: {self.text(selector)!r}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _RENDERER_NOISE.search(message.text):
            self.console.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)


def apart(a: dict[str, float], b: dict[str, float]) -> float:
    """How far two eyes of a camera are apart, along the axis where they are farthest."""
    return max(abs(a[axis] - b[axis]) for axis in "xyz")


def violations(view: View) -> list[Any]:
    """What axe has to say of the page: (rule, some of the places)."""
    found = Axe().run(view.page).response["violations"]
    return [(v["id"], [node["target"] for node in v["nodes"]][:4]) for v in found]


def viewed(browser: Browser, address: str) -> Iterator[View]:
    """A page in a context of its own, which hears what the page says."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    seen = View(context.new_page(), address)
    seen.listen()
    yield seen
    context.close()
