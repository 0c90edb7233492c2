# SPDX-License-Identifier: Apache-2.0
"""Kernel rows of finished requests → their list and their waterfalls, JSON-ready. Pure.

`own_names`: (pid, stage id) → what the server calls a stage that it made up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from hotstage.stages.critical_path import OUTSIDE, WAITS, CriticalPath, critical_path
from hotstage.stages.first_token import BASES, NO_BASIS, FirstTokens, first_tokens
from hotstage.stages.labels import OwnNames, own_stage_name
from hotstage.stages.lora import lora_module_of, lora_rank_of
from hotstage.stages.segment_parts import Uuids, contexts_of, parts_of
from hotstage.stages.snapshot_columns import moments_of, texts_of
from hotstage.stages.spans import modality_of_masks
from hotstage.stages.stage import STAGE_SLOTS, Stage, modality_name
from hotstage.stages.timeline import NO_ID, Rows, Timeline, timeline_of
from hotstage.stages.timeline_places import place_of
from hotstage.stages.waterfall_types import (
    Kind,
    Outcome,
    RequestRow,
    Segment,
    Slowest,
    StageTime,
    TtftBasis,
    Waterfall,
)

_NO_UUIDS: Uuids = {}
OUTCOMES: tuple[Outcome, ...] = ("ok", "error", "cancelled", "refused")


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """All that is worked out of R requests at once."""

    line: Timeline
    path: CriticalPath
    tokens: FirstTokens

    @classmethod
    def of(cls, rows: Rows) -> RequestTimes:
        line = timeline_of(rows)
        return cls(line, critical_path(line), first_tokens(rows, line))

    def ttft_seconds(self, at: int) -> float | None:
        ttft_ns = int(self.tokens.ttft_ns[at])
        return None if ttft_ns < 0 else ttft_ns / 1e9

    def ttft_basis(self, at: int) -> TtftBasis | None:
        basis = int(self.tokens.basis[at])
        return None if basis == NO_BASIS else BASES[basis]

    def itl_seconds(self, at: int) -> float | None:
        seconds = float(self.tokens.itl_seconds[at])
        return None if math.isnan(seconds) else seconds


def request_rows(
    rows: Rows, seqs: Sequence[int], wall_offset_ns: int, names: OwnNames, times: RequestTimes | None = None
) -> list[RequestRow]:
    """(R,) rows of FINISHED_DTYPE and their numbers → the list. Strings are strangers' and are cleaned."""
    if len(rows) == 0:
        return []
    times = times or RequestTimes.of(rows)
    started, started_ns = moments_of(rows["started_ns"], wall_offset_ns)
    ended, ended_ns = moments_of(rows["ended_ns"], wall_offset_ns)
    texts = {name: texts_of(rows[name]) for name in ("id", "endpoint", "instance", "model", "traceparent")}
    modalities = modality_of_masks(rows["stage_mask"] | rows["open_mask"]).tolist()
    waits = times.path.waits_ns()
    return [
        RequestRow(
            seq=seq,
            id=texts["id"][at] or "",
            endpoint=texts["endpoint"][at] or "",
            instance=texts["instance"][at] or "",
            model=texts["model"][at] or "",
            modality=modality_name(modalities[at]),
            pid=int(rows["tgid"][at]),
            traceparent=texts["traceparent"][at],
            input_digest=f"{int(rows['input_digest'][at]):016x}" if rows["input_digest"][at] else None,
            outcome=_outcome(int(rows["outcome"][at])),
            started_at=started[at],
            started_at_ns=started_ns[at],
            ended_at=ended[at],
            ended_at_ns=ended_ns[at],
            duration_seconds=int(times.line.duration_ns[at]) / 1e9,
            ttft_seconds=times.ttft_seconds(at),
            ttft_basis=times.ttft_basis(at),
            itl_seconds=times.itl_seconds(at),
            output_tokens=int(rows["output_tokens"][at]),
            launches=float(rows["launches"][at]),
            errors=int(rows["errors"][at]),
            lora_rank=lora_rank_of(rows[at]),
            lora_module=lora_module_of(rows[at]),
            slowest=_slowest(rows[at], at, times, waits[at].tolist(), names),
            stages=_stage_times(rows[at], times.line.stage_ids[at].tolist(), names),
        )
        for at, seq in enumerate(seqs)
    ]


def waterfall(
    row: Any, seq: int, wall_offset_ns: int, names: OwnNames, uuids: Uuids = _NO_UUIDS
) -> Waterfall:
    """One row of FINISHED_DTYPE → its stages and waits by their begin."""
    rows = np.array([row], row.dtype)
    times = RequestTimes.of(rows)
    ttft_ns = times.tokens.ttft_ns
    first = critical_path(times.line, ttft_ns) if ttft_ns[0] >= 0 else None
    pid = int(row["tgid"])
    segments = [
        *(_stage(row, slot, times, first, names, uuids) for slot in _used(times.line)),
        *_gaps(times, first, pid, names),
    ]
    segments.sort(key=lambda each: (each.offset_seconds, -each.duration_seconds))
    return Waterfall(request_rows(rows, [seq], wall_offset_ns, names, times)[0], segments)


def _outcome(outcome: int) -> Outcome:
    return OUTCOMES[outcome] if outcome < len(OUTCOMES) else "unknown"


