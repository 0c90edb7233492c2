# SPDX-License-Identifier: Apache-2.0
"""Small pieces of text that every panel uses: unknown values, chips, moments, things that are not there."""

from __future__ import annotations

from collections.abc import Iterable

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.where import Where

TOO_FEW = "n < 20"


def unknown(reason: str, short: str = "") -> Node:
    """A dash with its reason: `short` beside it, the whole sentence on hover and for screen readers."""
    return node(
        "span",
        node("span", units.DASH, aria_hidden="true"),
        node("span", short, cls="why", aria_hidden="true") if short else None,
        node("span", f"unknown: {reason}", cls="sr-only"),
        cls="unknown",
        title=reason,
    )


def known(text: str, reason: str) -> Child:
    """`text`, or the dash with its reason when the value behind it is missing."""
    return unknown(reason) if text == units.DASH else text


def quantile(seconds: float | None, requests: int | None = None) -> Child:
    """A latency, or why there is none."""
    if seconds is not None:
        return units.duration(seconds)
    if requests == 0:
        return unknown("no request has ended yet")
    return unknown("fewer than 20 requests in the last 60 s", TOO_FEW)


def chip(label: str, kind: str = "", title: str | None = None) -> Node:
    return node("span", label, cls=f"chip {kind}".strip(), title=title)


def barred(fill_percent: float, figure: str) -> Node:
    """A figure with its bar; bars of a column stand below each other whatever the units are."""
    bar = node("span", cls="bar", aria_hidden="true", fill=f"{fill_percent:.0f}")
    return node("span", bar, node("span", figure, cls="amount"), cls="load")


def prose(text: str) -> list[Child]:
    """Sentences; `…` in one is a command, as in every text of this project."""
    return [node("code", part) if n % 2 else part for n, part in enumerate(text.split("`"))]


def noted(rows: object, said: str | None) -> Node | None:
    """What the numbers of a panel with `rows` are not, to stand under them."""
    return node("p", *prose(said), cls="note soft") if rows and said else None


def moment(wall_ns: int | None) -> Node:
    """A wall-clock time; the page says once that all times are UTC."""
    stamp = units.stamp(wall_ns)
    return node("time", units.clock(wall_ns), datetime=stamp or None, title=stamp or None)


def nothing(title: str, *sentences: str) -> Node:
    """An empty state that says so, and what would fill it."""
    return node(
        "div", node("p", title, cls="nothing-title"), *(node("p", s) for s in sentences), cls="nothing"
    )


def link(
    label: Child,
    to: Where,
    *,
    is_current: bool = False,
    cls: str = "",
    key: str | None = None,
    title: str | None = None,
) -> Node:
    """To another state of the same page, without loading it anew (assets/live.js)."""
    return node(
        "a",
        label,
        cls=cls,
        href=to.href(),
        data_go="",
        aria_current="true" if is_current else None,
        key=key,
        title=title,
    )


def choice(label: str, where: Where, name: str, options: Iterable[tuple[str, str]], chosen: str) -> Node:
    """One of `options`, (label, value), as a row of links."""
    links = [
        link(text, where.choosing(**{name: value}), is_current=value == chosen, key=value)
        for text, value in options
    ]
    return node(
        "div",
        node("span", label, cls="soft", aria_hidden="true"),
        node("div", *links, cls="choice", role="group", aria_label=label),
        cls="choice-box",
    )


def fact(term: str, *value: Child, title: str | None = None) -> Node:
    """One figure of a description list."""
    return node("div", node("dt", term), node("dd", *value), cls="fact", title=title)


def pager(where: Where, page: int, rows: int, rows_a_page: int) -> list[Node]:
    """Where the shown page stands in a list, and links to the ones beside it; nothing where all is shown."""
    if rows <= rows_a_page:
        return [node("span", f"{rows:,}", cls="tally")]
    first = page * rows_a_page
    last = min(rows, first + rows_a_page)
    before = link("Previous", where.choosing(page=str(page - 1) if page > 1 else ""), cls="button small")
    after = link("Next", where.choosing(page=str(page + 1)), cls="button small")
    return [
        before if page > 0 else node("span", "Previous", cls="button small off", aria_hidden="true"),
        node("span", f"{first + 1:,}–{last:,} of {rows:,}", cls="tally"),
        after if last < rows else node("span", "Next", cls="button small off", aria_hidden="true"),
    ]


def heads(columns: Iterable[tuple[str, str, str]]) -> Node:
    """The head of a table: (name, what its numbers are, class of its cells) a column."""
    cells = (
        node("th", name, node("span", unit, cls="unit"), scope="col", cls=cls) for name, unit, cls in columns
    )
    return node("thead", node("tr", *cells))
