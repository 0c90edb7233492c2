# SPDX-License-Identifier: Apache-2.0
"""The bodies of `/v1/…`: frames, windows and breakers as plain values. Pure: it fetches and decides nothing.

Unknown is null. Times are RFC 3339 with an `_ns` twin in wall-clock ns, made by the clock that is handed in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hotstage.breaker.record import BreakerRecord, Override, Transition
from hotstage.clock import Clock, rfc3339
from hotstage.detect.finding import Evidence
from hotstage.frame.class_table import ClassTable
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame
from hotstage.frame.heat import BASIS
from hotstage.windows.window import AnomalyWindow

Document = dict[str, Any]

LOAD_BASIS = "mean of CPU and memory load of the instance"


def heat(
    frame: Frame | None, endpoint_modality: Mapping[str, str], heat_weight: str = "requests"
) -> Document:
    """One point per endpoint × instance: X heat, Y p95 latency, Z load; `heat_weight` as in `[frame]`."""
    basis = {"heat": BASIS[heat_weight], "load": LOAD_BASIS, "heat_weight": heat_weight}
    if frame is None:
        return {"basis": basis, "points": []}
    return {
        "basis": basis,
        "points": [_point(frame, route, endpoint_modality) for route in frame.of_kind(EntityKind.route)],
    }


def _point(frame: Frame, route: Entity, endpoint_modality: Mapping[str, str]) -> Document:
    instance = Entity(EntityKind.instance, instance=route.instance)
    endpoint = Entity(EntityKind.endpoint, endpoint=route.endpoint)
    return {
        "endpoint": route.endpoint,
        "instance": route.instance,
        "modality": endpoint_modality.get(route.endpoint or "", "unknown"),
        "heat": frame.value(route, "endpoint_heat"),
        "request_rate": frame.value(route, "request_rate"),
        "latency_p95_seconds": frame.value(route, "latency_p95_seconds"),
        "requests": _count(frame, route, "requests_ended"),
        "token_equivalent_latency_seconds": frame.value(route, "token_equivalent_latency_seconds"),
        "slo_penalty_seconds": frame.value(endpoint, "slo_penalty_seconds"),
        "load_ratio": frame.value(instance, "load_ratio"),
        "cpu_load_ratio": frame.value(instance, "cpu_load_ratio"),
        "memory_load_ratio": frame.value(instance, "memory_load_ratio"),
        "deviation": frame.value(instance, "dispatch_deviation"),
    }


def stages(frame: Frame, windows: Sequence[AnomalyWindow] = ()) -> Document:
    """Every stage × modality that a request went through, and the open `windows` that name it."""
    return {
        "unattributed_ratio": frame.value(HOST, "unattributed_ratio"),
        "stages": [_stage(frame, entity, windows) for entity in frame.of_kind(EntityKind.stage)],
    }


def _stage(frame: Frame, entity: Entity, windows: Sequence[AnomalyWindow]) -> Document:
    return {
        "stage": entity.stage,
        "modality": entity.modality,
        "requests": _count(frame, entity, "requests_ended"),
        "inflight": _count(frame, entity, "inflight"),
        "oldest_age_seconds": frame.value(entity, "oldest_age_seconds"),
        "rate": frame.value(entity, "stage_rate"),
        "p50_seconds": frame.value(entity, "latency_p50_seconds"),
        "p95_seconds": frame.value(entity, "latency_p95_seconds"),
        "p99_seconds": frame.value(entity, "latency_p99_seconds"),
        "launch_rate": frame.value(entity, "launch_rate"),
        "graph_launch_rate": frame.value(entity, "graph_launch_rate"),
        "graph_kernel_rate": frame.value(entity, "graph_kernel_rate"),
        "cpu_wait_threads": frame.value(entity, "cpu_wait_threads"),
        "cpu_preempted_threads": frame.value(entity, "cpu_preempted_threads"),
        "cpu_wait_p95_seconds": frame.value(entity, "cpu_wait_p95_seconds"),
        "call_sleep_threads": frame.value(entity, "call_sleep_threads"),
        "reclaim_threads": frame.value(entity, "reclaim_threads"),
        "page_fault_rate": frame.value(entity, "page_fault_rate"),
        "windows_open": [
            found.kind
            for found in windows
            if (found.entity.stage, found.entity.modality) == (entity.stage, entity.modality)
        ],
    }


CLASS_BASIS = {
    "fingerprint": "media that a stage or mark named or whose encoder ran; llm where none did and a stage of"
    " the language model or of the server's own ran; unknown: only `mixed`, or nothing said",
    "size": "input tokens, text and media, up to and including the edge; K = 1,024",
    "token_equivalent_ms": "sum of latency ÷ sum of weight × tokens, output included",
    "within_target_ratio": "share of the samples within the p99 that the class should have",
    "slo_baseline_seconds": "the p99 up to which there is no penalty; the target is another figure",
    "slo_penalty_ms": "weight × max(0, p99 − baseline) of the class's modality, the heaviest of several;"
    " by endpoint with the endpoint's own baseline and factor, where it has them",
}


def classes(table: ClassTable) -> Document:
    """Classes of finished requests: by fingerprint alone, by fingerprint and size, by endpoint and
    fingerprint.
    """
    return {"basis": CLASS_BASIS, **asdict(table)}


def window(found: AnomalyWindow, clock: Clock) -> Document:
    """One anomaly window with its ranked cause and evidence."""
    return {
        "id": found.id,
        "kind": found.kind,
        "severity": found.severity.name,
        "state": "open" if found.is_open else "closed",
        **moment("opened_at", found.opened_ns, clock),
        **moment("closed_at", found.closed_ns, clock),
        # The sentence and the evidence are of that moment, `score` of this one.
        **moment("figures_at", found.updated_ns, clock),
        **moment("peak_at", found.peak_ns, clock),
        "entity": found.entity.labels(),
        "cause": {
            "kind": found.cause.kind,
            "summary": found.cause.summary,
            "confidence": _number(found.cause.confidence),
            "candidates": [
                {
                    "kind": candidate.kind,
                    "confidence": _number(candidate.confidence),
                    "why": candidate.why,
                    "entity": candidate.entity.labels(),
                }
                for candidate in found.cause.candidates
            ],
        },
        "evidence": [_evidence(part, clock) for part in found.evidence],
        "score": _number(found.score),
        "findings": found.findings,
        "caused_by": found.caused_by,
        # Where, on this API, stands what was in flight when it opened, and from where it can go on.
        "snapshot": f"/v1/windows/{found.id}/snapshot",
        "recovery_plan": f"/v1/windows/{found.id}/snapshot/plan",
    }


def _evidence(part: Evidence, clock: Clock) -> Document:
    return {
        "column": part.column,
        "value": _number(part.value),
        "limit": _number(part.limit),
        "unit": part.unit,
        "since_ns": None if part.since_ns is None else clock.wall_ns_of(part.since_ns),
        "note": part.note,
    }


def breakers(records: Iterable[BreakerRecord], clock: Clock) -> Document:
    """All breakers, by name."""
    return {"breakers": [breaker(record, clock) for record in sorted(records, key=lambda r: r.name)]}


def breaker(record: BreakerRecord, clock: Clock) -> Document:
    """One breaker: the state that callers see, whether they heed it, and how its own state came about."""
    return {
        "name": record.name,
        "scope": record.scope.labels(),
        "state": record.shown.value,
        "own_state": record.state.value,
        "enforced": record.is_heeded,
        "override": None if record.override is None else _override(record.override, clock),
        **moment("since", record.since_ns, clock),
        "stale": record.tells_stale,
        "reason": record.reason,
        "window_id": record.window_id,
        "transitions": [transition(move, clock) for move in record.transitions],
    }


def _override(override: Override, clock: Clock) -> Document:
    return {
        "action": override.action.value,
        "actor": override.actor,
        "reason": override.reason,
        **moment("since", override.set_ns, clock),
        **moment("until", override.until_ns, clock),
    }


def transition(move: Transition, clock: Clock) -> Document:
    """One change of a breaker's shown state."""
    return {
        "from": move.from_state.value,
        "to": move.to_state.value,
        **moment("at", move.at_ns, clock),
        "reason": move.reason,
        "window_id": move.window_id,
        "actor": move.actor,
    }


