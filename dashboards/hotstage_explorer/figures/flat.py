# SPDX-License-Identifier: Apache-2.0
"""What all flat charts of the live pages have in common: ground, fonts, axes, escaped names. Pure."""

from __future__ import annotations

import html
from typing import Any

from hotstage_explorer.figures import palette

HATCHED = {
    "shape": "/",
    "fillmode": "overlay",
    "fgcolor": palette.PANEL,
    "fgopacity": 0.85,
    "size": 6,
    "solidity": 0.45,
}
"""How bars of waits look."""


def escaped(name: str, limit: int = 60) -> str:
    """A name as text: plotly reads markup in whatever it writes."""
    return html.escape(name if len(name) <= limit else name[: limit - 1] + "…", quote=False)


def layout(height: int, *, revision: str, **more: Any) -> dict[str, Any]:
    """A chart's layout; while `revision` stays the same, so does what somebody has zoomed into.

    `meta={"narrow": …}`: what the x axis is instead where the drawing is narrow (assets/live.js).
    """
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 16, "t": 10, "b": 40},
        "paper_bgcolor": palette.PANEL,
        "plot_bgcolor": palette.PANEL,
        "font": {"family": palette.FONT, "color": palette.INK_SOFT, "size": 12},
        "showlegend": False,
        "uirevision": revision,
        "dragmode": "zoom",
        "hoverlabel": {
            "bgcolor": palette.FLOOR,
            "bordercolor": palette.GRID,
            "align": "left",
            "font": {"family": palette.FONT, "color": palette.INK, "size": 12.5},
        },
        **more,
    }


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with a title of one line; `automargin` makes room for its labels."""
    return {
        "title": {"text": title, "font": {"color": palette.INK_SOFT, "size": 12}, "standoff": 8},
        "tickfont": {"color": palette.INK_SOFT, "size": 11},
        "gridcolor": palette.GRID,
        "linecolor": palette.GRID,
        "zeroline": False,
        "automargin": True,
        **more,
    }


def unit_of(seconds: float) -> tuple[float, str]:
    """(units per second, unit) for an axis that is so long: µs, ms or s."""
    if seconds < 0.002:
        return 1e6, "µs"
    return (1e3, "ms") if seconds < 2 else (1.0, "s")
