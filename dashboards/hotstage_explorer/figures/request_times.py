# SPDX-License-Identifier: Apache-2.0
"""Finished requests as points: when they ended, how long they took, how they ended. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hotstage_explorer import units
from hotstage_explorer.documents.requests import RequestRow, items
from hotstage_explorer.figures import palette
from hotstage_explorer.figures.flat import axis, escaped, layout
from hotstage_explorer.where import Where

MAX_POINTS = 2000
"""What a browser redraws beside everything else; the newest are kept."""

_TICKS = tuple(mantissa * 10.0**power for power in range(-7, 5) for mantissa in (1, 2, 5))
_FINE_TICKS = tuple(
    mantissa * 10.0**power for power in range(-7, 5) for mantissa in (1, 1.5, 2, 3, 4, 5, 6, 8)
)


def request_times(rows: Sequence[RequestRow], where: Where) -> dict[str, Any] | None:
    """A trace for each outcome; a click on a point follows its link. None where nothing can be placed."""
    placed = [row for row in rows if row.ended_ns is not None and row.duration_seconds]
    drawn = placed[-MAX_POINTS:]
    if not drawn:
        return None
    low, high = _ends(drawn)
    ticks, names = _ticks(low, high), items(rows)
    outcomes = dict.fromkeys(("ok", "error", "cancelled", "refused", *sorted({row.outcome for row in drawn})))
    traces = [_trace(name, [row for row in drawn if row.outcome == name], where, names) for name in outcomes]
    return {
        "data": [trace for trace in traces if trace["x"]],
        "layout": layout(
            250,
            revision="times",
            margin={"l": 8, "r": 16, "t": 30, "b": 32},
            xaxis=axis("", type="date", tickformat="%H:%M:%S", nticks=6, tickangle=0),
            yaxis=axis(
                "Duration (log)",
                type="log",
                range=[math.log10(low), math.log10(high)],
                fixedrange=True,
                tickmode="array",
                tickvals=ticks,
                ticktext=[units.duration(tick) for tick in ticks],
            ),
            hovermode="closest",
            showlegend=True,
            legend={
                "orientation": "h",
                "x": 0,
                "y": 1.02,
                "yanchor": "bottom",
                "itemclick": False,
                "itemdoubleclick": False,
            },
        ),
    }


def _ends(drawn: Sequence[RequestRow]) -> tuple[float, float]:
    """Of the duration axis: room around what is drawn, and a third of a decade at least."""
    low = min(row.duration_seconds or 1.0 for row in drawn) / 1.15
    high = max(row.duration_seconds or 1.0 for row in drawn) * 1.15
    widen = max(1.0, (2.2 * low / high) ** 0.5)
    return low / widen, high * widen


def _ticks(low: float, high: float) -> list[float]:
    """1-2-5 ticks between the ends: fewer where there are many, finer ones where there are not two."""
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    if len(ticks) < 2:
        ticks = [tick for tick in _FINE_TICKS if low <= tick <= high]
    return ticks if len(ticks) <= 7 else ticks[::3]


def _trace(
    outcome: str, rows: Sequence[RequestRow], where: Where, names: Mapping[int, str]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escaped(outcome),
        "x": [(row.ended_ns or 0) // 1_000_000 for row in rows],
        "y": [row.duration_seconds for row in rows],
        "customdata": [_hover(row) for row in rows],
        "meta": {"hrefs": [where.at(names[row.seq]).href() for row in rows]},
        "hovertemplate": "<b>%{customdata[0]}</b><br>%{customdata[1]}, %{customdata[2]}<br>%{customdata[3]}, "
        + f"{escaped(outcome)}<extra></extra>",
        "marker": {
            "color": palette.OUTCOMES.get(outcome, palette.INK_SOFT),
            "symbol": palette.OUTCOME_SYMBOLS.get(outcome, "diamond"),
            "size": 6,
            "opacity": 0.8,
        },
    }


def _hover(row: RequestRow) -> list[str]:
    modalities = escaped(", ".join(row.modalities))
    return [escaped(row.id), escaped(row.endpoint), modalities, units.duration(row.duration_seconds)]
