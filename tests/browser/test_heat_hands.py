# SPDX-License-Identifier: Apache-2.0
"""A hand on the drawing of the page Heat: what it has turned stays so, and nothing moves while it holds."""

from __future__ import annotations

import time

import pytest
from fake_agent import FakeAgent
from view import EYE, PLOT, View, apart

pytestmark = pytest.mark.browser


def drag(view: View, *, hold_seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Rotate as a hand does and hold the button down; (eye right after the move, eye after holding)."""
    box = view.ask("() => document.querySelector('#heat-figure').getBoundingClientRect().toJSON()")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    mouse = view.page.mouse
    mouse.move(x, y)
    mouse.down()
    for step in range(20):  # fewer, faster moves are swallowed by the software renderer
        mouse.move(x + 9 * step, y + 3 * step)
        time.sleep(0.04)
    time.sleep(0.3)
    moved = view.ask(EYE)
    time.sleep(hold_seconds)
    return moved, view.ask(EYE)


def test_a_drag_is_never_snapped_back_and_updates_resume_after_it(view: View) -> None:
    view.open_drawn()
    start = view.ask(EYE)
    moved, _ = drag(view, hold_seconds=0)
    waiting = view.updates()
    time.sleep(3)
    held = view.ask(EYE)
    assert view.updates() == waiting, "an update arrived while the pointer was down"
    assert apart(start, moved) > 0.1, "the drag did not rotate anything: the test shows nothing"
    assert apart(moved, held) < 1e-6
    assert view.text("#heat-badge") == "Updates wait while you move the view"
    view.page.mouse.up()
    view.wait_updates(3)
    assert view.updates() >= waiting + 3
    assert apart(moved, view.ask(EYE)) < 1e-3
    assert view.text("#heat-badge") == ""


def test_zooming_by_wheel_is_kept(view: View) -> None:
    view.open_drawn()
    start = view.ask(EYE)
    view.page.hover("#heat-figure")
    until = time.monotonic() + 15.0  # a busy machine takes its time to hear the wheel
    while apart(start, view.ask(EYE)) <= 0.05:
        assert time.monotonic() < until, "the wheel did nothing: the test shows nothing"
        view.page.mouse.wheel(0, 240)
        time.sleep(0.2)
    view.wait_updates(1)
    zoomed = view.ask(EYE)
    view.wait_updates(3)
    assert apart(zoomed, view.ask(EYE)) < 1e-3


def test_a_new_scene_is_held_still_too(view: View) -> None:
    view.open_drawn()
    view.page.click("#heat-view-2d")
    view.wait("() => document.querySelector('#heat-figure svg .scatterlayer')", "the flat view")
    view.page.click("#heat-view-3d")
    view.wait(f"() => {PLOT}?._fullLayout?.scene?._scene?.glplot?.mouseListener", "the scene again")
    view.wait_updates(1)
    moved, held = drag(view, hold_seconds=2.5)
    assert apart(moved, held) < 1e-6
    view.page.mouse.up()


@pytest.mark.slow
def test_a_lost_pointer_up_holds_updates_for_ten_seconds_at_most(view: View) -> None:
    view.open_drawn()
    view.ask(f"() => {PLOT}.dispatchEvent(new PointerEvent('pointerdown', {{bubbles: true}}))")
    waiting = view.updates()
    time.sleep(5)
    assert view.updates() == waiting
    view.wait_updates(1)


def test_a_growing_axis_and_another_size_of_the_window_keep_the_rotated_camera(
    view: View, agent: FakeAgent
) -> None:
    view.open_drawn()
    drag(view, hold_seconds=0)
    view.page.mouse.up()
    view.wait_updates(1)
    rotated = view.ask(EYE)
    script = "() => document.querySelector('#heat-figure .js-plotly-plot')._fullLayout.scene.xaxis.range[1]"
    end = view.ask(script)
    agent.script.growth = 7.0
    view.wait(f"() => ({script})() > {end}", "a longer heat axis")
    assert apart(rotated, view.ask(EYE)) < 1e-3
    agent.script.growth = 1.0
    grown = view.ask(script)
    view.wait_updates(2)
    assert view.ask(script) == grown, "an axis must not shrink by itself"
    view.page.click("#heat-refit")
    view.wait(f"() => ({script})() === {end}", "the axis fitted again")
    view.page.set_viewport_size({"width": 1500, "height": 900})
    view.wait_updates(2)
    assert apart(rotated, view.ask(EYE)) < 1e-3
