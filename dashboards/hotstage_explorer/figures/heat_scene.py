# SPDX-License-Identifier: Apache-2.0
"""The 3D scene: X endpoint heat, Y P95 latency, Z and colour instance load, size request count. Pure.

Ranges, camera and `uirevision` are fixed at birth; updates replace columns only (assets/heat.js).
"""

from __future__ import annotations

from typing import Any

from hotstage_explorer.figures import names, palette


def scene(columns: dict[str, Any]) -> dict[str, Any]:
    """`points.columns(…)` → a plotly figure: trace 0 the markers, trace 1 their stems down to the floor.

    Names and stems come with the first update: without them the first picture is there 0.3 s earlier.
    """
    axes = columns["axes"]
    return {
        "data": [_markers(columns), _stems()],
        "layout": {
            "autosize": True,
            "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
            "paper_bgcolor": palette.PANEL,
            "font": {"family": palette.FONT, "color": palette.INK_SOFT, "size": 12},
            "showlegend": False,
            "uirevision": "heat",
            "hoverlabel": {
                "bgcolor": palette.FLOOR,
                "bordercolor": palette.GRID,
                "align": "left",
                "font": {"family": palette.FONT, "color": palette.INK, "size": 12.5},
            },
            "scene": {
                "uirevision": "heat",
                "aspectmode": "cube",
                "dragmode": "turntable",
                "camera": {
                    "eye": _point(names.EYE),
                    "center": _point(names.CENTER),
                    "up": {"x": 0, "y": 0, "z": 1},
                },
                "bgcolor": palette.PANEL,
                "xaxis": _axis(axes["x"]),
                "yaxis": _axis(axes["y"]),
                "zaxis": _axis(axes["z"]),
            },
        },
    }


def _point(at: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip("xyz", at, strict=True))


def _markers(columns: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter3d",
        "mode": "markers",
        "name": "endpoint × instance",
        "x": columns["x"],
        "y": columns["y"],
        "z": columns["z"],
        "ids": columns["ids"],
        "customdata": columns["hover"],
        "hovertemplate": columns["hovertemplate"],
        "marker": {
            "size": columns["size"],
            "symbol": columns["symbol"],
            "color": columns["z"],
            "cmin": 0,
            "cmax": columns["load_top"],
            "colorscale": palette.LOAD_SCALE,
            "opacity": 0.95,
            "line": {"color": "rgba(232, 237, 244, 0.75)", "width": columns["outline"]},
            "colorbar": colour_bar(columns),
        },
    }


def colour_bar(columns: dict[str, Any]) -> dict[str, Any]:
    """Fixed like the load axis, with the same ticks."""
    return {
        "title": {
            "text": "Instance load (%)",
            "side": "right",
            "font": {"color": palette.INK_SOFT, "size": 12},
        },
        "tickvals": columns["load_ticks"],
        "tickfont": {"color": palette.INK_SOFT, "size": 11},
        "thickness": 12,
        "len": 0.62,
        "x": 1,
        "xanchor": "right",
        "y": 0.5,
        "outlinewidth": 0,
    }


def _stems() -> dict[str, Any]:
    return {
        "type": "scatter3d",
        "mode": "lines",
        "x": [],
        "y": [],
        "z": [],
        "line": {"color": "#66758a", "width": 2},
        "hoverinfo": "skip",
        "connectgaps": False,
    }


def _axis(axis: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": {"text": axis["title"], "font": {"color": palette.INK, "size": 12.5}},
        "type": axis["type"],
        "range": axis["range"],
        "autorange": False,
        "tickmode": "array" if axis["ticks"] else "auto",
        "tickvals": axis["ticks"],
        "nticks": 6,
        "tickfont": {"color": palette.INK_SOFT, "size": 11},
        "gridcolor": palette.GRID,
        "linecolor": palette.GRID,
        "zeroline": False,
        "showbackground": False,  # a wall or floor would cut the names of the points before it
        "showspikes": True,
        "spikecolor": palette.INK_SOFT,
        "spikethickness": 1,
        "spikesides": False,
    }
