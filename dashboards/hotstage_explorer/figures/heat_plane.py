# SPDX-License-Identifier: Apache-2.0
"""The flat view, for browsers without WebGL and those who prefer it: heat × P95, colour load. Pure."""

from __future__ import annotations

from typing import Any

from hotstage_explorer.figures import palette
from hotstage_explorer.figures.heat_scene import colour_bar


def plane(columns: dict[str, Any]) -> dict[str, Any]:
    """`points.columns(…)` → a plotly figure with one trace."""
    axes = columns["axes"]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers+text" if columns["label"] else "markers",
                "x": columns["x"],
                "y": columns["y"],
                "ids": columns["ids"],
                "text": columns["label"],
                "textposition": "top center",
                "textfont": {"family": palette.FONT, "size": 12, "color": palette.INK},
                "customdata": columns["hover"],
                "hovertemplate": columns["hovertemplate"],
                "cliponaxis": False,
                "marker": {
                    "size": columns["size"],
                    "symbol": columns["symbol"],
                    "color": columns["z"],
                    "cmin": 0,
                    "cmax": columns["load_top"],
                    "colorscale": palette.LOAD_SCALE,
                    "opacity": 0.95,
                    "line": {"color": "rgba(232, 237, 244, 0.75)", "width": columns["outline"]},
                    "colorbar": {**colour_bar(columns), "xanchor": "left", "x": 1.01},
                },
            }
        ],
        "layout": {
            "autosize": True,
            "margin": {"l": 72, "r": 16, "t": 16, "b": 56},
            "paper_bgcolor": palette.PANEL,
            "plot_bgcolor": palette.FLOOR,
            "font": {"family": palette.FONT, "color": palette.INK_SOFT, "size": 12},
            "showlegend": False,
            "uirevision": "heat",
            "dragmode": "pan",
            "hoverlabel": {
                "bgcolor": palette.FLOOR,
                "bordercolor": palette.GRID,
                "align": "left",
                "font": {"family": palette.FONT, "color": palette.INK, "size": 12.5},
            },
            "xaxis": _axis(axes["x"]),
            "yaxis": _axis(axes["y"]),
        },
    }


def _axis(axis: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": {"text": axis["title"], "font": {"color": palette.INK, "size": 12.5}, "standoff": 12},
        "type": axis["type"],
        "range": axis["range"],
        "autorange": False,
        "tickmode": "array" if axis["ticks"] else "auto",
        "tickvals": axis["ticks"],
        "tickfont": {"color": palette.INK_SOFT, "size": 11},
        "gridcolor": palette.GRID,
        "linecolor": palette.GRID,
        "zeroline": False,
    }
