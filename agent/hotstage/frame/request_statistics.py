# SPDX-License-Identifier: Apache-2.0
"""Finished requests of the latency window, by class and by component (stage): rates, quantiles, variances.

The tick only hands records over; whoever asks reduces them to rows of fixed size and works out the rest. If
nobody asks, the tick reduces them when `FRESH_MAX` have gathered. What vanished with its process has left no
record, and is in no class.

Token equivalents of a request = Σ weight of a modality × its tokens, text with the output. Token-equivalent
latency = Σ latency ÷ Σ token equivalents over the requests that say their tokens, in ms: what one of them
costs, across modalities. SLO penalty (ms) = weight × max(0, p99 − baseline) of the class's modality; where it
has several, of the one with the largest weight.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.config.classes import P99_TARGET_SECONDS, SLO_BASELINE_SECONDS, SLO_WEIGHTS, ClassesConfig
from hotstage.config.settings import FrameConfig
from hotstage.frame.rolling import Codes, Floats, Rolling, Rows, nearest_ranks, sums
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.request_class import (
    CLASSES,
    FINGERPRINTS,
    MEDIA,
    MODALITIES_OF,
    SIZES,
    Classified,
    Fingerprint,
    classify,
    fingerprint_of,
    size_of,
)
from hotstage.stages.spans import OUTCOME_CANCELLED, OUTCOME_REFUSED
from hotstage.stages.stage import STAGE_SLOTS, Stage, stage_name

RATE_NS = 10_000_000_000
SHARES = (0.50, 0.95, 0.99)
FINGERPRINT_ONLY: tuple[tuple[Fingerprint, None], ...] = tuple((each, None) for each in FINGERPRINTS)
CLASS_NAMES = tuple((fingerprint_of(code), size_of(code)) for code in range(CLASSES))
ALWAYS_SHOWN = frozenset({Stage.gateway, Stage.model_load, Stage.lora_apply})
"""Components that are listed with a count of 0 where no request went through them."""

FRESH_MAX = 512
"""Records that wait to be reduced: half a megabyte, and a millisecond of the tick."""

_SECOND = 1_000_000_000
_KEPT = 32_768
"""Requests; where more end within the window, the oldest go and it shrinks."""
_RAW = np.dtype((np.void, FINISHED_DTYPE.itemsize))
_ROW_DTYPE = np.dtype(
    [
        ("at_ns", np.uint64),  # its end
        ("code", np.int64),
        ("is_judged", np.bool_),  # its latency says something
        ("seconds", np.float64),
        ("equivalents", np.float64),  # 0: nobody said
        ("stages", np.float32, (STAGE_SLOTS,)),  # seconds in each; NaN: not passed
    ]
)


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class; None is unknown. Quantiles are nearest rank and None below `quantile_min_samples`."""

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
    token_equivalent_ms: float | None
    slo_penalty_ms: float | None


@dataclass(frozen=True, slots=True)
class ComponentRow:
    """Time of a request in one stage, all its visits together. `variance` in s², of a sample (n − 1)."""

    stage: str
    count: int
    mean_seconds: float | None
    p95_seconds: float | None
    variance: float | None
    share: float | None
    """Of the time of all requests of the window; stages overlap, so the sum may be above 1."""


