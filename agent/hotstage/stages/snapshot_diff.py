# SPDX-License-Identifier: Apache-2.0
"""Two snapshots of one host → which requests came, went, moved on, and which stand still, in which call.

Pure. A request is told by its key; what happened between the two that left no trace in either is not seen.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from hotstage.clock import rfc3339
from hotstage.stages.snapshot_types import OpenStage, RequestState, Snapshot, ThreadState, Time


class Side(Struct, frozen=True):
    """One of the two snapshots."""

    name: str
    taken_at: Time
    taken_at_ns: int
    requests: int


class Step(Struct, frozen=True):
    """What happened to one stage of a request; in pipeline order."""

    stage: str
    modality: str
    change: Annotated[
        Literal["finished", "began", "began_again"],
        Meta(description="`finished`: ended at least once more; `began`: is open now and was not"),
    ]


class Passing(Struct, frozen=True):
    """A request that is in one of the two only."""

    key: str
    id: str
    endpoint: str | None
    instance: str | None
    pid: int
    started_at: Time
    stages_done: list[str]
    open: list[OpenStage]


class Moved(Struct, frozen=True):
    """A request that went on."""

    key: str
    id: str
    endpoint: str | None
    instance: str | None
    pid: int
    steps: list[Step]
    open: list[OpenStage]
    output_tokens: Annotated[int, Meta(description="more than before")]
    launches: Annotated[float | None, Meta(description="more than before; null where nobody counted")]


class Still(Struct, frozen=True):
    """A request of which nothing has been heard between the two: no mark, no launch."""

    key: str
    id: str
    endpoint: str | None
    instance: str | None
    pid: int
    stages_done: list[str]
    open: list[OpenStage]
    last_sign_at: Time
    last_sign_at_ns: int
    still_seconds: Annotated[float, Meta(description="from its last mark to the later snapshot")]
    call: Annotated[ThreadState | None, Meta(description="the thread that sits longest in a call for it")]
    call_is_of: Annotated[
        Literal["request", "stage"] | None,
        Meta(description="whether the thread names the request, or only is in its stage and process"),
    ]


class SnapshotDiff(Struct, frozen=True):
    """All requests of both snapshots, each in one of the four lists."""

    before: Side
    after: Side
    seconds: float
    came: list[Passing]
    went: list[Passing]
    moved: list[Moved]
    still: Annotated[list[Still], Meta(description="longest first")]


def diff(before: Snapshot, after: Snapshot, names: tuple[str, str] = ("before", "after")) -> SnapshotDiff:
    """`before` was taken earlier; `names` are how the two are called in the answer."""
    earlier = {request.key: request for request in before.requests}
    later = {request.key: request for request in after.requests}
    both = [(earlier[key], request) for key, request in later.items() if key in earlier]
    moved, still = [], []
    # The wall clock may have been set in between: times are compared on the clock that never is.
    offset_ns = after.wall_offset_ns - before.wall_offset_ns
    for then, now in both:
        steps = _steps(then, now, offset_ns)
        has_spoken = now.updated_at_ns - offset_ns > then.updated_at_ns
        if steps or has_spoken or _grew(then.launches, now.launches):
            moved.append(_moved(then, now, steps))
        else:
            still.append(_still(now, after.taken_at_ns))
    return SnapshotDiff(
        before=_side(before, names[0]),
        after=_side(after, names[1]),
        seconds=(after.taken_at_ns - before.taken_at_ns - offset_ns) / 1e9,
        came=[_passing(request) for key, request in later.items() if key not in earlier],
        went=[_passing(request) for key, request in earlier.items() if key not in later],
        moved=moved,
        still=sorted(still, key=lambda each: -each.still_seconds),
    )


def sits_in(request: RequestState) -> tuple[ThreadState | None, Literal["request", "stage"] | None]:
    """The thread that sits longest in a call for the request, and how that is known."""
    for threads, source in ((request.threads, "request"), (request.stage_threads, "stage")):
        inside = [thread for thread in threads if thread.call is not None]
        if inside:
            return min(inside, key=lambda each: each.since_ns), source  # type: ignore[return-value]
    return None, None


def _steps(then: RequestState, now: RequestState, offset_ns: int) -> list[Step]:
    counts = {part.stage: part.count for part in then.stages}
    opened = {part.stage: part.since_ns for part in then.open}
    steps = [
        (part.stage, Step(part.stage, part.modality, "finished"))
        for part in now.stages
        if part.count > counts.get(part.stage, 0)
    ]
    known = counts.keys() | opened.keys()
    steps += [
        (part.stage, Step(part.stage, part.modality, "began_again" if part.stage in known else "began"))
        for part in now.open
        if part.since_ns - offset_ns != opened.get(part.stage)
    ]
    order = {part.stage: place for place, part in enumerate(now.stages)}
    return [step for _, step in sorted(steps, key=lambda each: order.get(each[0], len(order)))]


def _grew(then: float | None, now: float | None) -> bool:
    return now is not None and now > (then or 0)


def _moved(then: RequestState, now: RequestState, steps: list[Step]) -> Moved:
    return Moved(
        now.key,
        now.id,
        now.endpoint,
        now.instance,
        now.pid,
        steps,
        now.open,
        max(now.output_tokens - then.output_tokens, 0),
        None if now.launches is None else max(now.launches - (then.launches or 0), 0),
    )


def _still(now: RequestState, at_ns: int) -> Still:
    thread, source = sits_in(now)
    return Still(
        now.key,
        now.id,
        now.endpoint,
        now.instance,
        now.pid,
        now.stages_done,
        now.open,
        now.updated_at,
        now.updated_at_ns,
        max(at_ns - now.updated_at_ns, 0) / 1e9,
        thread,
        source,
    )


def _passing(request: RequestState) -> Passing:
    return Passing(
        request.key,
        request.id,
        request.endpoint,
        request.instance,
        request.pid,
        request.started_at,
        request.stages_done,
        request.open,
    )


def _side(snapshot: Snapshot, name: str) -> Side:
    return Side(name, rfc3339(snapshot.taken_at_ns), snapshot.taken_at_ns, snapshot.requests_total)
