# SPDX-License-Identifier: Apache-2.0
"""The committed dashboards as a test reads them: panels, their queries, what the queries select."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "grafana/dashboards").glob("*.json"))
}
RATE_RANGE = "7m13s"
"""Stands for `$__rate_interval` where nothing is evaluated: no dashboard would type it in."""


@dataclass(frozen=True)
class Selected:
    """One vector selector of an expression, and the functions around it, innermost first."""

    name: str
    matchers: dict[str, str]
    range_seconds: float | None
    inside: tuple[str, ...]


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Every panel that shows something, those of collapsed rows included."""
    flat = [each for panel in dashboard["panels"] for each in (panel, *panel.get("panels", []))]
    return [panel for panel in flat if panel["type"] != "row"]


def targets() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(dashboard, panel, target) of all."""
    return [
        (name, panel, target)
        for name, dashboard in DASHBOARDS.items()
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]


def substituted(expression: str, *, rate_range: str = RATE_RANGE, job: str = ".+", host: str = ".+") -> str:
    """With every variable replaced by what "All" stands for."""
    values = {
        "$__rate_interval": rate_range,
        "$__interval": "15s",
        "$__range": "5m",
        "$job": job,
        "$instance": host,
        "$endpoint": ".*",
        "$stage": ".*",
        "$modality": ".*",
        "$gpu": ".*",
    }
    for name, value in values.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, f"a variable that no dashboard has: {expression}"
    return expression


def selected(expression: str) -> list[Selected]:
    """All selectors of an expression; raises ValueError when it is no PromQL."""
    return list(_walk(promql_parser.parse(expression), ()))


def _walk(node: Any, inside: tuple[str, ...], range_seconds: float | None = None) -> Iterator[Selected]:
    match type(node).__name__:
        case "VectorSelector":
            matchers = {f"{each.name}{_operator(each)}": each.value for each in node.matchers.matchers}
            yield Selected(node.name, matchers, range_seconds, inside)
        case "MatrixSelector":
            yield from _walk(node.vector_selector, inside, node.range.total_seconds())
        case "Call":
            for argument in node.args:
                yield from _walk(argument, (node.func.name, *inside))
        case "BinaryExpr":
            yield from _walk(node.lhs, inside)
            yield from _walk(node.rhs, inside)
        case "AggregateExpr" | "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
            yield from _walk(node.expr, inside)


def _operator(matcher: Any) -> str:
    return {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}[str(matcher.op).rpartition(".")[2]]
