# SPDX-License-Identifier: Apache-2.0
"""The words around the drawing: its shapes, what is hottest, what is not drawn and why, why it is empty."""

from __future__ import annotations

from hotstage_explorer import units
from hotstage_explorer.components.node import Node, node
from hotstage_explorer.components.words import nothing
from hotstage_explorer.figures import points
from hotstage_explorer.picture import HeatPoint, Picture


def basis(picture: Picture) -> Node:
    """What a marker is; how the agent defines heat and load is its title."""
    return node("span", "One marker per endpoint on one instance", title=picture.heat_basis)


def legend(selection: points.Selection) -> list[Node]:
    """The shapes that are drawn; the colours have their own bar."""
    drawn = {p.modality if p.modality in points.SYMBOLS else "other" for p in selection.drawn}
    shapes = {**points.SYMBOLS, "other": points.OTHER_SYMBOL}
    marks = [
        node("span", node("span", cls=f"shape {shape}", aria_hidden="true"), name)
        for name, shape in shapes.items()
        if name in drawn
    ]
    return [*marks, node("span", "larger = more requests", cls="soft")] if marks else []


def empty(picture: Picture, selection: points.Selection) -> Node | None:
    """Why nothing is drawn, None when something is."""
    if selection.drawn:
        return None
    if picture.heat.read_at is None:
        return nothing("No data yet", f"The first answer of {picture.origin.name} fills this drawing.")
    if selection.incomplete:
        seen = len(selection.incomplete)
        return nothing(
            f"{seen:,} point{'s' if seen > 1 else ''} known, none can be placed yet",
            *_missing(selection.incomplete),
        )
    return nothing("No traffic yet", "An endpoint appears here with its first marked request.")


def caption(selection: points.Selection) -> list[Node]:
    """The hottest point in a sentence, and what is left out."""
    said = []
    if selection.drawn:
        hottest = selection.drawn[0]
        figures = (
            f" on {hottest.place}: {units.significant(hottest.heat)} weighted requests/s, "
            f"P95 {units.duration(hottest.p95_seconds)}, load {units.percent(hottest.load_ratio)}"
        )
        said.append(node("p", "Hottest: ", node("code", hottest.endpoint), figures))
    if selection.incomplete and selection.drawn:
        said.append(node("p", _incomplete(selection.incomplete)))
    if selection.cooler:
        said.append(node("p", _cooler(selection.cooler)))
    return said


def _incomplete(left: tuple[HeatPoint, ...]) -> str:
    reasons = (
        (sum(p.is_old for p in left), "host silent"),
        *((count, short) for count, short, _ in _lacks(left)),
    )
    said = [(count, reason) for count, reason in reasons if count]
    why = ", ".join(reason if len(said) == 1 else f"{count:,} {reason}" for count, reason in said)
    return f"Not drawn: {len(left):,} ({why}); listed below"


def _missing(left: tuple[HeatPoint, ...]) -> list[str]:
    """A sentence for each thing that points lack, and what brings it."""
    silent = sum(p.is_old for p in left)
    said = [f"Silent: the hosts of {silent:,}. Look at their agents and scrapes."] if silent else []
    return said + [f"Missing: {what.format(count=f'{count:,}')}" for count, _, what in _lacks(left) if count]


def _lacks(left: tuple[HeatPoint, ...]) -> tuple[tuple[int, str, str], ...]:
    """(how many, in a word, in a sentence) for each coordinate; a point may lack several."""
    young = [p for p in left if not p.is_old]
    return (
        (
            sum(p.load_ratio is None for p in young),
            "load unknown",
            "the instance's load of {count}. No process of the instance has been measured: it takes the "
            "process that serves the requests, on this host, seen by the agent's probes or marks.",
        ),
        (
            sum(p.p95_seconds is None for p in young),
            "P95 unknown, n < 20",
            "the P95 of {count}, which takes 20 requests within 60 s.",
        ),
        (
            sum(p.heat is None for p in young),
            "heat unknown",
            "the heat of {count}: no rate yet, or requests that do not say what heat is weighed by.",
        ),
    )


def _cooler(left: tuple[HeatPoint, ...]) -> str:
    heat = sum(p.heat or 0.0 for p in left)
    slowest = max((p.p95_seconds for p in left if p.p95_seconds is not None), default=None)
    return (
        f"Not drawn: {len(left):,} cooler ones, together {units.significant(heat)} weighted requests/s, "
        f"{sum(p.requests or 0 for p in left):,} requests, highest P95 {units.duration(slowest)}"
    )
