# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from hotstage_explorer.figures import points
from hotstage_explorer.figures.scale import Scales, grown
from hotstage_explorer.picture import HeatPoint

MISSING = pytest.mark.parametrize("missing", ["heat", "p95_seconds", "load_ratio"])


def point(
    name: str = "/a", instance: str = "i-0", modality: str = "text", **figures: float | None
) -> HeatPoint:
    known = {"heat": 2.0, "p95_seconds": 0.25, "load_ratio": 0.5, "requests": 100, **figures}
    return HeatPoint(name, instance, modality, **known)  # type: ignore[arg-type]


def columns(*drawn: HeatPoint, is_log: bool = False, scales: Scales | None = None) -> dict:
    return points.columns(drawn, scales or grown(None, drawn), is_log=is_log)


def test_coordinates_are_in_the_units_of_the_axes() -> None:
    made = columns(point(heat=2.0, p95_seconds=0.25, load_ratio=0.5))
    assert (made["x"], made["y"], made["z"]) == ([2.0], [250.0], [50.0])
    assert [made["axes"][a]["title"] for a in "xyz"] == [
        "Endpoint heat (weighted requests/s)",
        "P95 latency (ms)",
        "Instance load (%)",
    ]


def test_latency_turns_to_seconds_when_the_axis_is_longer_than_one() -> None:
    made = columns(point(p95_seconds=1.3))
    assert made["axes"]["y"] == {
        "title": "P95 latency (s)",
        "type": "linear",
        "range": [0, 1.5],
        "ticks": None,
    }
    assert made["y"] == [1.3]


def test_ranges_are_fixed_and_start_at_zero() -> None:
    axes = columns(point(heat=18))["axes"]
    assert axes["x"]["range"] == [0, 20]
    assert axes["z"]["range"] == [0, 100]


def test_a_log_axis_has_its_range_in_decades_and_ticks_above_its_floor() -> None:
    axis = columns(point(p95_seconds=0.25), is_log=True)["axes"]["y"]
    assert axis["type"] == "log"
    assert axis["title"] == "P95 latency (ms, log)"
    assert axis["range"] == pytest.approx([1.477121, 2.477121]), "at least one decade: 30 to 300 ms"
    assert axis["ticks"] == [50, 100, 200]


def test_a_wide_log_axis_has_a_tick_a_decade() -> None:
    axis = columns(point(p95_seconds=0.0002), point(p95_seconds=9.0), is_log=True)["axes"]["y"]
    assert axis["ticks"] == [0.001, 0.01, 0.1, 1.0, 10.0]


def test_the_load_axis_fits_low_loads_unless_asked_for_the_whole_range() -> None:
    drawn = [point(load_ratio=0.012)]
    whole = points.columns(drawn, grown(None, drawn), load_axis="full")
    fitted = points.columns(drawn, grown(None, drawn))
    assert (whole["load_top"], whole["load_ticks"]) == (100, [0, 20, 40, 60, 80, 100])
    assert (fitted["load_top"], fitted["axes"]["z"]["range"]) == (1.5, [0, 1.5])


def test_high_loads_have_the_whole_range_unless_asked_to_fit() -> None:
    drawn = [point(load_ratio=0.55)]
    assert points.columns(drawn, grown(None, drawn))["load_top"] == 100
    assert points.columns(drawn, grown(None, drawn), load_axis="fit")["load_top"] == 60


def test_names_stand_in_the_coordinates_of_the_axes() -> None:
    (name,) = columns(point(heat=2.0, p95_seconds=0.25, load_ratio=0.5))["names"]
    assert (name["text"], name["x"], name["y"], name["z"]) == ("/a", 2.0, 250.0, 50.0)
    (name,) = columns(point(p95_seconds=0.1), is_log=True)["names"]
    assert name["y"] == pytest.approx(2), "decades"


@MISSING
def test_a_point_without_a_coordinate_is_left_out_and_never_at_zero(missing: str) -> None:
    selection = points.select([point(), point("/b", **{missing: None})])
    assert [p.endpoint for p in selection.drawn] == ["/a"]
    assert [p.endpoint for p in selection.incomplete] == ["/b"]


def test_the_hottest_are_drawn_and_the_rest_is_kept_apart() -> None:
    selection = points.select([point(f"/{n}", heat=float(n)) for n in range(10)], limit=3)
    assert [p.endpoint for p in selection.drawn] == ["/9", "/8", "/7"]
    assert len(selection.cooler) == 7


def test_area_follows_the_request_count() -> None:
    small, large = columns(point(requests=25), point("/b", requests=100), scales=Scales(requests=100))["size"]
    assert large == points.LARGEST_PX
    assert (small - points.SMALLEST_PX) / (large - points.SMALLEST_PX) == pytest.approx(0.5, abs=0.01)


def test_an_unknown_count_gets_the_smallest_marker_and_says_unknown() -> None:
    made = columns(point(requests=None, cpu_load_ratio=None))
    assert made["size"] == [points.SMALLEST_PX]
    assert made["hover"][0][-1] == "unknown"
    assert made["hover"][0][7] == "unknown"


def test_the_hover_text_has_every_figure_with_its_unit() -> None:
    for words in (
        "weighted requests/s",
        "P95 latency",
        "Instance load",
        "CPU",
        "memory",
        "Dispatch deviation",
    ):
        assert words in points.HOVER_TEMPLATE
    assert columns(point())["hover"][0][5] == "250 ms"


def test_markup_in_a_name_is_escaped() -> None:
    made = columns(point("<a href='javascript:x'>y</a>"))
    assert "<" not in made["hover"][0][0] + made["label"][0] + made["names"][0]["text"]


def test_each_modality_has_a_shape_of_its_own() -> None:
    assert len({*points.SYMBOLS.values(), points.OTHER_SYMBOL}) == len(points.SYMBOLS) + 1
    assert columns(point(modality="hologram"))["symbol"] == [points.OTHER_SYMBOL]


def test_only_the_hottest_of_an_endpoint_carries_its_name() -> None:
    assert columns(point("/a", "i-0"), point("/a", "i-1"), point("/b"))["label"] == ["/a", "", "/b"]


def test_many_points_have_no_names_stems_or_outlines() -> None:
    made = columns(*[point(f"/{n}") for n in range(points.MAX_STEMS + 1)])
    assert (made["label"], made["names"], made["stems"], made["outline"]) == ([], [], False, 0)
    assert max(made["size"]) <= points.LARGEST_OF_MANY_PX


def test_two_thousand_points_stay_below_half_a_megabyte() -> None:
    drawn = [point(f"/v1/endpoint/{n}", f"i-{n}", heat=n / 7) for n in range(2000)]
    assert len(json.dumps(columns(*drawn))) < 500_000
