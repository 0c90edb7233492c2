# SPDX-License-Identifier: Apache-2.0
"""The one way to put a drawing on a page."""

from __future__ import annotations

from typing import Any

from dash import dcc

# plotly.js offers, unless told otherwise, to send the chart's data to a public server.
CONFIG = {
    "showSendToCloud": False,
    "showEditInChartStudio": False,
    "displaylogo": False,
    "displayModeBar": False,  # its buttons are not reachable by keyboard; ours are
    "scrollZoom": True,
    "doubleClick": False,
    "plotGlPixelRatio": 1,
}


def graph(identity: str, figure: dict[str, Any]) -> dcc.Graph:
    """A drawing that fills its parent. The caller gives its twin in text: screen readers see no canvas."""
    return dcc.Graph(id=identity, figure=figure, config=CONFIG, className="graph", responsive=True)
