# SPDX-License-Identifier: Apache-2.0
"""Where a stage of one request lies: exactly, or between which bounds all its runs do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hotstage.stages.stage import Stage
from hotstage.stages.timeline import Timeline
from hotstage.stages.waterfall_types import Placement


@dataclass(frozen=True, slots=True)
class Place:
    """All runs of a stage lie from `offset_ns` to `until_ns` and took `took_ns` together; in ns."""

    placement: Placement
    offset_ns: int
    until_ns: int
    took_ns: int
    last_begin_ns: int | None


def place_of(line: Timeline, slot: int, *, runs: int) -> Place:
    """Of a placed or unplaced slot of a timeline of one request: within it, however wrong the clocks are.

    `runs`: how often the stage ended.
    """
    end, last_begin = int(line.duration_ns[0]), int(line.began_ns[0, slot])
    is_open, total = bool(line.is_open[0, slot]), int(line.total_ns[0, slot])
    if line.is_placed[0, slot] and not (is_open and runs):
        until = int(line.ended_ns[0, slot])
        return Place("exact", last_begin, until, until - last_begin, None)
    # The last run begins at its begin and takes the sum at most; the others lie before it.
    until = end if is_open else min(end, last_begin + total)
    took = min(total + end - last_begin, end) if is_open else min(total, until)
    first = int(line.first_ns[0, slot])
    is_known = 0 <= first <= min(last_begin, until - took)
    earliest = first if is_known else min(_earliest(line, slot), last_begin, until - took)
    return Place("first_begin" if is_known else "earliest", earliest, until, took, last_begin)


def _earliest(line: Timeline, slot: int) -> int:
    """No token is decoded before its prompt is prefilled, and none is sampled before that begins."""
    if slot not in (Stage.llm_decode, Stage.sample, Stage.detokenize):
        return 0
    prefill = Stage.llm_prefill
    if not line.is_placed[0, prefill]:
        return max(0, int(line.first_ns[0, prefill])) if line.is_unplaced[0, prefill] else 0
    if line.is_open[0, prefill] or slot != Stage.llm_decode:
        return int(line.began_ns[0, prefill])
    return int(line.ended_ns[0, prefill])
