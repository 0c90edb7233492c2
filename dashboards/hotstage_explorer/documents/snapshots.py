# SPDX-License-Identifier: Apache-2.0
"""Snapshots: what was in flight at a moment, which ones are stored, and from where each can go on. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hotstage_explorer.parse import integer, pipeline_place, positive, rows_of, text

MAX_REQUESTS = 8192
MAX_THREADS = 4096
MAX_OPEN = 24
MAX_STORED = 200


@dataclass(frozen=True, slots=True)
class OpenStage:
    stage: str
    modality: str
    since_ns: int | None
    age_seconds: float | None


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread in a call or a stage; "" where it is in none."""

    pid: int | None
    tid: int | None
    stage: str
    modality: str
    call: str
    since_ns: int | None
    age_seconds: float | None
    stream: int | None
    device: int | None
    request_key: str


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request in flight. `call` is that of the thread which sits longest in one for it."""

    key: str
    id: str
    endpoint: str
    instance: str
    pid: int | None
    age_seconds: float | None
    updated_ns: int | None
    done: tuple[tuple[str, int], ...] = ()
    """(stage, how often it has ended)."""
    open: tuple[OpenStage, ...] = ()
    call: ThreadRow | None = None
    call_is_own: bool = True
    """False: the thread only is in its stage and process."""
    devices: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    output_tokens: int | None = None
    launches: float | None = None
    errors: int | None = None
    has_digest: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`requests` oldest first, `threads` longest first; the totals count those beyond the cut as well."""

    taken_ns: int | None = None
    wall_offset_ns: int | None = None
    requests: tuple[RequestState, ...] = ()
    requests_total: int | None = None
    threads: tuple[ThreadRow, ...] = ()
    threads_total: int | None = None
    unclean: int | None = None
    losses: tuple[tuple[str, int], ...] = ()
    causes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A snapshot that is kept, and because of what."""

    id: str
    taken_ns: int | None
    requests: int | None
    threads: int | None
    unclean: int | None
    bytes: int | None
    causes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RequestPlan:
    key: str
    id: str
    endpoint: str
    instance: str
    last_finished: str
    decision: str
    resume_at: str
    reuse: tuple[str, ...]
    redo: tuple[str, ...]
    output_tokens: int | None
    has_image: bool
    is_provable: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Advice: nothing acts on it. `survives`: stages whose results are declared to outlive a process."""

    resume: int | None = None
    redo: int | None = None
    survives: tuple[str, ...] = ()
    requests: tuple[RequestPlan, ...] = ()


def snapshot(content: dict[str, Any]) -> Snapshot:
    """A body of `/v1/snapshot`, or of a stored one, which has it inside."""
    inside = content.get("snapshot")
    said = inside if isinstance(inside, dict) else content
    losses = said.get("losses")
    return Snapshot(
        integer(said.get("taken_at_ns")),
        integer(said.get("wall_offset_ns")),
        tuple(_request(row) for row in rows_of(said, "requests", MAX_REQUESTS)),
        integer(said.get("requests_total")),
        tuple(_thread(row) for row in rows_of(said, "threads", MAX_THREADS)),
        integer(said.get("threads_total")),
        integer(said.get("unclean")),
        tuple((text(name, 48), integer(count) or 0) for name, count in list(losses.items())[:16])
        if isinstance(losses, dict)
        else (),
        _causes(content),
    )


def stored(content: dict[str, Any]) -> tuple[StoredRow, ...]:
    """`/v1/snapshots`, newest first."""
    rows = [
        StoredRow(
            text(row.get("id"), 64),
            integer(row.get("taken_at_ns")),
            integer(row.get("requests")),
            integer(row.get("threads")),
            integer(row.get("unclean")),
            integer(row.get("bytes")),
            _causes(row),
        )
        for row in rows_of(content, "snapshots", MAX_STORED)
    ]
    return tuple(sorted((row for row in rows if row.id), key=lambda row: -(row.taken_ns or 0)))


def plan(content: dict[str, Any]) -> Plan:
    """The recovery plan of a snapshot."""
    policy = content.get("policy")
    survives = policy.items() if isinstance(policy, dict) else ()
    names = sorted((text(name, 48) for name, does in survives if does is True), key=pipeline_place)
    return Plan(
        integer(content.get("resume")),
        integer(content.get("redo")),
        tuple(names[:64]),
        tuple(_plan(row) for row in rows_of(content, "requests", MAX_REQUESTS)),
    )


