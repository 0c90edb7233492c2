# SPDX-License-Identifier: Apache-2.0
"""What the pages beside Heat have in common: the address says where somebody is, panels come each second.

A page is plain data and two pure functions; here it is wired to the feed, the desk and the browser
(assets/live.js). Nothing is computed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html
from dash.exceptions import PreventUpdate

from hotstage_explorer import units
from hotstage_explorer.components import hosts, notices, status
from hotstage_explorer.components.node import Node, as_json
from hotstage_explorer.desk import Desk
from hotstage_explorer.feed import Feed
from hotstage_explorer.pages.shell import shell
from hotstage_explorer.picture import AGENT, Picture
from hotstage_explorer.questions import UNREAD, Answer, Question
from hotstage_explorer.where import Where, where

Panels = dict[str, list[Node | str | None]]
Charts = dict[str, dict[str, Any] | None]
"""Plotly figures by the identity of their place; None empties it."""


@dataclass(frozen=True, slots=True)
class Look:
    """All that a page is made from; `now` is this process's monotonic clock in seconds."""

    picture: Picture
    now: float
    where: Where
    answers: Mapping[Question, Answer]
    words: str = ""

    def answer(self, question: Question) -> Answer:
        return self.answers.get(question, UNREAD)

    @property
    def has_agent(self) -> bool:
        """Whether an agent is asked, which alone knows single requests."""
        return self.picture.origin == AGENT


@dataclass(frozen=True, slots=True)
class Page:
    """A page beside Heat; its own identities begin with `key`."""

    key: str
    title: str
    path: str
    main: Callable[[], list[Any]]
    questions: Callable[[Where], tuple[Question, ...]]
    content: Callable[[Look], tuple[Panels, Charts]]
    has_words: bool = False
    """Whether it has a field for words, `KEY-words`."""


def shown(page: Page, look: Look, version: str) -> dict[str, Any]:
    """All that one look puts on the page."""
    chosen = hosts.chosen_of(look.where.choice("host"), look.picture)
    choice = hosts.hosts(look.picture, chosen, look.now, look.where)
    state = notices.freshness(look.picture, look.now)
    picture = look.picture.seen_at(look.now).of_host(chosen)
    seen = Look(picture, look.now, look.where, look.answers, look.words)
    panels, charts = page.content(seen)
    found = [*notices.notices(picture, look.now), *_unanswered(seen, state)]
    common: Panels = {
        "status": [*status.status(picture, state, look.now)],
        "hosts": [*choice],
        "notices": [notice.shown() for notice in found],
        # Titles alone: an age that changes every second would be read out every second.
        "announcement": ["; ".join(notice.title for notice in found)],
    }
    return {
        "version": version,
        "title": page.title,
        "clock": units.clock(picture.tick_wall_ns),
        "state": state,
        "open_windows": sum(w.is_open for w in picture.windows.value),
        "panels": {
            f"{page.key}-{name}": as_json([node for node in nodes if node is not None])
            for name, nodes in {**common, **panels}.items()
        },
        "charts": {f"{page.key}-{name}": figure for name, figure in charts.items()},
    }


def layout(page: Page) -> html.Div:
    """The page without data: only the browser knows the address that says which."""
    stores = [dcc.Store(id=f"{page.key}-{name}") for name in ("where", "shown", "kept", "applied")]
    return shell(page.key, stores, page.main())


def register(app: Dash, feed: Feed, desk: Desk, page: Page) -> None:
    """Wire the page."""

    def tick(_beat: int, address: Any, *rest: Any) -> tuple[Any, Any]:
        words, kept = (rest[0], rest[1]) if page.has_words else ("", rest[0])
        if not isinstance(address, str):
            raise PreventUpdate
        at = where(page.path, address)
        answers = desk.ask_all(page.questions(at))
        picture = feed.latest()
        version = ".".join(map(str, (picture.version, *(count for _, count in answers.values()))))
        if ctx.triggered_id == f"{page.key}-beat" and kept == version:
            raise PreventUpdate
        said = words[:80] if isinstance(words, str) else ""
        look = Look(picture, time.monotonic(), at, {q: a for q, (a, _) in answers.items()}, said)
        return shown(page, look, version), version

    key = page.key
    app.callback(
        Output(f"{key}-shown", "data"),
        Output(f"{key}-kept", "data"),
        Input(f"{key}-beat", "n_intervals"),
        Input(f"{key}-where", "data"),
        *([Input(f"{key}-words", "value")] if page.has_words else []),
        State(f"{key}-kept", "data"),
        prevent_initial_call=True,
    )(tick)
    app.clientside_callback(
        ClientsideFunction("hotstage", "start"), Output(f"{key}-where", "data"), Input(f"{key}-page", "id")
    )
    app.clientside_callback(
        ClientsideFunction("hotstage", "show_live"),
        Output(f"{key}-applied", "data"),
        Input(f"{key}-shown", "data"),
    )
    app.clientside_callback(
        ClientsideFunction("hotstage", "pause"),
        Output(f"{key}-beat", "disabled"),
        Output(f"{key}-pause", "children"),
        Output(f"{key}-paused", "children"),
        Input(f"{key}-pause", "n_clicks"),
        State(f"{key}-beat", "disabled"),
        prevent_initial_call=True,
    )


def _unanswered(look: Look, state: notices.Freshness) -> list[notices.Notice]:
    """Questions without an answer of now, of those that the source could answer."""
    if state not in ("live", "stale"):
        return []
    said = [
        f"{question.kind.replace('_', ' ').capitalize()}: {answer.problem}."
        for question, answer in look.answers.items()
        # Its own panel says why an item, or what no series say, is not there.
        if answer.problem and (answer.value is not None or (look.has_agent and not question.item))
    ]
    if not said:
        return []
    return [notices.Notice("warning", "Part of this page could not be read", tuple(said))]
