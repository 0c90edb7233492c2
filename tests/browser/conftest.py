# SPDX-License-Identifier: Apache-2.0
"""A real explorer process between a fake agent and a real browser."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

# Tests are imported by file (import-mode importlib), so these helpers need a place on the path.
sys.path.insert(0, str(Path(__file__).parent))

from explorers import Served, serving
from fake_agent import FakeAgent, Script
from view import View, viewed

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """For one module only: while it lives, its event loop runs here and `asyncio.run` is refused."""
    if not Path(CHROMIUM).exists():
        pytest.fail("chromium is not installed: `make setup` installs it")
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    yield started
    started.close()


@pytest.fixture(scope="module")
def browser_without_webgl(playwright: Playwright) -> Iterator[Browser]:
    started = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, "--disable-3d-apis"])
    yield started
    started.close()


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    with FakeAgent(Script()) as served:
        yield served


@pytest.fixture
def served(agent: FakeAgent) -> Iterator[Served]:
    """An explorer that reads `agent`."""
    with serving("--agent", agent.address) as started:
        yield started


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """An explorer for all tests of a module that leave it and its agent as they are."""
    with FakeAgent(Script()) as agent, serving("--agent", agent.address) as started:
        yield started


@pytest.fixture
def explorer(request: pytest.FixtureRequest) -> str:
    """The address of the module's explorer; of one of its own where a test asks for its agent or process."""
    is_own = {"agent", "served"} & set(request.fixturenames)
    own: Served = request.getfixturevalue("served" if is_own else "shared")
    return own.address


@pytest.fixture
def view(browser: Browser, explorer: str) -> Iterator[View]:
    yield from viewed(browser, explorer)


@pytest.fixture
def look(browser: Browser, explorer: str) -> Iterator[Callable[..., View]]:
    """A view with context options of the test's own: size, motion."""
    contexts = []

    def opened(**options: Any) -> View:
        context = browser.new_context(**options)
        contexts.append(context)
        seen = View(context.new_page(), explorer)
        seen.listen()
        return seen

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def flat_view(browser_without_webgl: Browser, explorer: str) -> Iterator[View]:
    yield from viewed(browser_without_webgl, explorer)
