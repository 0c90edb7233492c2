# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from plotly import graph_objects

from hotstage_explorer.figures.heat_plane import plane
from hotstage_explorer.figures.heat_scene import scene
from hotstage_explorer.figures.points import columns
from hotstage_explorer.figures.scale import Scales, grown
from hotstage_explorer.picture import HeatPoint

POINTS = [
    HeatPoint("/a", "i-0", "text", heat=2.0, p95_seconds=0.25, load_ratio=0.5, requests=40),
    HeatPoint("/b", "i-1", "image", heat=3.0, p95_seconds=0.5, load_ratio=0.75, requests=90),
]


def made(*, is_log: bool = False) -> dict:
    return columns(POINTS, grown(None, POINTS), is_log=is_log)


def test_plotly_accepts_the_scene_and_the_plane() -> None:
    for is_log in (False, True):
        graph_objects.Figure(scene(made(is_log=is_log)))
        graph_objects.Figure(plane(made(is_log=is_log)))
    empty = columns([], Scales(), is_log=False)
    graph_objects.Figure(scene(empty))
    graph_objects.Figure(plane(empty))


def test_axes_are_titled_with_units_and_fixed() -> None:
    layout = scene(made())["layout"]["scene"]
    assert layout["xaxis"]["title"]["text"] == "Endpoint heat (weighted requests/s)"
    assert layout["yaxis"]["title"]["text"] == "P95 latency (ms)"
    assert layout["zaxis"]["title"]["text"] == "Instance load (%)"
    assert [layout[a]["autorange"] for a in ("xaxis", "yaxis", "zaxis")] == [False, False, False]
    assert layout["aspectmode"] == "cube"


def test_colour_is_the_load_on_a_fixed_scale_with_a_titled_bar() -> None:
    for figure in (scene(made()), plane(made())):
        marker = figure["data"][0]["marker"]
        assert marker["color"] == [50.0, 75.0]
        assert (marker["cmin"], marker["cmax"]) == (0, 100)
        assert marker["colorbar"]["title"]["text"] == "Instance load (%)"


def test_camera_and_user_state_are_kept_over_redraws() -> None:
    layout = scene(made())["layout"]
    assert layout["scene"]["camera"]["eye"]["x"] == pytest.approx(1.5, abs=0.15)
    assert layout["uirevision"] == layout["scene"]["uirevision"] == "heat"


def test_plotly_accepts_the_names_that_the_update_brings() -> None:
    figure = graph_objects.Figure(scene(made()))
    figure.update_layout(scene={"annotations": made()["names"]})
    assert [name.text for name in figure.layout.scene.annotations] == ["/a", "/b"]


def test_stems_and_names_are_left_to_the_first_update() -> None:
    markers, stems = scene(made())["data"]
    assert markers["mode"] == "markers"
    assert (stems["mode"], stems["x"]) == ("lines", [])
