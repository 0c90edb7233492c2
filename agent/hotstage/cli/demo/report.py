# SPDX-License-Identifier: Apache-2.0
"""The demo's report: what the agent measured beside what the simulated host knows. Documents in and out.

Quantiles are nearest rank over per-request records of both sides, null below n = 20. A fault is detected by a
window of its kind that opened while it was active.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hotstage.api.probes import MOVES_TOLD
from hotstage.clock import rfc3339

Document = Mapping[str, Any]

QUANTILE_MIN_SAMPLES = 20
DETECTION_GRACE_SECONDS = 5.0
"""A window that opens this soon after the fault's end still counts: its evidence is from before."""

_SEVERITIES = ("info", "warning", "critical")


def nearest_rank(sorted_values: Sequence[float], quantile: float) -> float | None:
    """The smallest value with at least `quantile` of all at or below it; None below n = 20."""
    if len(sorted_values) < QUANTILE_MIN_SAMPLES:
        return None
    return sorted_values[max(0, math.ceil(quantile * len(sorted_values)) - 1)]


def calls(coverage: Document, truth: Document) -> dict[str, Any]:
    """Made against counted in the simulated processes, over the calls that have a probe."""
    known = coverage["calls"]["by_call"]
    counted: Counter[str] = Counter()
    still_open = 0
    for pid in truth["calls_by_pid"]:
        for name, count in coverage["calls"]["by_pid"].get(str(pid), {}).items():
            counted[name] += count["counted"]
            still_open += count["open"]
    made = {name: count for name, count in truth["calls"].items() if count}
    names = sorted(name for name in made if name in known)
    return {
        "made": sum(made[name] for name in names),
        "counted": sum(counted.values()),
        "open": still_open,
        "lost": coverage["calls"]["lost"],
        "by_call": {name: {"made": made[name], "counted": counted[name]} for name in names},
        "unprobed": {name: made[name] for name in sorted(made) if name not in known},
    }


def unobserved(
    moves: Sequence[Document] | None, start_wall_ns: int, end_wall_ns: int
) -> dict[str, Any] | None:
    """How long the probes were switched off meanwhile, by the switch's moves (newest first).

    None: they could not be asked for. `is_complete` False: moves before the ones told may be missing.
    Attaching again takes a moment more, which is not in `seconds`.
    """
    if moves is None:
        return None
    off_ns, times, until_ns = 0, 0, end_wall_ns
    for move in moves:
        length_ns = min(until_ns, end_wall_ns) - max(move["at_ns"], start_wall_ns)
        if move["state"] == "off" and length_ns > 0:
            off_ns, times = off_ns + length_ns, times + 1
        until_ns = move["at_ns"]
    return {"seconds": off_ns / 1e9, "times": times, "is_complete": len(moves) < MOVES_TOLD}


def kernels(coverage: Document, truth: Document) -> dict[str, int | None]:
    """Kernels that ran beside those that the agent tells; None where it also watched other processes, whose
    kernels are in its sum.
    """
    is_alone = set(coverage["calls"]["by_pid"]) <= set(truth["calls_by_pid"])
    return {"run": truth["kernels"], "told": coverage["calls"]["launched"]["kernels"] if is_alone else None}


def requests(records: Iterable[Document], truth: Document) -> dict[str, Any]:
    """What the agent saw of the requests, beside the truth's own numbers."""
    outcomes = Counter(record.get("outcome", "open") for record in records)
    return {
        "started": outcomes.total(),
        "finished": outcomes.total() - outcomes["open"] - outcomes["refused"],
        "open": outcomes["open"],
        "refused": outcomes["refused"],
        "truth": truth,
    }


def stages(measured: Iterable[Document], truth: Iterable[Document]) -> list[dict[str, Any]]:
    """Per stage and modality: counts and quantiles of the measured records beside the truth's."""
    ours: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in measured:
        for part in record["stages"]:
            ours[part["stage"], part["modality"]].append(part["seconds"])
    theirs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in truth:
        theirs[row["stage"], row["modality"]].append((row["ended_ns"] - row["began_ns"]) / 1e9)
    return [
        {
            "stage": stage,
            "modality": modality,
            "requests": len(ours[stage, modality]),
            **_quantiles(ours[stage, modality]),
            "truth": {"requests": len(theirs[stage, modality]), **_quantiles(theirs[stage, modality])},
        }
        for stage, modality in sorted({*ours, *theirs})
    ]


def _quantiles(values: list[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    return {f"p{q}_seconds": nearest_rank(ordered, q / 100) for q in (50, 95, 99)}


def faults(
    truth: Document, windows: Sequence[Document], run_end_ns: int, wall_offset_ns: int
) -> list[dict[str, Any]]:
    """Every fault that became active: was it caught, as what, where, how soon; did its window close.

    `wall_offset_ns` maps the truth's CLOCK_MONOTONIC to the windows' wall clock.
    """
    active = [
        fault for fault in truth["faults"] if fault["kind"] is not None and fault["start_ns"] < run_end_ns
    ]
    return [
        _fault(fault, _not_of_others(fault, active, windows), run_end_ns, wall_offset_ns) for fault in active
    ]


def _not_of_others(
    fault: Document, active: Sequence[Document], windows: Sequence[Document]
) -> list[Document]:
    """The windows that may be this fault's: those of the kind and place of another one are not."""
    others = [other for other in active if other is not fault]
    return [
        window
        for window in windows
        if _is_of(window, fault) or not any(_is_of(window, other) for other in others)
    ]


def _is_of(window: Document, fault: Document) -> bool:
    return bool(window["kind"] == fault["kind"]) and _matches(window["entity"], fault["entity"])


def _fault(
    fault: Document, windows: Sequence[Document], run_end_ns: int, wall_offset_ns: int
) -> dict[str, Any]:
    start_ns = fault["start_ns"] + wall_offset_ns
    end_ns = min(fault["end_ns"], run_end_ns) + wall_offset_ns
    grace_ns = round(DETECTION_GRACE_SECONDS * 1e9)
    during = [w for w in windows if start_ns <= w["opened_at_ns"] <= end_ns + grace_ns]
    of_kind = [w for w in during if w["kind"] == fault["kind"]]
    in_place = [w for w in of_kind if _matches(w["entity"], fault["entity"])]
    first = min(in_place or of_kind, key=lambda w: w["opened_at_ns"], default=None)
    top = max(during, key=_rank, default=None)
    ended = fault["end_ns"] < run_end_ns
    return {
        "name": fault["name"],
        "kind": fault["kind"],
        "entity": fault["entity"],
        "start_at": rfc3339(start_ns),
        "end_at": rfc3339(end_ns),
        "start_at_ns": start_ns,
        "end_at_ns": end_ns,
        "detected": first is not None,
        "kind_named": top is not None and top["kind"] == fault["kind"],
        "entity_named": bool(in_place),
        "delay_seconds": (first["opened_at_ns"] - start_ns) / 1e9 if first else None,
        "window_id": first["id"] if first else None,
        "window_closed": (first["closed_at_ns"] is not None) if first and ended else None,
    }


def _rank(window: Document) -> tuple[int, float]:
    score = window.get("score")
    return _SEVERITIES.index(window["severity"]), score if isinstance(score, (int, float)) else 0.0


def _matches(found: Document, expected: Document) -> bool:
    """The window names everything that the truth says of the place, alike."""
    named = {key: value for key, value in expected.items() if value is not None}
    return all(found.get(key) == value for key, value in named.items())