def moment(name: str, monotonic_ns: int | None, clock: Clock) -> Document:
    """`{name: RFC 3339, name_ns: wall ns}`; both null for None."""
    if monotonic_ns is None:
        return {name: None, f"{name}_ns": None}
    wall_ns = clock.wall_ns_of(monotonic_ns)
    return {name: rfc3339(wall_ns), f"{name}_ns": wall_ns}


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _count(frame: Frame, entity: Entity, column: str) -> int:
    """A counted column as an integer; an entity that nothing was counted for has had none."""
    value = frame.value(entity, column)
    return 0 if value is None else int(value)


def frames(found: Iterable[Frame], columns: Iterable[str], clock: Clock) -> Document:
    """Frames oldest first, each entity with the wanted columns it has. KeyError: no such column."""
    wanted = tuple(columns) or tuple(column.name for column in COLUMNS)
    return {
        "columns": {name: COLUMNS[COLUMN_INDEX[name]].unit for name in wanted},
        "frames": [
            {
                **moment("at", frame.at_ns, clock),
                "stale": sorted(frame.stale),
                "entities": [
                    {"kind": entity.kind.value, **entity.labels(), "values": values}
                    for entity in frame.entities
                    if (values := _values(frame, entity, wanted))
                ],
            }
            for frame in found
        ],
    }


def _values(frame: Frame, entity: Entity, columns: Iterable[str]) -> dict[str, float]:
    present = ((name, frame.value(entity, name)) for name in columns)
    return {name: value for name, value in present if value is not None}
