# SPDX-License-Identifier: Apache-2.0
"""Classes of requests by their latency: from P50 over P95 to P99, with the target as a line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hotstage_explorer import units
from hotstage_explorer.documents.classes import SIZES, ClassRow
from hotstage_explorer.figures import palette
from hotstage_explorer.figures.flat import axis, escaped, layout, unit_of

MAX_CLASSES = 16
QUANTILES = (
    ("P50", "p50_seconds", "#31688e"),
    ("P95", "p95_seconds", "#1fa187"),
    ("P99", "p99_seconds", "#a0da39"),
)


def class_times(rows: Sequence[ClassRow], by: str) -> dict[str, Any] | None:
    """None where no class has a quantile; those of most requests are drawn."""
    known = sorted(
        (row for row in rows if row.p50_seconds or row.p95_seconds), key=lambda row: -(row.requests or 0)
    )[:MAX_CLASSES]
    if not known:
        return None
    longest = max(
        max(
            seconds or 0.0
            for seconds in (row.p50_seconds, row.p95_seconds, row.p99_seconds, row.p99_target_seconds)
        )
        for row in known
    )
    per_unit, unit = unit_of(longest)
    return {
        "data": [*(_bars(known, each, per_unit) for each in QUANTILES), _targets(known, per_unit)],
        "layout": layout(
            44 * len(known) + 96,
            revision=f"classes-{by}",
            margin={"l": 8, "r": 16, "t": 30, "b": 44},
            barmode="group",
            bargap=0.28,
            bargroupgap=0.05,
            showlegend=True,
            legend={
                **{"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
                **{"itemclick": False, "itemdoubleclick": False},
            },
            xaxis=axis(f"Latency ({unit})", rangemode="tozero", nticks=8),
            yaxis=axis(
                "",
                range=[len(known) - 0.45, -0.55],
                fixedrange=True,
                tickmode="array",
                tickvals=list(range(len(known))),
                ticktext=[f"{escaped(name_of(row, by), 32)} " for row in known],
                showgrid=False,
            ),
        ),
    }


def name_of(row: ClassRow, by: str) -> str:
    """How a class is called in a list of its kind."""
    host = f" {row.host}" if row.host else ""
    if by == "endpoint":
        return f"{row.endpoint or '(unnamed)'} {row.fingerprint}{host}"
    size = f" {SIZES.get(row.size, row.size)}" if by == "size" else ""
    return f"{row.fingerprint}{size}{host}"


def _bars(rows: Sequence[ClassRow], quantile: tuple[str, str, str], per_unit: float) -> dict[str, Any]:
    name, field, colour = quantile
    values = [getattr(row, field) for row in rows]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(range(len(rows))),
        "x": [None if value is None else value * per_unit for value in values],
        "marker": {"color": colour, "line": {"width": 0}},
        "customdata": [units.duration(value) for value in values],
        "hovertemplate": f"{name} %{{customdata}}<extra></extra>",
    }


def _targets(rows: Sequence[ClassRow], per_unit: float) -> dict[str, Any]:
    """A stroke at each target, as high as its bars."""
    known = [(place, row.p99_target_seconds) for place, row in enumerate(rows) if row.p99_target_seconds]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "target of P99",
        "x": [seconds * per_unit for _, seconds in known],
        "y": [place for place, _ in known],
        "marker": {
            "symbol": "line-ns-open",
            "size": 26,
            "color": palette.WAITS["run_queue"],
            "line": {"width": 2.5, "color": palette.WAITS["run_queue"]},
        },
        "customdata": [units.duration(seconds) for _, seconds in known],
        "hovertemplate": "target of P99: %{customdata}<extra></extra>",
    }
