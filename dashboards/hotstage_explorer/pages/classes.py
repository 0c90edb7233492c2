# SPDX-License-Identifier: Apache-2.0
"""The page Classes: what kinds of requests there are, how they fare, what a token of each costs."""

from __future__ import annotations

from typing import Any

from dash import html

from hotstage_explorer import units
from hotstage_explorer.components.absent import unread
from hotstage_explorer.components.class_table import class_table
from hotstage_explorer.components.node import Node, node
from hotstage_explorer.components.words import choice
from hotstage_explorer.documents.classes import Classes
from hotstage_explorer.figures.class_times import class_times
from hotstage_explorer.pages.live import Charts, Look, Page, Panels
from hotstage_explorer.pages.shell import chart, panel, scrolled
from hotstage_explorer.questions import Question
from hotstage_explorer.where import Where

CLASSES = Question("classes")
BY = (("Modality", "fingerprint"), ("Modality and size", "size"), ("Endpoint", "endpoint"))


def _questions(where: Where) -> tuple[Question, ...]:
    return (CLASSES,)


def _main() -> list[Any]:
    return [
        panel(
            "classes-all",
            [html.H1("Request classes"), html.Span(id="classes-window", className="tally")],
            [
                html.Div(id="classes-by", className="filters"),
                chart("classes-chart", "Latency of request classes; the table below has its figures"),
                scrolled("classes-table", "Request classes", "wide-scroll"),
                html.Div(id="classes-basis", className="basis"),
            ],
        )
    ]


def _content(look: Look) -> tuple[Panels, Charts]:
    answer = look.answer(CLASSES)
    found: Classes | None = answer.value
    if found is None:
        return {"table": [unread(answer)], "by": [], "window": [], "basis": []}, {"chart": None}
    found = found.of_host(look.where.choice("host"))
    by = look.where.choice("by", tuple(value for _, value in BY), "fingerprint")
    rows = {"fingerprint": found.fingerprints, "size": found.classes, "endpoint": found.endpoints}[by]
    return {
        "by": [choice("By", look.where, "by", BY, by)],
        "window": [
            f"quantiles of the last {units.age(found.window_seconds)}" if found.window_seconds else ""
        ],
        "table": [class_table(rows, by)],
        "basis": [_basis(found)] if found.basis else [],
    }, {"chart": class_times(rows, by)}


def _basis(found: Classes) -> Node:
    """How the agent defines its figures, in its own words."""
    said = [
        node("div", node("dt", name.replace("_", " ")), node("dd", words), key=name)
        for name, words in found.basis
    ]
    return node("details", node("summary", "How these are defined"), node("dl", *said, cls="definitions"))


PAGE = Page("classes", "Classes", "/classes/", _main, _questions, _content)
