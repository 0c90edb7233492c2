# SPDX-License-Identifier: Apache-2.0
"""Time to first token and between tokens by modality: a table with what made it; columns of the frame. Pure.

Parts of a TTFT are what each stage and each kind of gap decided of it on the critical path, so that they add
up to it: the largest share names the stage that makes the first token late.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np

from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.latency_types import Latency, LatencyPart, TokenLatency
from hotstage.frame.rolling import Floats, Rows
from hotstage.frame.timing_rows import GAPS
from hotstage.grouping import distinct
from hotstage.stages.first_token import BASES
from hotstage.stages.labels import OwnNames, own_stage_name
from hotstage.stages.stage import STAGE_SLOTS, Stage, modality_name, stage_name
from hotstage.stages.timeline import PINNED

SHARES = (0.50, 0.95)
PARTS_MAX = 32
_ALL = "all"


def latency_table(
    rows: Rows, tokens: Rows, window_seconds: float, min_samples: int, names: OwnNames
) -> Latency:
    """TIMING_DTYPE and TOKENS_DTYPE of one window → the table, `names` as in `component_table`."""
    codes = distinct(rows["modality"]).tolist()
    return Latency(
        window_seconds,
        _latency(_ALL, rows, tokens, min_samples, names),
        [
            _latency(
                modality_name(code),
                rows[rows["modality"] == code],
                tokens[tokens["modality"] == code],
                min_samples,
                names,
            )
            for code in codes
        ],
    )


def no_latency(now_ns: int) -> Latency:
    """What an agent says that has seen no request."""
    return Latency(0.0, TokenLatency(_ALL, 0, 0, {}, None, None, None, 0, None, None, None, None, []), [])


def fill_token_latency(tokens: Rows, min_samples: int, cells: dict[Entity, dict[str, float]]) -> None:
    """TOKENS_DTYPE of the window → columns of the host and of each modality that makes tokens."""
    for entity, own in (
        (HOST, tokens),
        *(
            (
                Entity(EntityKind.modality, modality=modality_name(code)),
                tokens[tokens["modality"] == code],
            )
            for code in distinct(tokens["modality"]).tolist()
        ),
    ):
        for name in ("ttft", "itl"):
            values = _known(own[f"{name}_seconds"])
            if len(values):
                p50, p95 = _quantiles(values, min_samples)
                cell = cells.setdefault(entity, {})
                cell[f"{name}_samples"] = float(len(values))
                cell[f"{name}_p50_seconds"] = np.nan if p50 is None else p50
                cell[f"{name}_p95_seconds"] = np.nan if p95 is None else p95


def _latency(modality: str, rows: Rows, tokens: Rows, min_samples: int, names: OwnNames) -> TokenLatency:
    ttft, itl = _known(tokens["ttft_seconds"]), _known(tokens["itl_seconds"])
    with_first = rows[~np.isnan(rows["ttft_seconds"])]
    bases = Counter(BASES[basis] for basis in with_first["basis"].tolist())
    parts = _parts(with_first, min_samples, names)
    ttft_p50, ttft_p95 = _quantiles(ttft, min_samples)
    itl_p50, itl_p95 = _quantiles(itl, min_samples)
    return TokenLatency(
        modality=modality,
        requests=len(tokens),
        ttft_samples=len(ttft),
        ttft_bases=dict(bases),
        ttft_mean_seconds=_mean(ttft),
        ttft_p50_seconds=ttft_p50,
        ttft_p95_seconds=ttft_p95,
        itl_samples=len(itl),
        itl_mean_seconds=_mean(itl),
        itl_p50_seconds=itl_p50,
        itl_p95_seconds=itl_p95,
        slowest=parts[0].name if parts else None,
        parts=parts,
    )


def _parts(rows: Rows, min_samples: int, names: OwnNames) -> list[LatencyPart]:
    """Of requests whose first token is known; largest share first."""
    early = rows["early"].astype(np.float64)
    whole = float(early.sum())
    if whole <= 0:
        return []
    found = [
        _part(name, place, seconds, whole, min_samples) for name, place, seconds in _named(rows, early, names)
    ]
    return sorted(found, key=lambda part: -part.share)


def _named(rows: Rows, early: Floats, names: OwnNames) -> list[tuple[str, int, Floats]]:
    """(name, a place of it, seconds of requests) of the stages and gaps that decided something: of more than
    `PARTS_MAX` the own stages that decided least are `other`.
    """
    own = []
    for name, seconds in _own(rows, early, names):
        pinned = Stage.__members__.get(name)
        if pinned is None:
            own.append((name, seconds))
        else:  # a server that makes up a stage of this name means this one
            early[list(seconds), pinned] += list(seconds.values())
    found: list[tuple[str, int, Floats]] = []
    for place in np.flatnonzero(early.any(axis=0)).tolist():
        if place >= STAGE_SLOTS:
            found.append((GAPS[place - STAGE_SLOTS], place, early[:, place]))
        elif place < PINNED:
            found.append((stage_name(place), place, early[:, place]))
    room = PARTS_MAX - len(found)
    if len(own) > room:
        found = [part for part in found if part[1] != Stage.other]
        room = PARTS_MAX - 1 - len(found)
        others = early[:, Stage.other].copy()
        for _, seconds in own[room:]:
            others[list(seconds)] += list(seconds.values())
        found.append((Stage.other.name, Stage.other, others))
    return found + [(name, PINNED, np.array(list(seconds.values()))) for name, seconds in own[:room]]


def _own(rows: Rows, early: Floats, names: OwnNames) -> list[tuple[str, dict[int, float]]]:
    """(name, row → seconds) of the servers' own stages, those that decided most first."""
    own: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for slot in range(PINNED, STAGE_SLOTS):
        for at in np.flatnonzero(early[:, slot]).tolist():
            seconds = own[own_stage_name(names, int(rows["pid"][at]), int(rows["stage_ids"][at, slot]))]
            seconds[at] = seconds.get(at, 0.0) + float(early[at, slot])
    return sorted(own.items(), key=lambda each: -sum(each[1].values()))


def _part(name: str, place: int, seconds: Floats, whole: float, min_samples: int) -> LatencyPart:
    own = seconds[seconds > 0]
    return LatencyPart(
        name=name,
        kind="wait" if place >= STAGE_SLOTS or place == Stage.queue else "stage",
        source="gap" if place >= STAGE_SLOTS else "mark",
        count=len(own),
        mean_seconds=float(own.mean()),
        p95_seconds=_quantiles(own, min_samples)[1],
        share=float(own.sum()) / whole,
    )


def _known(values: Rows) -> Floats:
    found: Floats = values[~np.isnan(values)].astype(np.float64)
    return found


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantiles(values: Floats, min_samples: int) -> tuple[float | None, float | None]:
    """(p50, p95), nearest rank."""
    if len(values) < max(min_samples, 1):
        return None, None
    ordered = np.sort(values)
    p50, p95 = (float(ordered[max(math.ceil(share * len(values) - 1e-9), 1) - 1]) for share in SHARES)
    return p50, p95
