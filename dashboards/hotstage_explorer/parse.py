# SPDX-License-Identifier: Apache-2.0
"""Agent bodies → rows. Trusts nothing: wrong types become None, long lists and strings are cut. No I/O.

The only exception is BodyError, for a body that is not a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hotstage_explorer.picture import (
    BreakerRow,
    Candidate,
    Coverage,
    Evidence,
    HeatPoint,
    StageRow,
    Stages,
    WindowRow,
)

MAX_ROWS = 20_000
MAX_TEXT = 160
MAX_INTEGER = 1 << 63
MAX_SIZE, MIN_SIZE = 1e100, 1e-100
"""No quantity is farther from zero, or nearer to it: arithmetic with such a one leaves the finite numbers."""
# The pinned stages in the order in which a request goes through them; a test compares them with the agent's.
PIPELINE = (
    *(
        "gateway",
        "media_fetch",
        "media_decode",
        "preprocess",
        "tokenize",
        "queue",
        "model_load",
        "lora_apply",
    ),
    *("vision_encode", "audio_encode", "video_encode", "cross_modal_align", "llm_prefill", "llm_decode"),
    *("kv_transfer", "sample", "detokenize", "other"),
)
_PIPELINE = {stage: n for n, stage in enumerate(PIPELINE)}
_URGENCY = {"open": 0, "forced_open": 0, "half_open": 1, "closed": 3}
# Bidirectional controls can make a name read as another one.
_INVISIBLE = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


class BodyError(ValueError):
    """The body is not a JSON object."""


def body(raw: bytes) -> dict[str, Any]:
    """Bytes → JSON object; NaN and Infinity read as null."""
    try:
        value = json.loads(raw, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise BodyError("no JSON") from error
    if not isinstance(value, dict):
        raise BodyError("JSON, but no object")
    return value


def number(value: object) -> float | None:
    """A float of a size that can be, else None (booleans and numeric strings are None as well)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if result == 0 or MIN_SIZE <= abs(result) <= MAX_SIZE else None


def positive(value: object) -> float | None:
    """Such a float ≥ 0, else None: rates, loads, times and ages are never negative."""
    result = number(value)
    return result if result is not None and result >= 0 else None


def integer(value: object) -> int | None:
    """A whole number in 0..2⁶³, else None."""
    result = positive(value)
    if result is None or result >= MAX_INTEGER or result != int(result):
        return None
    return value if isinstance(value, int) else int(result)


def unix_seconds(value: object) -> float | None:
    """A time whose nanoseconds are below 2⁶³ (the year 2262), else None."""
    result = positive(value)
    return result if result is not None and result < MAX_INTEGER / 1e9 else None


def nanoseconds(seconds: object) -> int | None:
    """Unix seconds → ns, None for what is no time: the only way from one to the other."""
    known = unix_seconds(seconds)
    return None if known is None else round(known * 1e9)


def text(value: object, limit: int = MAX_TEXT) -> str:
    """A string without control characters, cut to `limit`; "" for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return ""
    clean = value[: 4 * limit].translate(_INVISIBLE).encode("utf-8", "replace").decode()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def pipeline_place(stage: str) -> int:
    """Where a stage stands in the pipeline; those that a server made up come last."""
    return _PIPELINE.get(stage, len(_PIPELINE))


def urgency(state: str) -> int:
    """Where a breaker's state stands in a list: what does not admit comes first."""
    return _URGENCY.get(state, 2)


def points(content: dict[str, Any]) -> tuple[HeatPoint, ...]:
    """`/v1/heat` → points, the first of each endpoint × instance × modality."""
    seen: dict[tuple[str, str, str], HeatPoint] = {}
    for row in rows_of(content, "points"):
        point = HeatPoint(
            endpoint=text(row.get("endpoint")) or "(unnamed)",
            instance=text(row.get("instance")) or "(unnamed)",
            modality=text(row.get("modality"), 24) or "unknown",
            heat=positive(row.get("heat")),
            request_rate=positive(row.get("request_rate")),
            p95_seconds=positive(row.get("latency_p95_seconds")),
            requests=integer(row.get("requests")),
            load_ratio=positive(row.get("load_ratio")),
            cpu_load_ratio=positive(row.get("cpu_load_ratio")),
            memory_load_ratio=positive(row.get("memory_load_ratio")),
            deviation=number(row.get("deviation")),
        )
        seen.setdefault((point.endpoint, point.instance, point.modality), point)
    return tuple(seen.values())


def basis(content: dict[str, Any]) -> str | None:
    """How the agent defines heat and load, in its own words."""
    words = content.get("basis")
    if not isinstance(words, dict):
        return None
    said = [f"{name}: {text(words.get(name))}" for name in ("heat", "load") if text(words.get(name))]
    return "; ".join(said) or None


