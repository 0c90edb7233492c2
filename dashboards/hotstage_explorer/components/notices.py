# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the data itself: nobody answers, it is old, a part is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotstage_explorer import units
from hotstage_explorer.components.node import Node, node
from hotstage_explorer.components.words import prose
from hotstage_explorer.picture import Picture

_PARTS = ("heat", "stages", "windows", "breakers", "coverage")

Freshness = Literal["starting", "live", "stale", "unreachable"]


@dataclass(frozen=True, slots=True)
class Notice:
    severity: Literal["info", "warning", "critical"]
    title: str
    sentences: tuple[str, ...]

    def shown(self) -> Node:
        text = node("span", *prose(" ".join(self.sentences)))
        return node("div", node("strong", self.title), text, cls=f"notice {self.severity}", key=self.title)


def freshness(picture: Picture, now: float) -> Freshness:
    """`now` is this process's monotonic clock."""
    if picture.link != "live":
        return picture.link
    age = picture.age_seconds(now)
    is_silent = bool(picture.hosts) and all(host.is_old(now) for host in picture.hosts)
    is_old = picture.says_stale or is_silent or age is None or age > picture.stale_after_seconds
    return "stale" if is_old else "live"


def notices(picture: Picture, now: float) -> list[Notice]:
    """The most serious one first; an empty list when all is live."""
    state = freshness(picture, now)
    found = []
    if state == "starting":
        found.append(Notice("info", "Connecting", (f"Asking {picture.origin.name} at {picture.address}.",)))
    if state == "unreachable" and picture.problem:
        said = (picture.problem.message, picture.problem.remedy, *_as_of(picture, now))
        found.append(Notice("critical", picture.problem.title, said))
    if picture.off_since is not None and state in ("live", "stale"):
        since = f"Nothing is seen since {picture.off_since}"
        said = (f"{since}: the probes are switched off.", "`hotstage probes on` brings them back.")
        found.append(Notice("critical", "Probes are off", said))
    elif state == "stale":
        dimmed = f"Values are dimmed until a new {picture.origin.moment} arrives."
        found.append(
            Notice("warning", "Old data", (_what_is_old(picture, now), *_silent(picture, now), dimmed))
        )
    silent = _silent(picture, now) if state == "live" else []
    if silent:
        found.append(Notice("warning", "Silent hosts", (*silent, "Their points are listed, not drawn.")))
    if picture.caveats and state in ("live", "stale"):
        said = tuple(f"{caveat}." for caveat in picture.caveats)
        found.append(Notice("warning", f"{_origin(picture)} says that its data is not whole", said))
    missing = [(name, problem) for name in _PARTS if (problem := getattr(picture, name).problem)]
    if missing and state in ("live", "stale"):
        said = tuple(f"{name.capitalize()}: {problem}." for name, problem in missing)
        found.append(
            Notice("warning", "Part of this page could not be read", (*said, "Its last values are shown."))
        )
    return found


def _what_is_old(picture: Picture, now: float) -> str:
    if picture.tick_wall_ns is None:
        return f"{_origin(picture)} answers, but gives no time with its data."
    age = units.age(picture.age_seconds(now))
    moment = f"its last {picture.origin.moment} is from {units.clock(picture.tick_wall_ns)} UTC, {age} ago"
    return f"{_origin(picture)} answers, but {moment}."


def _origin(picture: Picture) -> str:
    """At the start of a sentence."""
    return picture.origin.name[:1].upper() + picture.origin.name[1:]


def _silent(picture: Picture, now: float) -> list[str]:
    """Each host without new samples, with their age and whether it can be scraped."""
    said = []
    for host in picture.hosts:
        if host.is_old(now):
            why = " and its scrape fails" if host.is_scraped is False else ""
            age = host.age_seconds(now)
            last = "it has no sample of late" if age is None else f"its last sample is {units.age(age)} old"
            said.append(f"{host.name}: {last}{why}.")
    return said


def _as_of(picture: Picture, now: float) -> tuple[str, ...]:
    if picture.tick_wall_ns is None:
        return ()
    age = units.age(picture.age_seconds(now))
    return (f"Below are the values of {units.clock(picture.tick_wall_ns)} UTC, {age} ago.",)
