# SPDX-License-Identifier: Apache-2.0
"""When processes that are watched now were not: between the epochs of one library, whose counts go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hotstage.cli.terminal import clock_time
from hotstage.clock import rfc3339

Document = Mapping[str, Any]

_SAME_NS = 2_000_000_000
"""Libraries are let go and taken up within so long of each other, and of the switch that has it done."""


@dataclass(slots=True)
class Gap:
    """CLOCK_MONOTONIC ns; `who` are processes as `pid name`."""

    since_ns: int
    until_ns: int
    who: list[str]


def gaps_of(body: Document) -> list[Gap]:
    """Of the answer of `/v1/coverage`, the newest first; what begins and ends together is one gap."""
    if body.get("wall_offset_ns") is None:
        return []
    ended: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for each in body.get("epochs", ()):
        ended.setdefault((each["pid"], each["path"]), []).append((each["since_ns"], each["until_ns"]))
    gaps: list[Gap] = []
    for process in body["processes"]:
        who = f"{process['pid']} {process['name']}"
        for lib in process["libraries"]:
            if lib.get("since_ns") is not None:
                epochs = [*sorted(ended.get((process["pid"], lib["path"]), ())), (lib["since_ns"], 0)]
                for (_, since_ns), (until_ns, _) in pairwise(epochs):
                    _add(gaps, since_ns, until_ns, who)
    return sorted(gaps, key=lambda gap: -gap.since_ns)


def told_gap(gap: Gap, wall_offset_ns: int, moves: Iterable[Document]) -> str:
    """`7 server from 02:19:54Z to 02:20:10Z (switched off by uid 0); …`; `moves` as of `/v1/probes`."""
    since_ns, until_ns = gap.since_ns + wall_offset_ns, gap.until_ns + wall_offset_ns
    off = next(
        (each for each in moves if each["state"] == "off" and abs(each["at_ns"] - since_ns) < _SAME_NS), None
    )
    why = (
        "its probes were away, or it had let the library go"
        if off is None
        else f"switched off by {off['actor']}"
    )
    who = gap.who[0] if len(gap.who) == 1 else f"{len(gap.who)} processes"
    between = f"from {clock_time(rfc3339(since_ns))} to {clock_time(rfc3339(until_ns))}"
    return f"{who} {between} ({why}); counts are of before and after, without what lies between"


def _add(gaps: list[Gap], since_ns: int, until_ns: int, who: str) -> None:
    for gap in gaps:
        if abs(gap.since_ns - since_ns) < _SAME_NS and abs(gap.until_ns - until_ns) < _SAME_NS:
            gap.since_ns, gap.until_ns = min(gap.since_ns, since_ns), max(gap.until_ns, until_ns)
            if who not in gap.who:
                gap.who.append(who)
            return
    gaps.append(Gap(since_ns, until_ns, [who]))
