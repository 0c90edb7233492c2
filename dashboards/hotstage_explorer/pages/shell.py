# SPDX-License-Identifier: Apache-2.0
"""What all pages have round their own content: header and navigation, status strip, notices. No data.

Every identity on a page begins with the page's key, as in `heat-status`.
"""

from __future__ import annotations

from typing import Any

from dash import dcc, html

PERIOD_MS = 1000

PAGES = (
    ("heat", "Heat", "/"),
    ("requests", "Requests", "/requests/"),
    ("stages", "Stages", "/stages/"),
    ("snapshots", "Snapshots", "/snapshots/"),
    ("classes", "Classes", "/classes/"),
)
"""(key, title, path) in the order of the navigation."""


def shell(key: str, stores: list[Any], main: list[Any]) -> html.Div:
    """The whole page `key`: `stores` hold what travels, `main` is its content."""
    return html.Div(
        [
            dcc.Interval(id=f"{key}-beat", interval=PERIOD_MS),
            *stores,
            html.A("Skip to content", href=f"#{key}-main", className="skip"),
            _header(key),
            html.Section(
                [
                    html.Dl(id=f"{key}-status", className="status"),
                    html.Div(id=f"{key}-hosts", className="choice-box host-box"),
                    html.Div(id=f"{key}-announcement", className="sr-only", role="status"),
                    html.Div(id=f"{key}-notices", className="notices"),
                    _server_lost(key),
                ],
                **{"aria-label": "Host, probes and freshness"},
            ),
            html.Main(main, id=f"{key}-main", className=f"grid-{key}", tabIndex=-1),
        ],
        id=f"{key}-page",
        className="page",
    )


def scrolled(identity: str, label: str, name: str) -> html.Div:
    """Content that scrolls inside its panel: reachable by keyboard, so it has a name."""
    return html.Div(id=identity, className=name, tabIndex=0, role="group", **{"aria-label": label})


def _header(key: str) -> html.Header:
    return html.Header(
        [
            html.Div(
                [
                    html.Span(className="mark", **{"aria-hidden": "true"}),
                    html.Span("hotstage", className="brand"),
                ]
            ),
            html.Nav(
                [
                    html.A(title, href=path, className="here", **{"aria-current": "page"})
                    if name == key
                    else html.A(title, href=path)
                    for name, title, path in PAGES
                ],
                **{"aria-label": "Pages"},
            ),
            html.Div(
                [
                    html.Span(id=f"{key}-paused", className="paused", role="status"),
                    html.Span("All times UTC", className="soft"),
                    html.Button(
                        "Pause",
                        id=f"{key}-pause",
                        className="button",
                        title="Stop or resume all updates of this page",
                    ),
                ],
                className="header-end",
            ),
        ],
        className="header",
    )


def _server_lost(key: str) -> html.Div:
    """Shown by assets/base.js, for nobody else could."""
    return html.Div(
        [
            html.Strong("Explorer unreachable"),
            html.Span("This page has lost its server; values stand still until it is back."),
        ],
        id=f"{key}-lost",
        className="notice critical server-lost",
        hidden=True,
    )


def panel(
    identity: str, head: list[Any], body: list[Any], *, is_hidden_when_empty: bool = False
) -> html.Section:
    """A titled box of a live page; one that may be empty is not there while its head has nothing."""
    name = "panel optional" if is_hidden_when_empty else "panel"
    return html.Section([html.Div(head, className="panel-head"), *body], id=identity, className=name)


def chart(identity: str, label: str) -> html.Div:
    """A place for a drawing, which assets/live.js fills; `label` says where its figures stand as text."""
    return html.Div(id=identity, className="chart", role="img", hidden=True, **{"aria-label": label})
