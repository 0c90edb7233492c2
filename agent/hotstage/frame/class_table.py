# SPDX-License-Identifier: Apache-2.0
"""Finished requests of a window → one row for each class: rate, quantiles, attainment, cost, penalty. Pure.

Token-equivalent latency = Σ latency ÷ Σ token equivalents over the requests that say their tokens: what one
of them costs, across modalities. Attainment is over the same requests as the p99, so that a class whose
share within its target is at least 0.99 has its p99 there, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.frame.class_rules import ClassRules
from hotstage.frame.rolling import Codes, Rows, nearest_ranks, sums
from hotstage.stages.request_class import Fingerprint

SHARES = (0.50, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class; None is unknown. Quantiles are nearest rank and None below `quantile_min_samples`."""

    endpoint: str | None
    """None: all endpoints together."""
    fingerprint: str
    size: str | None
    """None: all sizes together."""
    requests: int
    """Ended since the agent began, refused ones left out."""
    samples: int
    """Of the latency window, those whose latency says something: neither cancelled nor refused."""
    rate: float
    """Ended per second, over the last 10 s."""
    mean_seconds: float | None
    p50_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None
    p99_target_seconds: float | None
    within_target_ratio: float | None
    """Of `samples`, those within the target; None without a target, and below `quantile_min_samples`."""
    token_equivalent_ms: float | None
    slo_baseline_seconds: float | None
    """The p99 up to which there is no penalty: another figure than the target."""
    slo_penalty_ms: float | None


@dataclass(frozen=True, slots=True)
class ClassTable:
    """Only those that were ever seen. `fingerprints` with all sizes together, `classes` by size,
    `endpoints` by endpoint and fingerprint.
    """

    window_seconds: float
    fingerprints: tuple[ClassRow, ...] = ()
    classes: tuple[ClassRow, ...] = ()
    endpoints: tuple[ClassRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassName:
    """Which class a code stands for."""

    fingerprint: Fingerprint
    size: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Recent:
    """Rows of the window; `is_late` are those that ended in the time of the rates, which was `seconds`."""

    rows: Rows
    is_late: NDArray[np.bool_]
    seconds: float


def class_rows(
    rules: ClassRules,
    recent: Recent,
    codes: Codes,
    totals: Mapping[int, int],
    name_of: Callable[[int], ClassName],
    min_samples: int,
) -> tuple[ClassRow, ...]:
    """(R,) codes of the window's rows, requests by code since the start → rows in the order of the codes."""
    rows = recent.rows
    judged = rows["is_judged"]
    own, seconds = codes[judged], rows["seconds"][judged]
    ranks = nearest_ranks(own, seconds, SHARES)
    taken, ended = sums(own, seconds), sums(codes[recent.is_late])
    speaks = judged & (rows["equivalents"] > 0)
    spent, equivalents = (sums(codes[speaks], rows[name][speaks]) for name in ("seconds", "equivalents"))
    found = []
    for code in sorted(set(totals) | set(codes.tolist())):
        count, values = ranks.get(code, (0, ()))
        is_enough = count >= min_samples
        p50, p95, p99 = map(float, values) if is_enough else (None, None, None)
        name = name_of(code)
        target = rules.target_seconds(name.fingerprint)
        penalty = rules.penalty_seconds(name.fingerprint, p99, name.endpoint)
        found.append(
            ClassRow(
                endpoint=name.endpoint,
                fingerprint=name.fingerprint,
                size=name.size,
                requests=totals.get(code, 0),
                samples=count,
                rate=ended.get(code, 0.0) / recent.seconds,
                mean_seconds=taken[code] / count if count else None,
                p50_seconds=p50,
                p95_seconds=p95,
                p99_seconds=p99,
                p99_target_seconds=target,
                within_target_ratio=(
                    float((seconds[own == code] <= target).mean()) if is_enough and target else None
                ),
                token_equivalent_ms=1e3 * spent[code] / equivalents[code] if code in spent else None,
                slo_baseline_seconds=rules.baseline_seconds(name.fingerprint, name.endpoint),
                slo_penalty_ms=None if penalty is None else 1e3 * penalty,
            )
        )
    return tuple(found)


def no_classes(now_ns: int) -> ClassTable:
    """What an agent says that has seen no request."""
    return ClassTable(0.0)
