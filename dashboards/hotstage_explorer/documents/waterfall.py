# SPDX-License-Identifier: Apache-2.0
"""`/v1/requests/{id}`: one finished request's stages and the waits between them, on its own clock. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hotstage_explorer.documents.requests import RequestRow, request_row
from hotstage_explorer.parse import integer, number, positive, rows_of, text

MAX_SEGMENTS = 64
PARTS = ("run_queue", "sync", "copy", "alloc", "host")
PLACEMENTS = {
    "exact": "",
    "first_begin": "ran several times, places unknown: from the first run's begin on, sum of all",
    "earliest": "ran several times, places unknown: no earlier than this, sum of all",
    "gap": "",
    "sum": "what a stage's several runs leave of it, places unknown",
}
"""How well a segment's place is known, in words; "" where it is exact."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stage, or a wait between two: `runs` is None for the latter. Seconds from the request's begin."""

    name: str
    is_wait: bool
    modality: str
    offset_seconds: float
    duration_seconds: float
    placement: str = "exact"
    critical_seconds: float | None = None
    """Of the request's duration, decided by this segment."""
    before_first_token_seconds: float | None = None
    decides_end: bool = False
    end_seconds: float | None = None
    """All of it lies before; None where only offset and duration are told."""
    last_begin_seconds: float | None = None
    """Of several runs: when the last one began."""
    runs: int | None = None
    is_open: bool = False
    tokens: int | None = None
    after: str = ""
    before: str = ""
    parts: tuple[tuple[str, float | None], ...] = ()
    """(one of PARTS, seconds): how the threads of a synchronous stage spent it; empty where nobody told."""
    contexts: tuple[tuple[int, int | None], ...] = ()
    """(CUcontext, device as its process counts)."""

    @property
    def is_critical(self) -> bool:
        return bool(self.critical_seconds)

    @property
    def is_spread(self) -> bool:
        """Only what it lies in is known, and its sum."""
        return bool(PLACEMENTS[self.placement])

    @property
    def until_seconds(self) -> float:
        """Where its bar ends."""
        return self.offset_seconds + self.duration_seconds if self.end_seconds is None else self.end_seconds

    @property
    def is_gap(self) -> bool:
        """A wait that no mark spoke of."""
        return self.is_wait and self.runs is None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """A request with its segments by their begin."""

    request: RequestRow
    segments: tuple[Segment, ...] = ()
    started_ns: int | None = None
    first_token_basis: str = ""
    itl_seconds: float | None = None
    launches: float | None = None
    errors: int | None = None
    lora_rank: int | None = None
    lora_module: str = ""
    traceparent: str = ""
    input_digest: str = ""

    @property
    def length_seconds(self) -> float:
        """Of the request, or of what is known of it."""
        known = self.request.duration_seconds
        return known or max((0.0, *(part.until_seconds for part in self.segments)))


def waterfall(content: dict[str, Any]) -> Waterfall | None:
    """None where the body has no request."""
    said = content.get("request")
    request = request_row(said) if isinstance(said, dict) else None
    if request is None or not isinstance(said, dict):
        return None
    segments = [
        part for part in map(_segment, rows_of(content, "segments", MAX_SEGMENTS)) if part is not None
    ]
    segments.sort(key=lambda part: (part.offset_seconds, -part.duration_seconds))
    return Waterfall(
        request,
        tuple(segments),
        integer(said.get("started_at_ns")),
        text(said.get("ttft_basis"), 24),
        positive(said.get("itl_seconds")),
        positive(said.get("launches")),
        integer(said.get("errors")),
        integer(said.get("lora_rank")),
        text(said.get("lora_module"), 24),
        text(said.get("traceparent"), 64),
        text(said.get("input_digest"), 16),
    )


def _segment(row: dict[str, Any]) -> Segment | None:
    offset, seconds = number(row.get("offset_seconds")), positive(row.get("duration_seconds"))
    if offset is None or seconds is None:
        return None
    parts = row.get("parts")
    known = parts if isinstance(parts, dict) else {}
    placement = text(row.get("placement"), 24)
    return Segment(
        name=text(row.get("name"), 48) or "(unnamed)",
        is_wait=row.get("kind") == "wait",
        modality=text(row.get("modality"), 24),
        offset_seconds=max(0.0, offset),
        duration_seconds=seconds,
        placement=placement if placement in PLACEMENTS else "exact",
        critical_seconds=positive(row.get("critical_seconds")),
        before_first_token_seconds=positive(row.get("before_first_token_seconds")),
        decides_end=row.get("decides_end") is True,
        end_seconds=positive(row.get("until_seconds")),
        last_begin_seconds=positive(row.get("last_begin_seconds")),
        runs=integer(row.get("runs")),
        is_open=row.get("is_open") is True,
        tokens=integer(row.get("tokens")),
        after=text(row.get("after"), 48),
        before=text(row.get("before"), 48),
        parts=tuple((name, positive(known.get(f"{name}_seconds"))) for name in PARTS) if known else (),
        contexts=tuple(
            (handle, integer(each.get("ordinal")))
            for each in rows_of(row, "contexts", 8)
            if (handle := integer(each.get("context"))) is not None
        ),
    )
