# SPDX-License-Identifier: Apache-2.0
"""The page Heat: which endpoint on which instance is hot, slow and loaded, and what hotstage makes of it.

One answer a second carries everything. The browser's half (assets/heat.js) puts it on the page, so that
an update never touches the camera. Nothing is computed here.
"""

from __future__ import annotations

import time
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html
from dash.exceptions import PreventUpdate

from hotstage_explorer import units
from hotstage_explorer.components import (
    breakers,
    hosts,
    notices,
    point_table,
    scene_notes,
    stage_table,
    status,
    windows,
)
from hotstage_explorer.components.graph import graph
from hotstage_explorer.components.node import Node, as_json
from hotstage_explorer.components.words import noted
from hotstage_explorer.feed import Feed
from hotstage_explorer.figures import points
from hotstage_explorer.figures.heat_plane import plane
from hotstage_explorer.figures.heat_scene import scene
from hotstage_explorer.figures.scale import LoadAxis, Scales, grown, load_axis_of
from hotstage_explorer.pages.heat_layout import page
from hotstage_explorer.picture import Picture

TITLE = "Heat"
_DEFAULT_VIEW = point_table.View()


def content(
    picture: Picture,
    now: float,
    *,
    view: point_table.View = _DEFAULT_VIEW,
    scales: Scales | None = None,
    is_log: bool = False,
    load_axis: LoadAxis = "auto",
    host: str = hosts.ALL,
) -> tuple[dict[str, Any], Scales]:
    """(all that one picture puts on the page, the axes' ends to grow from); `now` is monotonic seconds."""
    choice = hosts.hosts(picture, host, now)
    picture = picture.seen_at(now).of_host(host)
    state = notices.freshness(picture, now)
    selection = points.select(picture.heat.value)
    ends = grown(scales, selection.drawn)
    shown = {
        "version": picture.version,
        "title": TITLE,
        "clock": units.clock(picture.tick_wall_ns),
        "state": state,
        "open_windows": sum(w.is_open for w in picture.windows.value),
        "drawing": points.columns(selection.drawn, ends, is_log=is_log, load_axis=load_axis),
        "panels": {
            **_panels(picture, now, state, selection, view),
            "heat-hosts": as_json([*choice]),
        },
    }
    return shown, ends


def layout(feed: Feed) -> html.Div:
    """The page with the newest picture already in it."""
    shown, ends = content(feed.latest(), time.monotonic())
    return page(shown, {"version": shown["version"], "scales": ends.to_json()})


def register(app: Dash, feed: Feed) -> None:
    """Wire the page to `feed`."""
    _register_tick(app, feed)
    _register_drawing(app, feed)
    _register_point_view(app)


def _panels(
    picture: Picture,
    now: float,
    state: notices.Freshness,
    selection: points.Selection,
    view: point_table.View,
) -> dict[str, list[Any]]:
    found = notices.notices(picture, now)
    table, place = point_table.point_table(picture.heat, view)
    made: dict[str, list[Node | str | None]] = {
        "heat-notices": [notice.shown() for notice in found],
        # Titles alone: an age that changes every second would be read out every second.
        "heat-announcement": ["; ".join(notice.title for notice in found)],
        "heat-status": [*status.status(picture, state, now)],
        "heat-empty": [scene_notes.empty(picture, selection)],
        "heat-basis": [scene_notes.basis(picture)],
        "heat-legend": [*scene_notes.legend(selection)],
        "heat-caption": [*scene_notes.caption(selection)],
        "heat-windows": [
            windows.windows(picture.windows, picture.tick_wall_ns, picture.origin),
            noted(picture.windows.value, picture.origin.note("windows")),
        ],
        "heat-windows-tally": [windows.tally(picture.windows)],
        "heat-breakers": [
            breakers.breakers(picture.breakers, picture.tick_wall_ns),
            noted(picture.breakers.value, picture.origin.note("breakers")),
        ],
        "heat-breakers-tally": [breakers.tally(picture.breakers)],
        "heat-stages": [stage_table.stage_table(picture.stages, picture.windows.value, picture.origin)],
        "heat-points": [table],
        "heat-points-place": [place],
    }
    return {name: as_json([n for n in nodes if n is not None]) for name, nodes in made.items()}


