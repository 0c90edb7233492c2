# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest

from hotstage_explorer.figures.names import Box, _box, _on_screen, names

MIDDLE = (0.5, 0.5, 0.5)


def made(labels: list[str], shares: list[tuple[float, float, float]], size: float = 20.0) -> list[dict]:
    return names(labels, [(1.0, 2.0, 3.0)] * len(labels), shares, [size] * len(labels))


def boxes(annotations: list[dict], at: dict[str, tuple[float, float]]) -> list[Box]:
    return [_box(a["text"], at[a["text"]], (a["ax"], a["ay"])) for a in annotations]


def test_the_camera_sees_latency_to_the_right_heat_to_the_left_and_load_upwards() -> None:
    x, y = _on_screen(MIDDLE)
    assert x == pytest.approx(0)
    assert _on_screen((0.5, 0.9, 0.5))[0] > 40
    assert _on_screen((0.9, 0.5, 0.5))[0] < -40
    assert _on_screen((0.5, 0.5, 0.9))[1] < y - 40


def test_a_lone_name_stands_right_of_its_marker_and_points_at_it() -> None:
    (name,) = made(["/a"], [MIDDLE])
    assert (name["text"], name["x"], name["y"], name["z"]) == ("/a", 1.0, 2.0, 3.0)
    assert name["ax"] > name["standoff"] >= 10
    assert name["xanchor"] == "left"


def test_names_of_one_place_cover_neither_each_other_nor_the_markers() -> None:
    labels = [f"/v1/endpoint-{n}" for n in range(6)]
    at = dict.fromkeys(labels, _on_screen(MIDDLE))
    placed = boxes(made(labels, [MIDDLE] * 6), at)
    x, y = _on_screen(MIDDLE)
    marker = Box(x - 15, y - 15, x + 15, y + 15)
    assert all(box.shared(marker) == 0 for box in placed)
    assert all(a.shared(b) == 0 for a, b in itertools.combinations(placed, 2))


def test_a_name_steps_aside_for_a_marker_without_one() -> None:
    right = (0.45, 0.55, 0.5)
    alone, beside = made(["/a"], [MIDDLE]), made(["/a", ""], [MIDDLE, right])
    assert len(beside) == 1
    assert (alone[0]["ax"], alone[0]["ay"]) != (beside[0]["ax"], beside[0]["ay"])


def test_a_name_keeps_its_place_when_another_becomes_hotter() -> None:
    first = {a["text"]: a["ax"] for a in made(["/a", "/b"], [MIDDLE, MIDDLE])}
    swapped = {a["text"]: a["ax"] for a in made(["/b", "/a"], [MIDDLE, MIDDLE])}
    assert first == swapped


def test_more_names_than_places_are_all_shown() -> None:
    assert len(made([f"/{n}" for n in range(30)], [MIDDLE] * 30)) == 30


def test_shared_area_is_that_of_both() -> None:
    assert Box(0, 0, 10, 10).shared(Box(5, 5, 20, 20)) == 25
    assert Box(0, 0, 10, 10).shared(Box(10, 0, 20, 10)) == 0
