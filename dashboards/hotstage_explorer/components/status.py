# SPDX-License-Identifier: Apache-2.0
"""The strip under the header: which host, what the probes cover, how fresh it is."""

from __future__ import annotations

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.notices import Freshness
from hotstage_explorer.components.words import known, unknown
from hotstage_explorer.picture import Coverage, Picture

_NOT_SAID = "the agent has not said"


def status(picture: Picture, state: Freshness, now: float) -> list[Node]:
    """One figure each, as term and description."""
    seen = picture.coverage.value
    lost = "number bad" if seen.lost else "number"
    ratio = units.percent(picture.stages.value.unattributed_ratio)
    return [
        _figure("Host", picture.host or unknown(_NOT_SAID), kind="host", title=picture.host),
        _figure(
            "Probes",
            known(_probes(seen), _NOT_SAID),
            title="compiler of the probes, and attach rung: S, M or P",
        ),
        _figure("Attached", *_attached(seen)),
        _figure(
            "Calls counted",
            known(units.count(seen.counted), _NOT_SAID),
            kind="number",
            title=_open_calls(seen),
        ),
        _figure(
            "Lost", known(units.count(seen.lost), _NOT_SAID), kind=lost, title="events whose count was lost"
        ),
        _figure(
            "Unattributed",
            known(ratio, "no launch-class call was seen yet"),
            title="launch-class calls without a stage ÷ all launch-class calls",
        ),
        _figure("Tick", *_tick(picture, state, now), kind=f"tick {state}"),
    ]


def _figure(term: str, *value: Child, kind: str = "", title: str | None = None) -> Node:
    return node("div", node("dt", term), node("dd", *value), cls=f"figure {kind}".strip(), title=title)


def _probes(seen: Coverage) -> str:
    said = (seen.loader, f"rung {seen.rung}" if seen.rung else None)
    return " · ".join(word for word in said if word) or units.DASH


def _attached(seen: Coverage) -> list[Child]:
    if seen.attached is None:
        return [unknown(_NOT_SAID)]
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
        return [unknown("no tick was read yet")]
    words = {"live": "live", "stale": "old", "unreachable": "no answer", "starting": "starting"}[state]
    age = units.age(picture.age_seconds(now))
    return [node("span", cls="dot", aria_hidden="true"), f"{words} · {age} ago"]
