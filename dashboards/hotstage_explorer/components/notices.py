# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the data itself: nobody answers, it is old, a part is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hotstage_explorer import units
from hotstage_explorer.components.node import Node, node
from hotstage_explorer.picture import Picture

STALE_AFTER_SECONDS = 5.0
_PARTS = ("heat", "stages", "windows", "breakers", "coverage")

Freshness = Literal["starting", "live", "stale", "unreachable"]


@dataclass(frozen=True, slots=True)
class Notice:
    severity: Literal["info", "warning", "critical"]
    title: str
    sentences: tuple[str, ...]

    def shown(self) -> Node:
        # `…` in a sentence is a command, as in every text of this project.
        parts = " ".join(self.sentences).split("`")
        text = node("span", *(node("code", part) if n % 2 else part for n, part in enumerate(parts)))
        return node("div", node("strong", self.title), text, cls=f"notice {self.severity}", key=self.title)


def freshness(picture: Picture, now: float) -> Freshness:
    """`now` is this process's monotonic clock."""
    if picture.link != "live":
        return picture.link
    age = picture.age_seconds(now)
    return "stale" if picture.says_stale or age is None or age > STALE_AFTER_SECONDS else "live"


def notices(picture: Picture, now: float) -> list[Notice]:
    """The most serious one first; an empty list when all is live."""
    state = freshness(picture, now)
    found = []
    if state == "starting":
        found.append(Notice("info", "Connecting", (f"Asking the agent at {picture.address}.",)))
    if state == "unreachable" and picture.problem:
        said = (picture.problem.message, picture.problem.remedy, *_as_of(picture, now))
        found.append(Notice("critical", "Agent unreachable", said))
    if state == "stale":
        said = (_what_is_old(picture, now), "Values are dimmed until a new tick arrives.")
        found.append(Notice("warning", "Old data", said))
    missing = [(name, problem) for name in _PARTS if (problem := getattr(picture, name).problem)]
    if missing and state in ("live", "stale"):
        said = tuple(f"{name.capitalize()}: {problem}." for name, problem in missing)
        found.append(
            Notice("warning", "Part of this page could not be read", (*said, "Its last values are shown."))
        )
    return found


def _what_is_old(picture: Picture, now: float) -> str:
    if picture.tick_wall_ns is None:
        return "The agent answers, but gives no time with its data."
    age = units.age(picture.age_seconds(now))
    return f"The agent answers, but its last tick is from {units.clock(picture.tick_wall_ns)} UTC, {age} ago."


def _as_of(picture: Picture, now: float) -> tuple[str, ...]:
    if picture.tick_wall_ns is None:
        return ()
    age = units.age(picture.age_seconds(now))
    return (f"Below are the values of {units.clock(picture.tick_wall_ns)} UTC, {age} ago.",)
