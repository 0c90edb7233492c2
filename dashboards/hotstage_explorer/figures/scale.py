# SPDX-License-Identifier: Apache-2.0
"""Axis ends that only grow, and in steps, so that axes stand still while data moves. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hotstage_explorer.picture import HeatPoint

LoadAxis = Literal["auto", "full", "fit"]
LOAD_AXES: tuple[LoadAxis, ...] = ("auto", "full", "fit")

_HEADROOM = 1.05
_AUTO_FIT_RATIO = 0.5
_STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)


@dataclass(frozen=True, slots=True)
class Scales:
    """Upper ends; `p95_floor_seconds` is the lower end of the logarithmic P95 axis and only shrinks.

    The load axis has two: `load_ratio` is never below 100 %, `load_fit_ratio` fits what there is.
    """

    heat: float = 1.0
    p95_seconds: float = 0.1
    p95_floor_seconds: float = 0.01
    load_ratio: float = 1.0
    load_fit_ratio: float = 0.01
    requests: float = 100.0

    def load_end(self, axis: LoadAxis) -> float:
        """Where the load axis ends. `auto` fits while that end is at most 50 %; as ends only grow, it turns
        to the whole range once and stays there.
        """
        is_fitted = axis == "fit" or (axis == "auto" and self.load_fit_ratio <= _AUTO_FIT_RATIO)
        return self.load_fit_ratio if is_fitted else self.load_ratio

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Scales | None:
        """What a browser kept for us; None when it is not usable."""
        if not isinstance(value, dict):
            return None
        try:
            scales = cls(**{name: float(end) for name, end in value.items()})
        except (TypeError, ValueError, OverflowError):
            return None
        return scales if all(math.isfinite(end) and end > 0 for end in asdict(scales).values()) else None


def load_axis_of(value: Any) -> LoadAxis:
    """A browser's choice; what is not one of them is `auto`."""
    return next((axis for axis in LOAD_AXES if axis == value), "auto")


def step_above(value: float) -> float:
    """The smallest step (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15 …) that is ≥ value (> 0)."""
    power = math.floor(math.log10(value))
    for exponent in (power, power + 1):
        for mantissa in _STEPS:
            step = float(f"{mantissa * 10.0**exponent:.6g}")  # 0.15, not 0.15000000000000002
            if step >= value * (1 - 1e-9):
                return step
    return 10.0 ** (power + 2)


def step_below(value: float) -> float:
    """The largest power of ten that is ≤ value (> 0)."""
    return 10.0 ** math.floor(math.log10(value) + 1e-9)


def grown(previous: Scales | None, points: Iterable[HeatPoint]) -> Scales:
    """Ends that hold every known value and are never inside `previous`."""
    points = tuple(points)
    old = previous or Scales()
    p95 = [p.p95_seconds for p in points if p.p95_seconds is not None and p.p95_seconds > 0]
    return Scales(
        heat=_end(old.heat, previous is not None, (p.heat for p in points)),
        p95_seconds=_end(old.p95_seconds, previous is not None, p95),
        p95_floor_seconds=_floor(previous, p95) if p95 else old.p95_floor_seconds,
        load_ratio=_end(old.load_ratio, True, (p.load_ratio for p in points)),
        load_fit_ratio=_end(old.load_fit_ratio, True, (p.load_ratio for p in points)),
        requests=_end(old.requests, previous is not None, (p.requests for p in points)),
    )


def _floor(previous: Scales | None, p95: list[float]) -> float:
    needed = step_below(max(min(p95), 1e-6))
    return needed if previous is None else min(previous.p95_floor_seconds, needed)


def _end(old: float, keeps_old: bool, values: Iterable[float | None]) -> float:
    largest = max((v for v in values if v is not None), default=0.0)
    if largest <= 0 or (keeps_old and largest <= old):
        return old
    needed = step_above(min(max(largest * _HEADROOM, 1e-6), 1e300))
    return max(old, needed) if keeps_old else needed
