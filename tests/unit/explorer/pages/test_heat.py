# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hotstage_explorer.figures.scale import Scales
from hotstage_explorer.pages import heat
from hotstage_explorer.pages.heat_layout import page
from hotstage_explorer.picture import HeatPoint, Picture, Section

POINT = HeatPoint("/a", "i-0", "text", heat=18.0, p95_seconds=0.25, load_ratio=0.5, requests=40)
PICTURE = Picture("http://h", version=3, link="live", tick=5, tick_moved_at=0.0, heat=Section((POINT,), 1.0))


def ids(component: Any) -> set[str]:
    found = {component.id} if getattr(component, "id", None) else set()
    children = getattr(component, "children", None)
    for child in children if isinstance(children, list | tuple) else [children]:
        if child is not None and not isinstance(child, str):
            found |= ids(child)
    return found


def test_all_that_goes_to_the_browser_is_plain_json() -> None:
    shown, ends = heat.content(PICTURE, 0.1)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert (shown["version"], shown["state"], shown["open_windows"]) == (3, "live", 0)
    assert ends.heat == 20


def test_axes_grow_from_what_the_browser_kept() -> None:
    shown, _ = heat.content(PICTURE, 0.1, scales=Scales(heat=500.0))
    assert shown["drawing"]["axes"]["x"]["range"] == [0, 500.0]


def test_the_load_axis_starts_automatic_and_can_be_chosen() -> None:
    low = replace(PICTURE, heat=Section((replace(POINT, load_ratio=0.2),), 1.0))
    assert heat.content(low, 0.1)[0]["drawing"]["load_top"] == 30
    assert heat.content(low, 0.1, load_axis="full")[0]["drawing"]["load_top"] == 100
    shown, ends = heat.content(PICTURE, 0.1)
    assert shown["drawing"]["load_top"] == 100
    assert {"heat-load-axis-auto", "heat-load-axis-full", "heat-load-axis-fit"} <= ids(
        page(shown, {"version": 3, "scales": ends.to_json()})
    )


def test_every_panel_has_its_place_on_the_page() -> None:
    shown, ends = heat.content(PICTURE, 0.1)
    made = page(shown, {"version": 3, "scales": ends.to_json()})
    assert set(shown["panels"]) <= ids(made)


def test_a_picture_of_nothing_makes_a_page_too() -> None:
    shown, _ = heat.content(Picture("http://h"), 0.0, is_log=True)
    assert shown["state"] == "starting"
    assert shown["drawing"]["x"] == []
