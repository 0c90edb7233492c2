# SPDX-License-Identifier: Apache-2.0
"""Request classes as a table: how many, how fast, how late against their targets, what a token costs."""

from __future__ import annotations

from collections.abc import Sequence

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import TOO_FEW, barred, heads, known, nothing, unknown
from hotstage_explorer.documents.classes import SIZES, ClassRow

MAX_ROWS = 60


def class_table(rows: Sequence[ClassRow], by: str) -> Node:
    """`by` is fingerprint, size or endpoint; those with the largest penalty first."""
    if not rows:
        return nothing("No request has finished yet", "Classes appear with the first requests that end.")
    worst = max((row.slo_penalty_ms or 0.0 for row in rows), default=0.0)
    has_hosts = any(row.host for row in rows)
    columns = (
        *((("Endpoint", "", ""),) if by == "endpoint" else ()),
        ("Class", "what it brought", ""),
        *((("Size", "input tokens", ""),) if by == "size" else ()),
        *((("Host", "", ""),) if has_hosts else ()),
        ("Requests", "ended", "num"),
        ("QPS", "last 10 s", "num"),
        ("Mean", "", "num"),
        ("P50", "", "num"),
        ("P95", "", "num"),
        ("P99", "", "num"),
        ("Target", "of P99", "num"),
        ("Within target", "requests", "num"),
        ("Token equivalent", "ms each", "num"),
        ("SLO penalty", "weighted ms", "num"),
    )
    ordered = sorted(rows, key=lambda row: (-(row.slo_penalty_ms or 0.0), -(row.requests or 0)))
    return node(
        "table",
        node("caption", f"Request classes by {by}", cls="sr-only"),
        heads(columns),
        node("tbody", *(_row(row, by, worst, has_hosts) for row in ordered[:MAX_ROWS])),
    )


def _row(row: ClassRow, by: str, worst: float, has_hosts: bool) -> Node:
    first = row.endpoint or "(unnamed)" if by == "endpoint" else row.fingerprint
    numbers: list[Child] = [
        known(units.count(row.requests), "not in the metrics"),
        known(units.significant(row.rate), "no rate yet"),
        known(units.duration(row.mean_seconds), "no request of the window counts"),
        *(_quantile(seconds, row) for seconds in (row.p50_seconds, row.p95_seconds)),
        _p99(row),
        known(units.duration(row.p99_target_seconds), "its class has none"),
        known(units.percent(row.within_target_ratio), "no target, or no request in the window"),
        known(units.significant(row.token_equivalent_ms), "its requests do not say their tokens"),
        _penalty(row, worst),
    ]
    return node(
        "tr",
        node("th", node("code", first) if by == "endpoint" else node("strong", first), scope="row"),
        node("td", row.fingerprint) if by == "endpoint" else None,
        node("td", SIZES.get(row.size, row.size or "all")) if by == "size" else None,
        node("td", row.host) if has_hosts else None,
        *(node("td", number, cls="num") for number in numbers),
        cls="marked warning" if row.is_late else "",
        key=row.key,
    )


def _quantile(seconds: float | None, row: ClassRow) -> Child:
    if seconds is not None:
        return units.duration(seconds)
    if row.samples is None:
        return unknown("not in the metrics, or too few requests in the window")
    return unknown(f"{units.count(row.samples)} requests in the window are too few", TOO_FEW)


def _p99(row: ClassRow) -> Child:
    if not row.is_late:
        return _quantile(row.p99_seconds, row)
    return node("span", units.duration(row.p99_seconds), node("span", "late", cls="flag warning"))


def _penalty(row: ClassRow, worst: float) -> Child:
    if row.slo_penalty_ms is None:
        return unknown("no P99 yet")
    if not worst:
        return "0"
    return barred(100 * row.slo_penalty_ms / worst, units.significant(row.slo_penalty_ms))
