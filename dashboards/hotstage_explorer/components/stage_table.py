# SPDX-License-Identifier: Apache-2.0
"""Stage × modality in pipeline order: what is in flight, how fast, how slow, which rows a window names."""

from __future__ import annotations

from collections.abc import Collection

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.windows import severity_class
from hotstage_explorer.components.words import known, nothing, quantile, unknown
from hotstage_explorer.picture import Section, StageRow, Stages, WindowRow

_COLUMNS = (
    ("Stage", ""),
    ("Modality", ""),
    ("In flight", "requests"),
    ("Oldest open", "age"),
    ("Rate", "requests/s"),
    ("P50", "last 60 s"),
    ("P95", "last 60 s"),
    ("P99", "last 60 s"),
    ("Ended", "requests"),
)


def stage_table(section: Section[Stages], windows: Collection[WindowRow]) -> Node:
    if not section.value.rows:
        if section.read_at is None:
            return nothing("Not read yet")
        return nothing(
            "No stage has run yet",
            "Stages come from marks in the server, NVTX ranges or rules. Calls without one are unattributed.",
        )
    named = {(w.names("stage"), w.names("modality")): w for w in windows if w.is_open and w.names("stage")}
    return node(
        "table",
        node("caption", "Stages in pipeline order", cls="sr-only"),
        node("thead", node("tr", *(_head(n) for n in range(len(_COLUMNS))))),
        node(
            "tbody",
            *(
                _row(r, named.get((r.stage, r.modality)) or named.get((r.stage, None)))
                for r in section.value.rows
            ),
        ),
    )


def _head(place: int) -> Node:
    name, unit = _COLUMNS[place]
    return node("th", name, node("span", unit, cls="unit"), scope="col", cls="num" if place > 1 else "")


def _row(row: StageRow, window: WindowRow | None) -> Node:
    flag = node("span", "window open", cls=f"flag {severity_class(window.severity)}") if window else None
    numbers: tuple[Child, ...] = (
        known(units.count(row.inflight), "the agent has not said"),
        _oldest(row),
        known(units.significant(row.rate), "no rate yet"),
        quantile(row.p50_seconds, row.requests),
        quantile(row.p95_seconds, row.requests),
        quantile(row.p99_seconds, row.requests),
        known(units.count(row.requests), "the agent has not said"),
    )
    return node(
        "tr",
        node("th", node("code", row.stage), flag, scope="row"),
        node("td", row.modality),
        *(node("td", number, cls="num") for number in numbers),
        cls=f"marked {severity_class(window.severity)}" if window else "",
        key=f"{row.stage}|{row.modality}",
    )


def _oldest(row: StageRow) -> Child:
    if row.oldest_age_seconds is not None:
        return units.duration(row.oldest_age_seconds)
    return unknown("the agent has not said" if row.inflight else "nothing is in flight")
