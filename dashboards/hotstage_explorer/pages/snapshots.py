# SPDX-License-Identifier: Apache-2.0
"""The page Snapshots: what is, or was, in flight; in which call; what changed between two; what can go on."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from hotstage_explorer.components import flight, snapshot_lists
from hotstage_explorer.components.absent import needs_agent, unread
from hotstage_explorer.components.node import Node, node
from hotstage_explorer.components.words import choice, nothing, pager
from hotstage_explorer.documents.snapshot_diff import diff
from hotstage_explorer.documents.snapshots import Plan, Snapshot
from hotstage_explorer.pages.live import Charts, Look, Page, Panels
from hotstage_explorer.pages.shell import panel, scrolled
from hotstage_explorer.questions import Answer, Question
from hotstage_explorer.where import Where

STORED = Question("snapshots")
VIEWS = (("Requests", ""), ("Threads", "threads"), ("Compare", "compare"), ("Recovery plan", "plan"))
_VIEW_NAMES = tuple(value for _, value in VIEWS)


def _shown(item: str) -> Question:
    """The snapshot with this id; of now without one."""
    return Question("snapshot") if item in ("", snapshot_lists.NOW) else Question("stored", item)


def _plan_of(item: str) -> Question:
    return Question("plan") if item in ("", snapshot_lists.NOW) else Question("stored_plan", item)


def _view(where: Where) -> str:
    return where.choice("view", _VIEW_NAMES)


def _questions(where: Where) -> tuple[Question, ...]:
    asked = [STORED, _shown(where.item)]
    if _view(where) == "plan":
        asked.append(_plan_of(where.item))
    if _view(where) == "compare" and where.choice("with"):
        asked.append(_shown(where.choice("with")))
    return tuple(dict.fromkeys(asked))


def _main() -> list[Any]:
    words = dcc.Input(
        id="snapshots-words", type="search", placeholder="Id, endpoint, call", debounce=0.3, maxLength=80
    )
    return [
        panel(
            "snapshots-stored-panel",
            [html.H2("Snapshots"), html.Span("newest first", className="tally")],
            [scrolled("snapshots-stored", "Snapshots", "scroll")],
        ),
        panel(
            "snapshots-one",
            [html.Div(id="snapshots-title", className="title-box"), html.Div(id="snapshots-views")],
            [
                html.Div(id="snapshots-facts", className="facts"),
                scrolled("snapshots-grid", "Requests in flight by stage and modality", "wide-scroll"),
            ],
        ),
        panel(
            "snapshots-rows-panel",
            [
                html.Div(id="snapshots-rows-title"),
                html.Div(
                    [
                        html.Label(
                            [html.Span("Find requests", className="sr-only"), words], className="filter"
                        ),
                        html.Div(id="snapshots-pager", className="controls"),
                    ],
                    className="controls",
                ),
            ],
            [
                html.Div(id="snapshots-note"),
                scrolled("snapshots-rows", "Details of the snapshot", "wide-scroll"),
            ],
        ),
    ]


def _content(look: Look) -> tuple[Panels, Charts]:
    if not look.has_agent:
        absent: Panels = {"grid": [needs_agent("Snapshots", look.picture)]}
        names = ("stored", "title", "views", "facts", "rows-title", "pager", "note", "rows")
        return {**absent, **{name: [] for name in names}}, {}
    where = look.where
    answer = look.answer(_shown(where.item))
    found: Snapshot | None = answer.value
    stored = look.answer(STORED).value
    panels: Panels = {
        "stored": [snapshot_lists.stored_list(stored or (), where)],
        "title": [node("h1", *_title(where, found), tabindex="-1")],
        "views": [choice("Show", where, "view", VIEWS, _view(where))],
        "facts": [node("dl", *snapshot_lists.facts(found), cls="fact-list")] if found else [],
        "grid": [flight.grid(found, where) if found else _unread(answer)],
    }
    return {**panels, **_rows(look, found)}, {}


def _title(where: Where, found: Snapshot | None) -> list[Node | str]:
    if where.item in ("", snapshot_lists.NOW):
        return ["In flight now"]
    return ["In flight at ", node("code", where.item)]


def _rows(look: Look, found: Snapshot | None) -> Panels:
    """The table that the view asks for."""
    view = _view(look.where)
    if view == "compare":
        return _comparison(look, found)
    if view == "plan":
        return _plan(look)
    page = look.where.number("page")
    if view == "threads":
        threads = flight.matching_threads(found, look.words) if found else []
        page = _bounded(page, len(threads))
        return {
            "rows-title": [node("h2", "Threads in a call or a stage")],
            "pager": [*pager(look.where, page, len(threads), flight.ROWS_A_PAGE)],
            "note": [],
            "rows": [flight.thread_table(threads, page)],
        }
    rows = flight.matching(found, look.where, look.words) if found else []
    page = _bounded(page, len(rows))
    stage = look.where.choice("stage")
    return {
        "rows-title": [node("h2", f"Requests in {stage}" if stage else "Requests in flight")],
        "pager": [*pager(look.where, page, len(rows), flight.ROWS_A_PAGE)],
        "note": [],
        "rows": [flight.request_table(rows, page)] if found and found.requests else [],
    }


def _plan(look: Look) -> Panels:
    answer = look.answer(_plan_of(look.where.item))
    found: Plan | None = answer.value
    title: Panels = {"rows-title": [node("h2", "Recovery plan")]}
    if found is None:
        return {**title, "pager": [], "note": [], "rows": [_unread(answer)]}
    page = _bounded(look.where.number("page"), len(found.requests))
    table, count = snapshot_lists.plan_table(found, look.words, page)
    return {
        **title,
        "pager": [*pager(look.where, page, count, flight.ROWS_A_PAGE)],
        "note": [snapshot_lists.plan_note(found)],
        "rows": [table],
    }


def _comparison(look: Look, found: Snapshot | None) -> Panels:
    other = look.where.choice("with")
    title: Panels = {"rows-title": [node("h2", "What changed between the two")], "pager": [], "note": []}
    if not other:
        hint = nothing("Compare with which one?", "Press “Compare” beside another snapshot of the list.")
        return {**title, "rows": [hint]}
    answer = look.answer(_shown(other))
    if found is None or answer.value is None:
        return {**title, "rows": [_unread(answer)]}
    change = diff(found, answer.value)
    apart = f"{change.seconds:.1f} s apart. " if change.seconds is not None else ""
    said = "Each request is in exactly one list; what left no trace in either is not seen."
    return {
        **title,
        "note": [node("p", f"{apart}{said}", cls="note soft")],
        "rows": [*snapshot_lists.diff_tables(change, look.words)],
    }


def _bounded(page: int, rows: int) -> int:
    return min(page, max(0, (rows - 1) // flight.ROWS_A_PAGE))


def _unread(answer: Answer) -> Node:
    return unread(answer, elsewhere=("Choose one of the list: the newest are kept, older ones are dropped.",))


PAGE = Page("snapshots", "Snapshots", "/snapshots/", _main, _questions, _content, has_words=True)
