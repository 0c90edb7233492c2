# SPDX-License-Identifier: Apache-2.0
"""The strip under the header: which host, what the probes cover, how fresh it is."""

from __future__ import annotations

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.notices import Freshness
from hotstage_explorer.components.words import known, unknown
from hotstage_explorer.picture import Coverage, Picture


def status(picture: Picture, state: Freshness, now: float) -> list[Node]:
    """One figure each, as term and description."""
    seen, not_said = picture.coverage.value, picture.origin.not_said
    lost = "number bad" if seen.lost else "number"
    ratio = units.percent(picture.stages.value.unattributed_ratio)
    return [
        _figure("Source", *_source(picture), kind="source", title=picture.address),
        _figure("Host", picture.host or unknown(not_said), kind="host", title=picture.host),
        _figure(
            "Probes",
            known(_probes(seen), not_said),
            title="compiler of the probes, and attach rung: S, M or P",
        ),
        _figure("Attached", *_attached(seen, not_said)),
        _figure(
            "Calls counted",
            known(units.count(seen.counted), not_said),
            kind="number",
            title=_open_calls(seen),
        ),
        _figure(
            "Lost", known(units.count(seen.lost), not_said), kind=lost, title="events whose count was lost"
        ),
        _figure(
            "Unattributed",
            known(ratio, _no_ratio(picture)),
            title="launch-class calls without a stage ÷ all launch-class calls",
        ),
        _figure(picture.origin.moment.capitalize(), *_tick(picture, state, now), kind=f"tick {state}"),
    ]


def _figure(term: str, *value: Child, kind: str = "", title: str | None = None) -> Node:
    return node("div", node("dt", term), node("dd", *value), cls=f"figure {kind}".strip(), title=title)


def _probes(seen: Coverage) -> str:
    said = (seen.loader, f"rung {seen.rung}" if seen.rung else None)
    return " · ".join(word for word in said if word) or units.DASH


def _source(picture: Picture) -> list[Child]:
    return [picture.origin.name, node("span", f" {picture.address.partition('//')[2]}", cls="soft")]


def _no_ratio(picture: Picture) -> str:
    if len(picture.hosts) > 1:
        return "each host has its own: choose one"
    return "no launch-class call was seen yet"


def _attached(seen: Coverage, not_said: str) -> list[Child]:
    if seen.attached is None:
        return [unknown(not_said)]
    several = "" if seen.processes == 1 else "es"
    return [
        f"{units.count(seen.attached)} symbols",
        node("span", f" in {units.count(seen.processes)} process{several}", cls="soft")
        if seen.processes is not None
        else None,
        node("span", f" · {units.count(seen.missed)} missed", cls="soft") if seen.missed else None,
    ]


def _open_calls(seen: Coverage) -> str | None:
    return None if seen.open is None else f"{units.count(seen.open)} of them have not returned yet"


def _tick(picture: Picture, state: Freshness, now: float) -> list[Child]:
    if picture.tick is None:
        return [unknown(f"no {picture.origin.moment} was read yet")]
    words = {"live": "live", "stale": "old", "unreachable": "no answer", "starting": "starting"}[state]
    age = units.age(picture.age_seconds(now))
    return [node("span", cls="dot", aria_hidden="true"), f"{words} · {age} ago"]
