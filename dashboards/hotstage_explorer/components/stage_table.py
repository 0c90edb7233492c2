# SPDX-License-Identifier: Apache-2.0
"""Stage × modality in pipeline order: what is in flight, how fast, how slow, which rows a window names."""

from __future__ import annotations

from collections.abc import Collection

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.windows import severity_class
from hotstage_explorer.components.words import known, nothing, quantile, unknown
from hotstage_explorer.picture import AGENT, Origin, Section, StageRow, Stages, WindowRow


def stage_table(section: Section[Stages], windows: Collection[WindowRow], origin: Origin = AGENT) -> Node:
    """`windows` flag the rows that they name."""
    if not section.value.rows:
        if section.read_at is None:
            return nothing("Not read yet")
        return nothing(
            "No stage has run yet",
            "Stages come from marks in the server, NVTX ranges or rules. Calls without one are unattributed.",
        )
    stages = section.value
    has_hosts = any(row.host for row in stages.rows)
    named = {
        (w.host, w.names("stage"), w.names("modality")): w for w in windows if w.is_open and w.names("stage")
    }
    return node(
        "table",
        node("caption", "Stages in pipeline order", cls="sr-only"),
        node("thead", node("tr", *_heads(stages, has_hosts))),
        node(
            "tbody",
            *(
                _row(
                    row,
                    named.get((row.host, row.stage, row.modality)) or named.get((row.host, row.stage, None)),
                    origin,
                    has_hosts,
                )
                for row in stages.rows
            ),
        ),
    )


def _heads(stages: Stages, has_hosts: bool) -> list[Node]:
    words = (("Stage", ""), ("Modality", ""), *((("Host", ""),) if has_hosts else ()))
    numbers = (
        ("In flight", "requests"),
        ("Oldest open", "age"),
        ("Rate", stages.rate_over),
        *((name, stages.quantiles_over) for name in ("P50", "P95", "P99")),
        ("Ended", "requests"),
    )
    return [_head(*word) for word in words] + [_head(*number, cls="num") for number in numbers]


def _head(name: str, unit: str, cls: str = "") -> Node:
    return node("th", name, node("span", unit, cls="unit"), scope="col", cls=cls)


def _row(row: StageRow, window: WindowRow | None, origin: Origin, has_hosts: bool) -> Node:
    flag = node("span", "window open", cls=f"flag {severity_class(window.severity)}") if window else None
    numbers: tuple[Child, ...] = (
        known(units.count(row.inflight), origin.not_said),
        _oldest(row, origin),
        known(units.significant(row.rate), "no rate yet"),
        quantile(row.p50_seconds, row.requests),
        quantile(row.p95_seconds, row.requests),
        quantile(row.p99_seconds, row.requests),
        known(units.count(row.requests), origin.not_said),
    )
    return node(
        "tr",
        node("th", node("code", row.stage), flag, scope="row"),
        node("td", row.modality),
        node("td", row.host) if has_hosts else None,
        *(node("td", number, cls="num") for number in numbers),
        cls=f"marked {severity_class(window.severity)}" if window else "",
        key=f"{row.host}|{row.stage}|{row.modality}",
    )


def _oldest(row: StageRow, origin: Origin) -> Child:
    if row.oldest_age_seconds is not None:
        return units.duration(row.oldest_age_seconds)
    return unknown("nothing is in flight" if row.inflight == 0 else origin.not_said)
