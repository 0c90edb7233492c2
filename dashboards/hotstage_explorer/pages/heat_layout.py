# SPDX-License-Identifier: Apache-2.0
"""Where everything stands on the page Heat; `pages.heat` says what is in it. No callbacks, no data."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from hotstage_explorer.components.graph import graph
from hotstage_explorer.figures.heat_scene import scene
from hotstage_explorer.pages.shell import scrolled, shell

# (label, the eye's name in assets/heat.js); the first one is where the page starts.
CAMERAS = (("Overview", "overview"), ("Heat × P95", "top"), ("Heat × load", "front"), ("P95 × load", "side"))

# `auto` is where the page starts: fitted while all loads are low, else the whole range.
LOAD_AXES = (("Auto", "auto"), ("0–100 %", "full"), ("Fit", "fit"))


def page(shown: dict[str, Any], kept: dict[str, Any]) -> html.Div:
    """The whole page: `shown` is what it starts with, `kept` what it gives back with the next question."""
    stores = [
        dcc.Store(id="heat-shown", data=shown),
        dcc.Store(id="heat-kept", data=kept),
        *(dcc.Store(id=f"heat-{name}") for name in ("view-of-points", "sort", "host", "applied")),
    ]
    side = html.Div(
        [
            _list_panel("heat-windows", "Anomaly windows"),
            _list_panel("heat-breakers", "Circuit breakers"),
        ],
        className="side",
    )
    return shell("heat", stores, [_scene_panel(shown["drawing"]), side, _stages_panel(), _points_panel()])


def _scene_panel(drawing: dict[str, Any]) -> html.Section:
    return html.Section(
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.H1("Heat, P95 latency and load"),
                            html.P(id="heat-basis", className="soft"),
                        ]
                    ),
                    html.Div(
                        [
                            _choice("heat-view", "View", (("3D", "3d"), ("2D", "2d"))),
                            _choice("heat-p95-axis", "P95", (("Linear", "linear"), ("Log", "log"))),
                            _choice("heat-load-axis", "Load", LOAD_AXES),
                            html.Button(
                                "Refit axes",
                                id="heat-refit",
                                className="button",
                                title="By themselves axes only grow; this fits them to the values of now",
                            ),
                        ],
                        className="controls",
                    ),
                ],
                className="panel-head",
            ),
            _stage(drawing),
            html.Div(
                [
                    html.Div(id="heat-legend", className="legend"),
                    html.Div(id="heat-caption", className="caption"),
                ],
                className="panel-foot",
            ),
        ],
        className="panel scene-panel",
    )


def _stage(drawing: dict[str, Any]) -> html.Div:
    words = "Drawing of endpoint heat, P95 latency and instance load; the table Endpoints has its figures"
    return html.Div(
        [
            html.Div(
                graph("heat-graph", scene(drawing)),
                id="heat-figure",
                className="figure-box",
            ),
            html.Div(id="heat-empty", className="overlay"),
            html.Div(id="heat-badge", className="badge", hidden=True),
            html.Div(
                [
                    html.Button(label, className="button small", **{"data-camera": eye})
                    for label, eye in CAMERAS
                ],
                className="cameras",
                role="group",
                **{"aria-label": "Camera"},
            ),
        ],
        className="stage",
        role="group",
        **{"aria-label": words},
    )


def _list_panel(identity: str, title: str) -> html.Section:
    tally = html.Span(id=f"{identity}-tally", className="tally")
    return html.Section(
        [
            html.Div([html.H2(title), tally], className="panel-head"),
            scrolled(identity, title, "scroll"),
        ],
        className="panel",
    )


def _stages_panel() -> html.Section:
    head = html.Div(
        [html.H2("Stages"), html.Span("in pipeline order", className="tally")], className="panel-head"
    )
    return html.Section(
        [head, scrolled("heat-stages", "Stages", "wide-scroll")], className="panel stages-panel"
    )


def _points_panel() -> html.Section:
    words = dcc.Input(
        id="heat-filter", type="search", placeholder="Filter by name", debounce=0.3, maxLength=80
    )
    return html.Section(
        [
            html.Div(
                [
                    html.H2("Endpoints"),
                    html.Div(
                        [
                            html.Label(
                                [html.Span("Filter endpoints", className="sr-only"), words],
                                className="filter",
                            ),
                            html.Button("Previous", id="heat-points-back", className="button small"),
                            html.Span(id="heat-points-place", className="tally"),
                            html.Button("Next", id="heat-points-on", className="button small"),
                        ],
                        className="controls",
                    ),
                ],
                className="panel-head",
            ),
            scrolled("heat-points", "Endpoints", "wide-scroll"),
        ],
        className="panel points-panel",
    )


def _choice(identity: str, label: str, options: tuple[tuple[str, str], ...]) -> html.Div:
    """Buttons of which one is pressed; assets/base.js presses it and puts its value into the store."""
    buttons = [
        html.Button(
            name,
            id=f"{identity}-{value}",
            **{"data-choose": identity, "data-value": value, "aria-pressed": str(n == 0).lower()},
        )
        for n, (name, value) in enumerate(options)
    ]
    return html.Div(
        [
            dcc.Store(id=identity, data=options[0][1]),
            html.Span(label, className="soft", id=f"{identity}-label"),
            html.Div(buttons, className="choice", role="group", **{"aria-labelledby": f"{identity}-label"}),
        ],
        className="choice-box",
    )
