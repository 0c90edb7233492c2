# SPDX-License-Identifier: Apache-2.0
"""Names beside the points of the 3D scene, clear of the markers and of each other. Pure.

Places are found on the screen as the camera of the page's start sees it. A name follows its point when
somebody turns the scene; its offset stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hotstage_explorer.figures import palette

EYE = (1.45, 1.45, 0.85)
CENTER = (0.0, 0.0, -0.16)
_HALF_VIEW_PX = 760.0
"""Pixels of a unit at distance 1 on a drawing of usual size; on another one names stand less well."""

_PX_PER_SIZE = 1.5
"""The scene draws its symbols larger than their size says."""

_LETTER_PX, _HEIGHT_PX, _GAP_PX = 6.9, 17.0, 4.0
_OFFSETS = ((10, -12), (16, -36), (10, 20), (22, -60), (28, -84), (34, -108))
"""(px beside the marker's edge, px below its middle), the best first; each to the right, then to the left."""


@dataclass(frozen=True, slots=True)
class Box:
    """Pixels on the screen, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: Box) -> float:
        """Area that both cover, in px²."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)


def names(
    labels: Sequence[str],
    places: Sequence[Sequence[float]],
    shares: Sequence[Sequence[float]],
    sizes: Sequence[float],
) -> list[dict[str, Any]]:
    """Plotly annotations for the points with a label.

    `places` are coordinates on the axes (decades on a logarithmic one), `shares` the same as parts of the
    axes' lengths, 0..1, `sizes` the markers' in px.
    """
    seen = [_on_screen(share) for share in shares]
    radii = [_PX_PER_SIZE * size / 2 for size in sizes]
    taken = [Box(x - r, y - r, x + r, y + r) for (x, y), r in zip(seen, radii, strict=True)]
    made = []
    # By name: a name keeps its place while heat changes.
    for n in sorted((n for n, label in enumerate(labels) if label), key=lambda n: labels[n]):
        offset, box = _free_place(labels[n], seen[n], radii[n], taken)
        taken.append(box)
        made.append(_annotation(labels[n], places[n], offset, radii[n]))
    return made


def _free_place(
    label: str, at: tuple[float, float], radius: float, taken: Sequence[Box]
) -> tuple[tuple[float, float], Box]:
    """The first place that covers nothing, else the one that covers least."""
    found = []
    for beside, below in _OFFSETS:
        for side in (1, -1):
            offset = (side * (radius + beside), float(below))
            box = _box(label, at, offset)
            covered = sum(box.shared(other) for other in taken)
            if covered == 0:
                return offset, box
            found.append((covered, offset, box))
    _, offset, box = min(found, key=lambda place: place[0])
    return offset, box


def _box(label: str, at: tuple[float, float], offset: tuple[float, float]) -> Box:
    width = _LETTER_PX * len(label) + 2 * _GAP_PX
    x, y = at[0] + offset[0], at[1] + offset[1]
    left = x if offset[0] > 0 else x - width
    return Box(left, y - _HEIGHT_PX / 2, left + width, y + _HEIGHT_PX / 2)


def _on_screen(share: Sequence[float]) -> tuple[float, float]:
    """Where the camera of the start shows a point of the cube, in px from the middle."""
    forward = _unit([c - e for c, e in zip(CENTER, EYE, strict=True)])
    right = _unit([forward[1], -forward[0], 0.0])
    up = [
        right[1] * forward[2] - right[2] * forward[1],
        right[2] * forward[0] - right[0] * forward[2],
        right[0] * forward[1] - right[1] * forward[0],
    ]
    ray = [s - 0.5 - e for s, e in zip(share, EYE, strict=True)]
    depth = max(_dot(ray, forward), 0.1)
    return _HALF_VIEW_PX * _dot(ray, right) / depth, -_HALF_VIEW_PX * _dot(ray, up) / depth


def _annotation(
    label: str, at: Sequence[float], offset: tuple[float, float], radius: float
) -> dict[str, Any]:
    x, y, z = at
    return {
        "text": label,
        "x": x,
        "y": y,
        "z": z,
        "ax": round(offset[0]),
        "ay": round(offset[1]),
        "xanchor": "left" if offset[0] > 0 else "right",
        "yanchor": "middle",
        "font": {"family": palette.FONT, "size": 12, "color": palette.INK},
        "borderpad": 2,
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "standoff": round(radius),
        "arrowcolor": palette.INK_SOFT,
    }


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(_dot(vector, vector))
    return [v / length for v in vector]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))
