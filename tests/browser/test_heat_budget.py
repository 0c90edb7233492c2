# SPDX-License-Identifier: Apache-2.0
"""The page's budgets: first useful picture, update of 2,000 points in software, how often the agent is asked.

Limits are those of a quiet machine. A busy one is told by a fixed piece of work in the same browser, done
beside it, and gets more time in proportion. Every figure is the best of several.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from fake_agent import FakeAgent
from view import View

pytestmark = [
    pytest.mark.browser,
    pytest.mark.host,
    pytest.mark.long,
]  # its budgets are of a machine of its own

PLOT = "document.querySelector('#heat-figure .js-plotly-plot')"
WORK = """() => { const began = performance.now(); let sum = 0;
    for (let n = 0; n < 3e7; n++) sum += Math.sqrt(n); return sum > 0 ? performance.now() - began : 0 }"""
WORK_WHEN_QUIET_MS = 47.0  # two cores of a virtual machine


def slowness(view: View) -> float:
    """How many times slower than a quiet machine this one is now, at least 1."""
    return max(1.0, min(view.ask(WORK) for _ in range(5)) / WORK_WHEN_QUIET_MS)


def test_figures_are_there_within_a_second_and_the_scene_soon_after(look: Callable[..., View]) -> None:
    panels, scenes = [], []
    for _ in range(4):
        view = look(viewport={"width": 1280, "height": 800})
        slow = slowness(view)
        began = time.monotonic()
        view.page.goto(view.address, wait_until="commit")
        view.wait("() => document.querySelector('#heat-status dd')", "the first panels")
        panels.append((time.monotonic() - began) / slow)
        view.wait(f"() => {PLOT}?._fullLayout?.scene?._scene?.glplot?.mouseListener", "the scene")
        took = time.monotonic() - began
        scenes.append(took / max(slow, slowness(view)))
        print(f"scene {took:.2f} s on a machine {slow:.2f} × slower than a quiet one")
        view.page.context.close()
    print(
        f"panels {min(panels):.2f} s, scene {min(scenes):.2f} s: best of {len(scenes)}, as on a quiet machine"
    )
    # The panels hold every figure of the scene.
    assert min(panels) <= 1.0
    assert min(scenes) <= 2.0


def test_two_thousand_points_are_redrawn_within_a_third_of_a_second(view: View, agent: FakeAgent) -> None:
    agent.script.count = 2600
    view.open_drawn()
    view.wait(f"() => {PLOT}.data[0].x.length === 2000", "2,000 points")
    took = []
    for _ in range(6):
        view.wait_updates(1)
        time.sleep(0.5)
        update = float(view.ask(f"() => {PLOT}.dataset.updateMs"))
        took.append(update / slowness(view))
        print(f"update {update:.0f} ms, {took[-1]:.0f} ms as on a quiet machine")
    assert min(took) <= 300
    assert "cooler ones" in view.text("#heat-caption")


def test_the_agent_is_asked_once_a_second_whoever_looks(look: Callable[..., View], agent: FakeAgent) -> None:
    views = [look() for _ in range(3)]
    for view in views:
        view.open()
    agent.script.requests.clear()
    time.sleep(4)
    asked = agent.script.requests.count("/v1/heat")
    assert 2 <= asked <= 5, f"three pages made {asked} readings in 4 s"
