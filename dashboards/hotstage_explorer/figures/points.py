# SPDX-License-Identifier: Apache-2.0
"""Heat points → the columns that both views draw, and the axes they are drawn on. Pure, no Dash, no HTTP.

The columns travel to the browser once a tick; `assets/heat.js` hands them to the drawing as they are.
"""

from __future__ import annotations

import heapq
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotstage_explorer import units
from hotstage_explorer.figures import names
from hotstage_explorer.figures.scale import LoadAxis, Scales
from hotstage_explorer.picture import HeatPoint

MAX_DRAWN = 2000  # what software rendering redraws in 0.3 s
MAX_LABELS = 6
MAX_STEMS = 200
SMALLEST_PX, LARGEST_PX, LARGEST_OF_MANY_PX = 6.0, 28.0, 11.0

# One marker per modality: colour is taken by the load.
# (Plotly draws symbols as letters of a font; these are in every font, its `x` is not.)
SYMBOLS = {"text": "circle", "image": "square", "audio": "diamond", "video": "cross", "mixed": "diamond-open"}
OTHER_SYMBOL = "circle-open"

HOVER_TEMPLATE = (
    "<b>%{customdata[0]}</b><br>on %{customdata[1]}, %{customdata[2]}<br>"
    "Heat %{customdata[3]} weighted requests/s (%{customdata[4]} requests/s)<br>"
    "P95 latency %{customdata[5]}<br>"
    "Instance load %{customdata[6]} (CPU %{customdata[7]}, memory %{customdata[8]})<br>"
    "Dispatch deviation %{customdata[9]} (log2 of load share ÷ heat share)<br>"
    "%{customdata[10]} requests ended<extra></extra>"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What is drawn, hottest first, and what is not, with the reason."""

    drawn: tuple[HeatPoint, ...]
    cooler: tuple[HeatPoint, ...]
    incomplete: tuple[HeatPoint, ...]


def select(points: Sequence[HeatPoint], limit: int = MAX_DRAWN) -> Selection:
    """The `limit` hottest points with all three coordinates; the rest is told in words, never placed at 0."""
    whole = [p for p in points if p.is_drawable]
    drawn = heapq.nlargest(limit, whole, key=_heat)
    kept = {id(p) for p in drawn}
    return Selection(
        tuple(drawn),
        tuple(p for p in whole if id(p) not in kept),
        tuple(p for p in points if not p.is_drawable),
    )


def columns(
    drawn: Sequence[HeatPoint], scales: Scales, *, is_log: bool = False, load_axis: LoadAxis = "auto"
) -> dict[str, Any]:
    """The drawing as plain JSON: coordinates in the axes' units, hover texts' parts, axes."""
    per_unit, _ = p95_unit(scales)
    many = len(drawn) > MAX_STEMS
    largest = LARGEST_OF_MANY_PX if many else LARGEST_PX
    load_top = _rounded(100 * scales.load_end(load_axis))
    ends = axes(scales, load_top, is_log=is_log)
    made = {
        "ids": [p.key for p in drawn],
        "x": [_rounded(p.heat) for p in drawn],
        "y": [_rounded((p.p95_seconds or 0) * per_unit) for p in drawn],
        "z": [_rounded((p.load_ratio or 0) * 100) for p in drawn],
        "size": [_size(p.requests, scales, largest) for p in drawn],
        "outline": 0 if many else 1,
        "symbol": [SYMBOLS.get(p.modality, OTHER_SYMBOL) for p in drawn],
        "label": [] if many else _labels(drawn),
        "hover": [_hover_parts(p) for p in drawn],
        "hovertemplate": HOVER_TEMPLATE,
        "stems": not many,
        "load_top": load_top,
        "load_ticks": [_rounded(load_top * n / 5) for n in range(6)],
        "axes": ends,
    }
    made["names"] = _names(made)
    return made


def axes(scales: Scales, load_top: float, *, is_log: bool) -> dict[str, dict[str, Any]]:
    """Titles with units, fixed ranges, ticks (None: plotly's own); a log axis has its range in decades."""
    per_unit, unit = p95_unit(scales)
    top = _rounded(scales.p95_seconds * per_unit)
    heat = {"title": "Endpoint heat (weighted requests/s)", "type": "linear", "range": [0, scales.heat]}
    p95 = {"title": f"P95 latency ({unit})", "type": "linear", "range": [0, top]}
    if is_log:
        floor = min(scales.p95_floor_seconds * per_unit, top / 10)
        p95 = {
            "title": f"P95 latency ({unit}, log)",
            "type": "log",
            "range": [round(math.log10(floor), 6), round(math.log10(top), 6)],
            "ticks": _log_ticks(floor, top),
        }
    load = {"title": "Instance load (%)", "type": "linear", "range": [0, load_top]}
    return {name: {"ticks": None, **axis} for name, axis in (("x", heat), ("y", p95), ("z", load))}


def p95_unit(scales: Scales) -> tuple[float, str]:
    """(units per second, unit): ms up to an axis of 1 s. The axis only grows, so this changes once."""
    return (1.0, "s") if scales.p95_seconds > 1 else (1000.0, "ms")


def _log_ticks(floor: float, top: float) -> list[float]:
    """1-2-5 ticks, or decades where there are many; none at the floor, where another axis has its own."""
    decades = math.ceil(math.log10(top / floor))
    mantissas = (1, 2, 5) if decades <= 2 else (1,)
    low = math.floor(math.log10(floor))
    ticks = [_rounded(m * 10.0**e) for e in range(low, low + decades + 2) for m in mantissas]
    return [tick for tick in ticks if floor * 1.1 < tick <= top * 1.001]


def _hover_parts(p: HeatPoint) -> list[str]:
    return [
        _safe(p.endpoint),
        _safe(p.place, 160),
        _safe(p.modality),
        units.significant(p.heat),
        _known(units.significant(p.request_rate)),
        units.duration(p.p95_seconds),
        units.percent(p.load_ratio),
        _known(units.percent(p.cpu_load_ratio)),
        _known(units.percent(p.memory_load_ratio)),
        _known(units.signed(p.deviation)),
        _known(units.count(p.requests)),
    ]


def _labels(drawn: Sequence[HeatPoint]) -> list[str]:
    """A name at the hottest point of each of the hottest endpoints, per host where there are several: more
    names would hide each other.
    """
    named: set[tuple[str, str]] = set()
    labels = []
    for p in drawn:
        is_first = (p.endpoint, p.host) not in named and len(named) < MAX_LABELS
        named.add((p.endpoint, p.host))
        labels.append(
            _safe(p.endpoint, 32) + (f" · {_safe(p.host, 24)}" if p.host else "") if is_first else ""
        )
    return labels


def _names(made: dict[str, Any]) -> list[dict[str, Any]]:
    """The labels as annotations of the 3D scene."""
    if not any(made["label"]):
        return []
    low, high = zip(*(made["axes"][letter]["range"] for letter in "xyz"), strict=True)
    is_log = made["axes"]["y"]["type"] == "log"
    places = [
        (x, math.log10(max(y, 1e-9)) if is_log else y, z)
        for x, y, z in zip(made["x"], made["y"], made["z"], strict=True)
    ]
    shares = [
        [(at - start) / (end - start) for at, start, end in zip(place, low, high, strict=True)]
        for place in places
    ]
    return names.names(made["label"], places, shares, made["size"])


def _known(text: str) -> str:
    return "unknown" if text == units.DASH else text


def _safe(name: str, limit: int = 80) -> str:
    """Plotly reads tags in texts: a name must stay a name."""
    return html.escape(name if len(name) <= limit else name[: limit - 1] + "…", quote=False)


def _size(requests: int | None, scales: Scales, largest: float) -> float:
    """Area follows the request count; an unknown count gets the smallest marker."""
    share = min(1.0, (requests or 0) / scales.requests)
    return round(SMALLEST_PX + (largest - SMALLEST_PX) * math.sqrt(share), 1)


def _rounded(value: float | None) -> float:
    return 0.0 if not value else float(f"{value:.4g}")


def _heat(point: HeatPoint) -> float:
    return point.heat or 0.0
