# SPDX-License-Identifier: Apache-2.0
"""The page Requests: which ones were slow of late, and where the time of one of them went."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from hotstage_explorer import units
from hotstage_explorer.components import request_table, waterfall_panel
from hotstage_explorer.components.absent import needs_agent, unread
from hotstage_explorer.components.node import Node, node
from hotstage_explorer.components.words import link, pager
from hotstage_explorer.documents.requests import KEPT, RequestList
from hotstage_explorer.documents.waterfall import Waterfall
from hotstage_explorer.figures.request_times import request_times
from hotstage_explorer.figures.waterfall import waterfall
from hotstage_explorer.pages.live import Charts, Look, Page, Panels
from hotstage_explorer.pages.shell import chart, panel, scrolled
from hotstage_explorer.questions import Question
from hotstage_explorer.where import Where

LIST = Question("requests")
_ELSEWHERE = (
    f"The newest {KEPT:,} finished requests are in the list below. One in flight is among the ",
    node("a", "snapshots of now", href="/snapshots/"),
    "; its waterfall is here as soon as it ends.",
)


def _questions(where: Where) -> tuple[Question, ...]:
    return (LIST, Question("request", where.item)) if where.item else (LIST,)


def _main() -> list[Any]:
    words = dcc.Input(
        id="requests-words", type="search", placeholder="Id, endpoint, model", debounce=0.3, maxLength=80
    )
    return [
        panel(
            "requests-one",
            [
                html.Div(id="requests-title", className="title-box"),
                html.Div(id="requests-back", className="controls"),
            ],
            [
                html.Div(id="requests-facts", className="facts"),
                chart("requests-waterfall", "Waterfall of the request; the table below has its figures"),
                html.Div(id="requests-legend", className="panel-foot legend"),
                scrolled("requests-segments", "Stages and waits of the request", "wide-scroll"),
            ],
            is_hidden_when_empty=True,
        ),
        panel(
            "requests-all",
            [
                html.Div(id="requests-list-title"),
                html.Div(
                    [
                        html.Label(
                            [html.Span("Find requests", className="sr-only"), words], className="filter"
                        ),
                        html.Div(id="requests-pager", className="controls"),
                    ],
                    className="controls",
                ),
            ],
            [
                html.Div(id="requests-filters", className="filters"),
                chart(
                    "requests-times",
                    "Durations of finished requests over time; the table below has their figures",
                ),
                scrolled("requests-list", "Finished requests", "wide-scroll"),
                html.Div(id="requests-note", className="panel-foot"),
            ],
        ),
    ]


def _content(look: Look) -> tuple[Panels, Charts]:
    panels, charts = _one(look)
    # A page has one first heading: the request's where one is shown.
    panels["list-title"] = [node("h2" if look.where.item else "h1", "Finished requests", tabindex="-1")]
    if not look.has_agent:
        absent: Panels = {"list": [needs_agent("Single requests", look.picture)]}
        empty: Panels = {name: [] for name in ("filters", "pager", "note")}
        return {**panels, **empty, **absent}, {**charts, "times": None}
    answer = look.answer(LIST)
    found: RequestList = answer.value or RequestList()
    rows = request_table.matching(found, look.where, look.words)
    page, number = request_table.shown_page(rows, look.where)
    is_read = answer.read_at is not None
    table = request_table.request_table(page, found, look.where, is_read=is_read)
    return {
        **panels,
        "filters": [*request_table.filters(found, look.where)] if found.rows else [],
        "pager": [*pager(look.where, number, len(rows), request_table.ROWS_A_PAGE)],
        "list": [table],
        "note": [_note(found)],
    }, {**charts, "times": request_times(rows, look.where)}


def _note(found: RequestList) -> Node | None:
    if not found.rows:
        return None
    flight = node("a", f"{units.count(found.open)} are in flight", href="/snapshots/")
    said = f"The newest {len(found.rows):,} of {units.count(found.finished)} that have finished; "
    return node("p", said, flight, f", {units.count(found.refused)} were refused.")


def _one(look: Look) -> tuple[Panels, Charts]:
    """The request that the address names."""
    names = ("title", "back", "facts", "legend", "segments")
    if not look.where.item:
        return {name: [] for name in names}, {"waterfall": None}
    back = link("Close", look.where.at(""), cls="button small")
    answer = look.answer(Question("request", look.where.item))
    found: Waterfall | None = answer.value
    if found is None:
        title = node("h1", f"Request {look.where.item}", tabindex="-1")
        absent = (
            unread(answer, elsewhere=_ELSEWHERE)
            if look.has_agent
            else needs_agent("Waterfalls", look.picture)
        )
        return {"title": [title], "back": [back], "facts": [], "legend": [], "segments": [absent]}, {
            "waterfall": None
        }
    row = found.request
    return {
        "title": [node("h1", "Request ", node("code", row.id or f"number {row.seq}"), tabindex="-1")],
        "back": [back],
        "facts": [node("dl", *waterfall_panel.facts(found), cls="fact-list")],
        "legend": [*waterfall_panel.legend(found)],
        "segments": [waterfall_panel.segment_table(found)],
    }, {"waterfall": waterfall(found)}


PAGE = Page("requests", "Requests", "/requests/", _main, _questions, _content, has_words=True)
