# SPDX-License-Identifier: Apache-2.0
"""The budgets of the pages beside Heat: first useful picture, updates with two thousand requests.

Limits are those of a quiet machine; a busy one gets more time in proportion, as in `test_heat_budget`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from fake_agent import FakeAgent
from test_heat_budget import slowness
from view import View

pytestmark = [pytest.mark.browser, pytest.mark.host]  # its budgets are of a machine of its own

PICTURES = {
    "/requests/1969": "#requests-waterfall .bars .point",
    "/requests/": "#requests-times .points path",
    "/stages/": "#stages-tokens-chart .bars .point",
    "/snapshots/": "#snapshots-rows tbody tr",
    "/classes/": "#classes-chart .bars .point",
}


def best_of(tries: int, measure: Callable[[], float], *, enough: float) -> float:
    """The least of so many measurements; after one that is little enough no other is made."""
    best = measure()
    while best > enough and tries > 1:
        best, tries = min(best, measure()), tries - 1
    return best


@pytest.mark.parametrize("path", PICTURES)
def test_the_first_useful_picture_is_there_within_two_seconds(look: Callable[..., View], path: str) -> None:
    def seconds() -> float:
        view = look(viewport={"width": 1280, "height": 800})
        slow = slowness(view)
        began = time.monotonic()
        view.page.goto(view.address.rstrip("/") + path, wait_until="commit")
        view.wait(f"() => document.querySelector('{PICTURES[path]}')", "the picture")
        took = (time.monotonic() - began) / max(slow, slowness(view))
        view.page.context.close()
        return took

    best = best_of(3, seconds, enough=2.0)
    print(f"{path}: {best:.2f} s as on a quiet machine")
    assert best <= 2.0


@pytest.mark.parametrize("path", ["/requests/", "/snapshots/"])
def test_two_thousand_requests_are_updated_within_a_third_of_a_second(
    view: View, agent: FakeAgent, path: str
) -> None:
    agent.script.in_flight = 2000
    view.page.goto(view.address.rstrip("/") + path)
    view.wait(f"() => document.querySelector('{PICTURES[path]}')", "the picture")

    def update_ms() -> float:
        before = view.ask("() => document.querySelector('.page').dataset.version")
        view.wait(f"() => document.querySelector('.page').dataset.version !== '{before}'", "an update")
        time.sleep(0.4)
        update = float(view.ask("() => document.querySelector('.page').dataset.updateMs"))
        quiet = update / slowness(view)
        print(f"update {update:.0f} ms, {quiet:.0f} ms as on a quiet machine")
        return quiet

    assert best_of(5, update_ms, enough=300) <= 300
