# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hotstage_explorer.figures.scale import Scales, grown, load_axis_of, step_above, step_below
from hotstage_explorer.picture import HeatPoint


def point(
    heat: float | None = 1.0, p95: float | None = 0.1, load: float | None = 0.5, requests: int = 50
) -> HeatPoint:
    return HeatPoint("/a", "i-0", "text", heat=heat, p95_seconds=p95, load_ratio=load, requests=requests)


@pytest.mark.parametrize(
    ("value", "step"), [(0.3, 0.3), (1, 1), (1.01, 1.5), (4.9, 5), (6.1, 8), (99, 100), (2e6, 2e6)]
)
def test_steps_are_round_numbers(value: float, step: float) -> None:
    assert step_above(value) == pytest.approx(step)


def test_a_floor_is_a_power_of_ten() -> None:
    assert step_below(0.31) == pytest.approx(0.1)
    assert step_below(0.1) == pytest.approx(0.1)


def test_the_first_ends_fit_the_points_with_headroom() -> None:
    ends = grown(None, [point(heat=18, p95=0.31, requests=780)])
    assert (ends.heat, ends.requests) == (20, 1000)
    assert ends.p95_seconds == pytest.approx(0.4)
    assert ends.p95_floor_seconds == pytest.approx(0.1)
    assert (ends.load_ratio, ends.load_fit_ratio) == (1.0, 0.6)


def test_ends_stand_still_while_points_move_inside_them() -> None:
    ends = grown(None, [point(heat=18)])
    assert grown(ends, [point(heat=19.9)]) == ends
    assert grown(ends, [point(heat=0.1)]) == ends
    assert grown(ends, []) == ends


def test_an_end_that_is_passed_grows_by_a_step_and_never_shrinks() -> None:
    ends = grown(None, [point(heat=18)])
    larger = grown(ends, [point(heat=21)])
    assert larger.heat == 30
    assert grown(larger, [point(heat=1)]).heat == 30


@pytest.mark.parametrize(("load", "end"), [(0.012, 0.015), (0.27, 0.3), (0.47, 0.5), (0.5, 1.0), (0.9, 1.0)])
def test_the_automatic_load_axis_fits_low_loads_and_is_whole_above_half(load: float, end: float) -> None:
    ends = grown(None, [point(load=load)])
    assert ends.load_end("auto") == pytest.approx(end)
    assert ends.load_end("full") == 1.0


def test_the_automatic_load_axis_does_not_flap() -> None:
    ends = grown(None, [point(load=0.3)])
    seen = []
    for load in (0.45, 0.55, 0.2, 0.55, 0.01):
        ends = grown(ends, [point(load=load)])
        seen.append(ends.load_end("auto"))
    assert seen == [0.5, 1.0, 1.0, 1.0, 1.0]


def test_an_overload_ends_every_load_axis_above_it() -> None:
    ends = grown(None, [point(load=1.2)])
    assert [ends.load_end(axis) for axis in ("auto", "full", "fit")] == [1.5, 1.5, 1.5]


def test_an_unknown_choice_of_the_load_axis_is_the_automatic_one() -> None:
    assert [load_axis_of(value) for value in ("fit", "full", "auto", "x", None, [1])] == [
        "fit",
        "full",
        "auto",
        "auto",
        "auto",
        "auto",
    ]


def test_unknown_values_move_nothing() -> None:
    assert grown(Scales(), [point(heat=None, p95=None, load=None)]) == Scales()


def test_absurd_values_keep_finite_ends() -> None:
    ends = grown(None, [point(heat=1e308, p95=1e-300, load=5.0)])
    assert 1e300 <= ends.heat < float("inf")
    assert ends.p95_seconds > 0
    assert ends.load_ratio == 6.0


@pytest.mark.parametrize(
    "kept", [None, [], {"heat": "x"}, {"heat": -1}, {"heat": float("nan")}, {"other": 1}, {"heat": [1]}]
)
def test_what_a_browser_kept_is_not_trusted(kept: object) -> None:
    assert Scales.from_json(kept) is None


def test_ends_survive_the_way_through_the_browser() -> None:
    ends = grown(None, [point(heat=18)])
    assert Scales.from_json(ends.to_json()) == ends
