# SPDX-License-Identifier: Apache-2.0
"""Two snapshots of one host → which requests came, went, moved on, and which stand still. Pure.

As `hotstage snapshot diff` has it: a request is told by its key, dates are compared on the clock that nobody
sets.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotstage_explorer.documents.snapshots import RequestState, Snapshot


@dataclass(frozen=True, slots=True)
class Moved:
    """What happened between the two: stages that ended, that are open now and were not, new tokens."""

    request: RequestState
    finished: tuple[str, ...]
    began: tuple[str, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Still:
    """Nothing was heard of it between the two."""

    request: RequestState
    seconds: float | None
    """From its last mark to the later snapshot."""


@dataclass(frozen=True, slots=True)
class Diff:
    """Each request of the two is in exactly one of the four."""

    seconds: float | None
    came: tuple[RequestState, ...]
    went: tuple[RequestState, ...]
    moved: tuple[Moved, ...]
    still: tuple[Still, ...]

    def having(self, words: str) -> Diff:
        """Those whose id, endpoint or instance has all the words."""
        wanted = words.lower().split()

        def has(row: RequestState) -> bool:
            return all(word in f"{row.id} {row.endpoint} {row.instance}".lower() for word in wanted)

        return Diff(
            self.seconds,
            tuple(row for row in self.came if has(row)),
            tuple(row for row in self.went if has(row)),
            tuple(each for each in self.moved if has(each.request)),
            tuple(each for each in self.still if has(each.request)),
        )


def diff(one: Snapshot, other: Snapshot) -> Diff:
    """In whichever order they are given."""
    before, after = sorted((one, other), key=lambda each: each.taken_ns or 0)
    offset_ns = (after.wall_offset_ns or 0) - (before.wall_offset_ns or 0)
    earlier = {request.key: request for request in before.requests}
    later = {request.key: request for request in after.requests}
    moved, still = [], []
    for key, now in later.items():
        if key not in earlier:
            continue
        change = _moved(earlier[key], now, offset_ns)
        if change is not None:
            moved.append(change)
        else:
            still.append(Still(now, _since(after.taken_ns, now.updated_ns)))
    return Diff(
        _since(after.taken_ns, before.taken_ns, offset_ns),
        tuple(request for key, request in later.items() if key not in earlier),
        tuple(request for key, request in earlier.items() if key not in later),
        tuple(moved),
        tuple(sorted(still, key=lambda each: -(each.seconds or 0.0))),
    )


def _moved(then: RequestState, now: RequestState, offset_ns: int) -> Moved | None:
    """None where it stands still."""
    counts = dict(then.done)
    opened = {part.stage: part.since_ns for part in then.open}
    finished = tuple(stage for stage, count in now.done if count > counts.get(stage, 0))
    began = tuple(
        part.stage
        for part in now.open
        if part.since_ns is not None and part.since_ns - offset_ns != opened.get(part.stage)
    )
    has_spoken = (now.updated_ns or 0) - offset_ns > (then.updated_ns or 0)
    has_launched = (now.launches or 0.0) > (then.launches or 0.0)
    if not (finished or began or has_spoken or has_launched):
        return None
    return Moved(now, finished, began, max(0, (now.output_tokens or 0) - (then.output_tokens or 0)))


def _since(later_ns: int | None, earlier_ns: int | None, offset_ns: int = 0) -> float | None:
    if later_ns is None or earlier_ns is None:
        return None
    return max(0.0, (later_ns - earlier_ns - offset_ns) / 1e9)
