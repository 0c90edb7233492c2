# SPDX-License-Identifier: Apache-2.0
"""The page Stages: which stage of which modality makes the first token late, and where requests are now."""

from __future__ import annotations

from typing import Any

from dash import html

from hotstage_explorer import units
from hotstage_explorer.components import latency_tables, stage_table
from hotstage_explorer.components.absent import needs_agent, unread
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import fact, known, unknown
from hotstage_explorer.documents.latency import Components, Latency
from hotstage_explorer.figures.first_token import first_token
from hotstage_explorer.pages.live import Charts, Look, Page, Panels
from hotstage_explorer.pages.shell import chart, panel, scrolled
from hotstage_explorer.picture import StageRow
from hotstage_explorer.questions import Question
from hotstage_explorer.where import Where

LATENCY = Question("latency")
COMPONENTS = Question("components")


def _questions(where: Where) -> tuple[Question, ...]:
    return (LATENCY, COMPONENTS)


def _main() -> list[Any]:
    return [
        panel(
            "stages-first",
            [html.H1("What makes the first token late"), html.Span(id="stages-window", className="tally")],
            [
                html.Div(id="stages-facts", className="facts"),
                chart(
                    "stages-tokens-chart", "Time to first token by stage; the tables below have its figures"
                ),
                scrolled("stages-tokens", "First tokens by modality", "wide-scroll"),
                scrolled("stages-parts", "First tokens by stage and wait", "wide-scroll ruled"),
            ],
        ),
        panel(
            "stages-now",
            [html.H2("Stages now"), html.Span("in pipeline order", className="tally")],
            [scrolled("stages-table", "Stages now", "wide-scroll")],
        ),
        panel(
            "stages-components-panel",
            [html.H2("Time of a request by component"), html.Span(id="stages-of", className="tally")],
            [scrolled("stages-components", "Time of a request by component", "wide-scroll")],
        ),
    ]


def _content(look: Look) -> tuple[Panels, Charts]:
    picture = look.picture
    panels: Panels = {
        "facts": [node("dl", *_facts(look), cls="fact-list")],
        "table": [stage_table.stage_table(picture.stages, picture.windows.value, picture.origin)],
    }
    tokens: Latency | None = look.answer(LATENCY).value
    tokens = tokens.of_host(look.where.choice("host")) if tokens else None
    parts: Components | None = look.answer(COMPONENTS).value
    return {
        **panels,
        "window": [_over(tokens.window_seconds if tokens else None)],
        "of": [_over(parts.window_seconds if parts else None)],
        "tokens": [_unread(look, LATENCY) if tokens is None else latency_tables.tokens_table(tokens)],
        "parts": [latency_tables.parts_table(tokens) if tokens else None],
        "components": [_components(look, parts)],
    }, {"tokens-chart": first_token(tokens.rows) if tokens else None}


def _over(seconds: float | None) -> str:
    return f"requests that ended in the last {units.age(seconds)}" if seconds else ""


def _components(look: Look, found: Components | None) -> Node:
    if not look.has_agent:
        return needs_agent("Components", look.picture)
    return _unread(look, COMPONENTS) if found is None else latency_tables.component_table(found, look.where)


def _unread(look: Look, question: Question) -> Node:
    return unread(look.answer(question))


def _facts(look: Look) -> list[Node]:
    """The host's stages in four figures; what is unattributed may hide in any other."""
    stages = look.picture.stages.value
    not_said = look.picture.origin.not_said
    flight = [row.inflight for row in stages.rows if row.inflight is not None]
    worst = max(stages.rows, key=lambda row: row.p95_seconds or 0.0, default=None)
    oldest = max(stages.rows, key=lambda row: row.oldest_age_seconds or 0.0, default=None)
    return [
        fact("In a stage now", known(units.count(sum(flight)) if flight else units.DASH, not_said)),
        fact(
            "Oldest open stage",
            *_named(oldest, oldest.oldest_age_seconds if oldest else None, "nothing is open"),
        ),
        fact(
            "Highest P95", *_named(worst, worst.p95_seconds if worst else None, "too few requests have ended")
        ),
        fact(
            "Unattributed",
            known(units.percent(stages.unattributed_ratio), "no launch-class call was seen yet"),
            title="launch-class calls without a stage ÷ all launch-class calls",
        ),
    ]


def _named(row: StageRow | None, seconds: float | None, reason: str) -> list[Child]:
    if row is None or not seconds:
        return [unknown(reason)]
    return [units.duration(seconds), node("span", f" {row.stage} of {row.modality}", cls="soft")]


PAGE = Page("stages", "Stages", "/stages/", _main, _questions, _content)