def stages(content: dict[str, Any]) -> Stages:
    """`/v1/stages` → rows in pipeline order, stages that a server made up at the end."""
    rows = (
        StageRow(
            stage=text(row.get("stage"), 48) or "(unnamed)",
            modality=text(row.get("modality"), 24) or "unknown",
            requests=integer(row.get("requests")),
            inflight=integer(row.get("inflight")),
            oldest_age_seconds=positive(row.get("oldest_age_seconds")),
            rate=positive(row.get("rate")),
            p50_seconds=positive(row.get("p50_seconds")),
            p95_seconds=positive(row.get("p95_seconds")),
            p99_seconds=positive(row.get("p99_seconds")),
        )
        for row in rows_of(content, "stages", 1000)
    )
    ordered = sorted(rows, key=lambda r: (pipeline_place(r.stage), r.stage, r.modality))
    return Stages(tuple(ordered), positive(content.get("unattributed_ratio")))


def windows(content: dict[str, Any]) -> tuple[WindowRow, ...]:
    """`/v1/windows` → open ones first, then the latest first."""
    rows = [_window(row, place) for place, row in enumerate(rows_of(content, "windows", 200))]
    return tuple(sorted(rows, key=lambda w: (not w.is_open, -(w.closed_ns or w.opened_ns or 0))))


def breakers(content: dict[str, Any]) -> tuple[BreakerRow, ...]:
    """`/v1/breakers` → those that do not admit first, then by name."""
    rows = []
    for row in rows_of(content, "breakers", 500):
        override = row.get("override")
        said = override if isinstance(override, dict) else {}
        action = text(said.get("action"), 24) or text(override, 24)
        actor, why = text(said.get("actor")), text(said.get("reason"))
        rows.append(
            BreakerRow(
                name=text(row.get("name")) or "(unnamed)",
                state=text(row.get("state"), 24) or "unknown",
                is_enforced=row.get("enforced") is True,
                since_ns=integer(said.get("since_ns")) or integer(row.get("since_ns")),
                reason=text(row.get("reason")),
                override=action or None,
                is_stale=row.get("stale") is True,
                override_says=f"by {actor}: {why or 'no reason given'}" if actor else "",
                override_until_ns=integer(said.get("until_ns")),
            )
        )
    return tuple(sorted(rows, key=lambda b: (urgency(b.state), b.name)))


def coverage(content: dict[str, Any]) -> Coverage:
    """`/v1/coverage` → the figures of the header."""
    calls = content.get("calls") if isinstance(content.get("calls"), dict) else {}
    missed, processes = content.get("missed"), content.get("processes")
    return Coverage(
        loader=text(content.get("loader"), 16) or None,
        rung=text(content.get("rung"), 16) or None,
        attached=integer(content.get("attached")),
        missed=len(missed) if isinstance(missed, list) else None,
        processes=len(processes) if isinstance(processes, list) else None,
        counted=integer(calls.get("counted")) if calls else None,
        open=integer(calls.get("open")) if calls else None,
        lost=integer(calls.get("lost")) if calls else None,
    )


def rows_of(content: dict[str, Any], name: str, limit: int = MAX_ROWS) -> Iterator[dict[str, Any]]:
    """The objects in the list `name`; nothing where there is no list, at most `limit`."""
    rows = content.get(name)
    if isinstance(rows, list):
        yield from (row for row in rows[:limit] if isinstance(row, dict))


def _window(row: dict[str, Any], place: int) -> WindowRow:
    entity, cause = row.get("entity"), row.get("cause")
    cause = cause if isinstance(cause, dict) else {}
    return WindowRow(
        id=text(row.get("id"), 64) or f"unnamed-{place}",
        kind=text(row.get("kind"), 48) or "unknown",
        severity=text(row.get("severity"), 16) or "unknown",
        is_open=row.get("state") == "open",
        opened_ns=integer(row.get("opened_at_ns")),
        closed_ns=integer(row.get("closed_at_ns")),
        entity=tuple((text(k, 24), text(v, 64)) for k, v in list(entity.items())[:8] if text(v))
        if isinstance(entity, dict)
        else (),
        cause=text(cause.get("summary"), 400),
        confidence=positive(cause.get("confidence")),
        figures_ns=integer(row.get("figures_at_ns")),
        peak_ns=integer(row.get("peak_at_ns")),
        score=positive(row.get("score")),
        caused_by=text(row.get("caused_by"), 64),
        candidates=tuple(
            Candidate(text(c.get("kind"), 48), positive(c.get("confidence")), text(c.get("why"), 240))
            for c in rows_of(cause, "candidates", 5)
        ),
        evidence=tuple(
            Evidence(
                text(e.get("column"), 64),
                number(e.get("value")),
                number(e.get("limit")),
                text(e.get("unit"), 24),
                text(e.get("note"), 160),
            )
            for e in rows_of(row, "evidence", 8)
        ),
    )