def _request(row: dict[str, Any]) -> RequestState:
    own = [_thread(each) for each in rows_of(row, "threads", 16)]
    of_stage = [_thread(each) for each in rows_of(row, "stage_threads", 16)]
    call, is_own = _longest_call(own), True
    if call is None:
        call, is_own = _longest_call(of_stage), False
    return RequestState(
        text(row.get("key"), 96),
        text(row.get("id")),
        text(row.get("endpoint"), 96),
        text(row.get("instance"), 64),
        integer(row.get("pid")),
        positive(row.get("age_seconds")),
        integer(row.get("updated_at_ns")),
        tuple(
            (text(each.get("stage"), 48), integer(each.get("count")) or 0)
            for each in rows_of(row, "stages", 64)
        ),
        tuple(_open(each) for each in rows_of(row, "open", MAX_OPEN)),
        call,
        is_own,
        tuple(_device(each) for each in rows_of(row, "devices", 8)),
        tuple(_context(each) for each in rows_of(row, "contexts", 8)),
        integer(row.get("output_tokens")),
        positive(row.get("launches")),
        integer(row.get("errors")),
        bool(text(row.get("input_digest"), 16)),
    )


def _longest_call(threads: list[ThreadRow]) -> ThreadRow | None:
    inside = [thread for thread in threads if thread.call]
    return max(inside, key=lambda each: each.age_seconds or 0.0) if inside else None


def _open(row: dict[str, Any]) -> OpenStage:
    return OpenStage(
        text(row.get("stage"), 48) or "(unnamed)",
        text(row.get("modality"), 24) or "unknown",
        integer(row.get("since_ns")),
        positive(row.get("age_seconds")),
    )


def _thread(row: dict[str, Any]) -> ThreadRow:
    return ThreadRow(
        integer(row.get("pid")),
        integer(row.get("tid")),
        text(row.get("stage"), 48),
        text(row.get("modality"), 24),
        text(row.get("call"), 64),
        integer(row.get("since_ns")),
        positive(row.get("age_seconds")),
        _handle(row.get("cuda_stream")),
        integer(row.get("device_ordinal")),
        text(row.get("request_key"), 96),
    )


def _handle(value: object) -> int | None:
    """A 64-bit handle: an address of somebody else's, not a quantity."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64
    return value if is_one else None  # type: ignore[return-value]


def _device(row: dict[str, Any]) -> str:
    """The GPU as the host knows it; its process's own number for it, by name, where that is all there is."""
    ordinal, uuid, index = integer(row.get("ordinal")), text(row.get("uuid"), 48), integer(row.get("index"))
    if uuid:
        return uuid if index is None else f"GPU {index} {uuid}"
    return "unknown" if ordinal is None else f"CUDA ordinal {ordinal}"


def _context(row: dict[str, Any]) -> str:
    handle, ordinal = _handle(row.get("context")), integer(row.get("ordinal"))
    stages = row.get("stages")
    said = [text(each, 48) for each in stages[:8]] if isinstance(stages, list) else []
    words = (
        "" if handle is None else f"{handle:#x}",
        "" if ordinal is None else f"on CUDA ordinal {ordinal}",
        f"({', '.join(said)})" if any(said) else "",
    )
    return " ".join(word for word in words if word) or "unknown"


def _causes(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    found = rows_of(row, "causes", 16)
    return tuple((text(each.get("kind"), 16), text(each.get("name"), 96)) for each in found)


def _plan(row: dict[str, Any]) -> RequestPlan:
    image = row.get("image")
    said = image if isinstance(image, dict) else {}
    return RequestPlan(
        text(row.get("key"), 96),
        text(row.get("id")),
        text(row.get("endpoint"), 96),
        text(row.get("instance"), 64),
        text(row.get("last_finished_stage"), 48),
        text(row.get("decision"), 16),
        text(row.get("resume_at"), 48),
        _names(row.get("reuse")),
        _names(row.get("redo")),
        integer(row.get("output_tokens")),
        isinstance(image, dict),
        said.get("is_provable") is True,
    )


def _names(value: object) -> tuple[str, ...]:
    return tuple(text(each, 48) for each in value[:64]) if isinstance(value, list) else ()