def _kind(stage_id: int) -> Kind:
    return "wait" if stage_id == Stage.queue else "stage"


def _slowest(row: Any, at: int, times: RequestTimes, waits: list[int], names: OwnNames) -> Slowest | None:
    """Waits of one kind are taken together."""
    duration = int(times.line.duration_ns[at])
    slot = int(times.path.decided_ns[at].argmax())
    most = int(times.path.decided_ns[at][slot])
    gap = max(range(1, len(WAITS)), key=lambda kind: waits[kind])
    if duration == 0 or max(most, waits[gap]) == 0:
        return None
    if waits[gap] > most:
        return Slowest(WAITS[gap], "wait", waits[gap] / 1e9, waits[gap] / duration)
    stage = int(times.line.stage_ids[at][slot])
    return Slowest(own_stage_name(names, int(row["tgid"]), stage), _kind(stage), most / 1e9, most / duration)


def _stage_times(row: Any, ids: list[int], names: OwnNames) -> list[StageTime]:
    pid, slots = int(row["tgid"]), row["stages"]
    return [
        StageTime(
            stage=own_stage_name(names, pid, ids[slot]),
            modality=modality_name(int(slots["modality"][slot])),
            seconds=int(slots["total_ns"][slot]) / 1e9,
            count=int(slots["count"][slot]),
            tokens=int(slots["tokens"][slot]),
        )
        for slot in np.flatnonzero(slots["count"]).tolist()
    ]


def _used(line: Timeline) -> list[int]:
    found: list[int] = np.flatnonzero(line.is_placed[0] | line.is_unplaced[0]).tolist()
    return found


def _stage(
    row: Any, slot: int, times: RequestTimes, first: CriticalPath | None, names: OwnNames, uuids: Uuids
) -> Segment:
    line, path, part = times.line, times.path, row["stages"][slot]
    stage_id, is_open = int(line.stage_ids[0, slot]), bool(line.is_open[0, slot])
    place = place_of(line, slot, runs=int(part["count"]))
    return Segment(
        kind=_kind(stage_id),
        name=own_stage_name(names, int(row["tgid"]), stage_id),
        modality=modality_name(int(part["modality"])),
        offset_seconds=place.offset_ns / 1e9,
        duration_seconds=place.took_ns / 1e9,
        until_seconds=place.until_ns / 1e9,
        last_begin_seconds=None if place.last_begin_ns is None else place.last_begin_ns / 1e9,
        placement=place.placement,
        critical_seconds=int(path.decided_ns[0, slot]) / 1e9,
        before_first_token_seconds=None if first is None else int(first.decided_ns[0, slot]) / 1e9,
        decides_end=int(path.last_slot[0]) == slot,
        runs=int(part["count"]),
        is_open=is_open,
        tokens=int(part["tokens"]) or None,
        after=None,
        before=None,
        parts=parts_of(part),
        contexts=contexts_of(row, stage_id, uuids),
    )


def _gaps(times: RequestTimes, first: CriticalPath | None, pid: int, names: OwnNames) -> list[Segment]:
    """The whole request's; and those before its first token that runs of a later stage take up in it, whose
    places nobody knows.
    """
    path = times.path
    shown = np.flatnonzero(path.gap_kind[0]).tolist()
    found = [_gap(times, path, gap, names, pid) for gap in shown]
    if first is None:
        return found
    early = dict(zip(first.gap_began_ns[0].tolist(), first.gap_left_ns[0].tolist(), strict=True))
    found = [
        replace(segment, before_first_token_seconds=early.get(int(path.gap_began_ns[0, gap]), 0) / 1e9)
        for segment, gap in zip(found, shown, strict=True)
    ]
    known = set(path.gap_began_ns[0, shown].tolist())
    for gap in np.flatnonzero(first.gap_kind[0]).tolist():
        if int(first.gap_began_ns[0, gap]) not in known:
            segment = _gap(times, first, gap, names, pid)
            before_first = segment.duration_seconds
            found.append(
                replace(
                    segment,
                    critical_seconds=0.0,
                    before_first_token_seconds=before_first,
                    decides_end=False,
                )
            )
    return found


def _gap(times: RequestTimes, path: CriticalPath, gap: int, names: OwnNames, pid: int) -> Segment:
    ids = times.line.stage_ids[0].tolist()
    began, ended = int(path.gap_began_ns[0, gap]), int(path.gap_ended_ns[0, gap])
    left, before = int(path.gap_left_ns[0, gap]), int(path.gap_before[0, gap])

    def name_of(slot: int) -> str | None:
        return None if slot == OUTSIDE or ids[slot] == NO_ID else own_stage_name(names, pid, ids[slot])

    return Segment(
        kind="wait",
        name=WAITS[path.gap_kind[0, gap]],
        modality=None,
        offset_seconds=began / 1e9,
        duration_seconds=left / 1e9,
        until_seconds=ended / 1e9,
        last_begin_seconds=None,
        placement="sum" if path.gap_hides[0, gap] else "gap",
        critical_seconds=left / 1e9,
        before_first_token_seconds=None,
        decides_end=before == OUTSIDE and ended == int(times.line.duration_ns[0]),
        runs=None,
        is_open=False,
        tokens=None,
        after=name_of(int(path.gap_after[0, gap])),
        before=name_of(before),
        parts=None,
        contexts=None,
    )


assert OUTSIDE == STAGE_SLOTS