@dataclass(frozen=True, slots=True)
class ClassTable:
    """`fingerprints` with all sizes together, `classes` by size; only those that were ever seen."""

    window_seconds: float
    fingerprints: tuple[ClassRow, ...] = ()
    classes: tuple[ClassRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ComponentTable:
    """`request` is the whole request; `components` in pipeline order."""

    window_seconds: float
    request: ComponentRow
    components: tuple[ComponentRow, ...]


@dataclass(frozen=True, slots=True)
class _Rated:
    """Which rows ended in the time of the rates, and how long that was."""

    is_late: NDArray[np.bool_]
    seconds: float


class RequestStatistics:
    """`keep` from the tick, `classes` and `components` from any thread."""

    def __init__(self, config: ClassesConfig, frame: FrameConfig) -> None:
        self._window_ns = round(frame.latency_window_seconds * 1e9)
        self._min_samples = frame.quantile_min_samples
        token_weights = _merged({}, config.token_weights)
        self._media_weights = np.array([token_weights.get(medium.name, 1.0) for medium in MEDIA])
        self._text_weight = token_weights.get("text", 1.0)
        self._slo_weights = _merged(SLO_WEIGHTS, config.slo_weights)
        self._slo_baselines = _merged(SLO_BASELINE_SECONDS, config.slo_baseline_seconds)
        self._targets = _merged(P99_TARGET_SECONDS, config.target_seconds)
        self._first_ns = self._kept = 0
        self._fresh: deque[Rows] = deque()
        self._lock = threading.Lock()  # of what follows
        self._rows = Rolling(_ROW_DTYPE, _KEPT)
        self._totals = np.zeros(CLASSES, np.int64)

    def keep(self, at_ns: int, finished: Rows) -> None:
        """One fast tick: its time (CLOCK_MONOTONIC) and the FINISHED_DTYPE rows that ended in it."""
        self._first_ns = self._first_ns or at_ns
        if not len(finished):
            return
        self._fresh.append(finished)
        self._kept += len(finished)
        # The tick never waits for a reader, who takes in what is fresh himself.
        if self._kept >= FRESH_MAX and self._lock.acquire(blocking=False):
            try:
                self._take_in()
            finally:
                self._lock.release()
            self._kept = 0

    def classes(self, now_ns: int) -> ClassTable:
        """As of the last fast tick, whose time is `now_ns` (CLOCK_MONOTONIC)."""
        rows, totals = self._recent(now_ns)
        rated_ns = min(max(now_ns - (self._first_ns or now_ns), _SECOND), RATE_NS)
        rated = _Rated(rows["at_ns"] > max(now_ns - RATE_NS, 0), rated_ns / 1e9)
        by_fingerprint = totals.reshape(len(FINGERPRINTS), len(SIZES)).sum(axis=1)
        return ClassTable(
            self._window_ns / 1e9,
            self._class_rows(rows["code"] // len(SIZES), rows, by_fingerprint, rated, FINGERPRINT_ONLY),
            self._class_rows(rows["code"], rows, totals, rated, CLASS_NAMES),
        )

    def components(self, now_ns: int) -> ComponentTable:
        """As of the last fast tick, whose time is `now_ns` (CLOCK_MONOTONIC)."""
        rows, _ = self._recent(now_ns)
        judged = rows[rows["is_judged"]]
        whole = float(judged["seconds"].sum())
        times = judged["stages"].astype(np.float64)
        passed = ~np.isnan(times)
        return ComponentTable(
            self._window_ns / 1e9,
            self._component("request", judged["seconds"], whole),
            tuple(
                self._component(stage_name(stage), times[passed[:, stage], stage], whole)
                for stage in range(STAGE_SLOTS)
                if stage in ALWAYS_SHOWN or passed[:, stage].any()
            ),
        )

    def _recent(self, now_ns: int) -> tuple[Rows, NDArray[np.int64]]:
        """(rows of the window, totals by class)."""
        with self._lock:
            self._take_in()
            return self._rows.since(now_ns - self._window_ns), self._totals.copy()

    def _take_in(self) -> None:
        """Reduce what is fresh; with the lock held."""
        # As plain bytes: numpy moves structured rows field by field.
        fresh = [self._fresh.popleft().view(_RAW) for _ in range(len(self._fresh))]
        if not fresh:
            return
        finished = np.concatenate(fresh).view(FINISHED_DTYPE)
        rows = self._reduced(finished)
        self._rows.append(rows)
        is_counted = finished["outcome"] != OUTCOME_REFUSED
        self._totals += np.bincount(rows["code"][is_counted], minlength=CLASSES)

    def _reduced(self, finished: Rows) -> Rows:
        found, outcome, slots = classify(finished), finished["outcome"], finished["stages"]
        rows = np.zeros(len(finished), _ROW_DTYPE)
        rows["at_ns"], rows["code"] = finished["ended_ns"], found.code
        rows["is_judged"] = (outcome != OUTCOME_CANCELLED) & (outcome != OUTCOME_REFUSED)
        took = finished["ended_ns"].astype(np.float64) - finished["started_ns"].astype(np.float64)
        rows["seconds"] = np.maximum(took, 0.0) / 1e9
        rows["equivalents"] = self._equivalents(found)
        rows["stages"] = np.where(slots["count"] > 0, slots["total_ns"] / 1e9, np.nan)
        return rows

    def _equivalents(self, found: Classified) -> Floats:
        weighed: Floats = found.media_tokens @ self._media_weights
        return weighed + self._text_weight * (found.text_tokens + found.output_tokens)

    def _class_rows(
        self,
        codes: Codes,
        rows: Rows,
        totals: NDArray[np.int64],
        rated: _Rated,
        names: Sequence[tuple[Fingerprint, str | None]],
    ) -> tuple[ClassRow, ...]:
        judged = rows["is_judged"]
        own, seconds = codes[judged], rows["seconds"][judged]
        ranks = nearest_ranks(own, seconds, SHARES)
        taken, ended = sums(own, seconds), sums(codes[rated.is_late])
        speaks = judged & (rows["equivalents"] > 0)
        spent, equivalents = (sums(codes[speaks], rows[name][speaks]) for name in ("seconds", "equivalents"))
        found = []
        for code in sorted(set(np.flatnonzero(totals).tolist()) | set(codes.tolist())):
            count, values = ranks.get(code, (0, ()))
            p50, p95, p99 = map(float, values) if count >= self._min_samples else (None, None, None)
            fingerprint, size = names[code]
            found.append(
                ClassRow(
                    fingerprint=fingerprint,
                    size=size,
                    requests=int(totals[code]),
                    samples=count,
                    rate=ended.get(code, 0.0) / rated.seconds,
                    mean_seconds=taken[code] / count if count else None,
                    p50_seconds=p50,
                    p95_seconds=p95,
                    p99_seconds=p99,
                    p99_target_seconds=self._target(fingerprint),
                    token_equivalent_ms=1e3 * spent[code] / equivalents[code] if code in spent else None,
                    slo_penalty_ms=self._penalty_ms(fingerprint, p99),
                )
            )
        return tuple(found)

    def _target(self, fingerprint: str) -> float | None:
        return self._targets.get(fingerprint)

    def _penalty_ms(self, fingerprint: Fingerprint, p99_seconds: float | None) -> float | None:
        weights, baselines = self._slo_weights, self._slo_baselines
        parts = [each.name for each in MODALITIES_OF[fingerprint]]
        if p99_seconds is None or not parts:
            return None
        heaviest = max(parts, key=lambda name: (weights[name], baselines[name]))
        return weights[heaviest] * 1e3 * max(0.0, p99_seconds - baselines[heaviest])

    def _component(self, name: str, times: Floats, whole_seconds: float) -> ComponentRow:
        count = len(times)
        if count == 0:
            return ComponentRow(name, 0, None, None, None, None)
        ranks = nearest_ranks(np.zeros(count, np.int64), times, (0.95,))
        return ComponentRow(
            stage=name,
            count=count,
            mean_seconds=float(times.mean()),
            p95_seconds=float(ranks[0][1][0]) if count >= self._min_samples else None,
            # Of the differences to the mean: nothing cancels, however small the spread.
            variance=float(times.var(ddof=1)) if count > 1 else None,
            share=float(times.sum()) / whole_seconds if whole_seconds > 0 else None,
        )


def _merged(defaults: Mapping[Any, float], own: Mapping[Any, float]) -> dict[str, float]:
    return {**defaults, **own}


def no_classes(now_ns: int) -> ClassTable:
    """What an agent says that has seen no request."""
    return ClassTable(0.0)


def no_components(now_ns: int) -> ComponentTable:
    """What an agent says that has seen no request."""
    return ComponentTable(0.0, ComponentRow("request", 0, None, None, None, None), ())