def _register_tick(app: Dash, feed: Feed) -> None:
    def tick(
        _beat: int, p95: str, load: str, _refit: int, view: Any, host: Any, kept: Any
    ) -> tuple[Any, Any]:
        picture = feed.latest()
        known = kept if isinstance(kept, dict) else {}
        if ctx.triggered_id == "heat-beat" and known.get("version") == picture.version:
            raise PreventUpdate
        scales = None if ctx.triggered_id == "heat-refit" else Scales.from_json(known.get("scales"))
        shown, ends = content(
            picture,
            time.monotonic(),
            view=point_table.view_of(view),
            scales=scales,
            is_log=p95 == "log",
            load_axis=load_axis_of(load),
            host=hosts.chosen_of(host, picture),
        )
        return shown, {"version": picture.version, "scales": ends.to_json()}

    app.callback(
        Output("heat-shown", "data"),
        Output("heat-kept", "data"),
        Input("heat-beat", "n_intervals"),
        Input("heat-p95-axis", "data"),
        Input("heat-load-axis", "data"),
        Input("heat-refit", "n_clicks"),
        Input("heat-view-of-points", "data"),
        Input("heat-host", "data"),
        State("heat-kept", "data"),
        prevent_initial_call=True,
    )(tick)
    app.clientside_callback(
        ClientsideFunction("hotstage", "show"), Output("heat-applied", "data"), Input("heat-shown", "data")
    )
    app.clientside_callback(
        ClientsideFunction("hotstage", "pause"),
        Output("heat-beat", "disabled"),
        Output("heat-pause", "children"),
        Output("heat-paused", "children"),
        Input("heat-pause", "n_clicks"),
        State("heat-beat", "disabled"),
        prevent_initial_call=True,
    )


def _register_drawing(app: Dash, feed: Feed) -> None:
    def draw(view: str, p95: str, load: str, host: Any, kept: Any) -> dcc.Graph:
        picture = feed.latest()
        seen = picture.seen_at(time.monotonic()).of_host(hosts.chosen_of(host, picture))
        selection = points.select(seen.heat.value)
        scales = Scales.from_json(kept.get("scales")) if isinstance(kept, dict) else None
        ends = grown(scales, selection.drawn)
        columns = points.columns(selection.drawn, ends, is_log=p95 == "log", load_axis=load_axis_of(load))
        return graph("heat-graph", scene(columns) if view == "3d" else plane(columns))

    app.callback(
        Output("heat-figure", "children"),
        Input("heat-view", "data"),
        State("heat-p95-axis", "data"),
        State("heat-load-axis", "data"),
        State("heat-host", "data"),
        State("heat-kept", "data"),
        prevent_initial_call=True,
    )(draw)
    app.clientside_callback(
        ClientsideFunction("hotstage", "fall_back"),
        Output("heat-view", "data"),
        Input("heat-page", "id"),
    )


def _register_point_view(app: Dash) -> None:
    def rearrange(sort: Any, words: str | None, _back: int, _on: int, kept: Any) -> dict[str, Any]:
        view = point_table.view_of(kept)
        if ctx.triggered_id == "heat-sort":
            column = sort.get("column") if isinstance(sort, dict) else None
            return point_table.sorted_by(view, str(column)).to_json()
        if ctx.triggered_id == "heat-filter":
            return point_table.filtered(view, words or "").to_json()
        return point_table.turned(view, 1 if ctx.triggered_id == "heat-points-on" else -1).to_json()

    app.callback(
        Output("heat-view-of-points", "data"),
        Input("heat-sort", "data"),
        Input("heat-filter", "value"),
        Input("heat-points-back", "n_clicks"),
        Input("heat-points-on", "n_clicks"),
        State("heat-view-of-points", "data"),
        prevent_initial_call=True,
    )(rearrange)
