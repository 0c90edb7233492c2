# SPDX-License-Identifier: Apache-2.0
"""Small pieces of text that every panel uses: unknown values, chips, moments, things that are not there."""

from __future__ import annotations

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node

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
