# SPDX-License-Identifier: Apache-2.0
"""Finished requests of the latency window, by class and by component (stage): rates, quantiles, variances.

The tick only hands records over; whoever asks reduces them to rows of fixed size and works out the rest. If
nobody asks, the tick reduces them when `FRESH_MAX` have gathered. What vanished with its process has left no
record, and is in no class.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.config.classes import ClassesConfig
from hotstage.config.settings import FrameConfig
from hotstage.frame.class_rules import ClassRules
from hotstage.frame.class_table import ClassName, ClassRow, ClassTable, Recent, class_rows
from hotstage.frame.request_costs import UNNAMED, RequestCosts, costs_by_entity, penalties_of
from hotstage.frame.rolling import Codes, Floats, Rolling, Rows, nearest_ranks
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.names import Names
from hotstage.stages.request_class import CLASSES, FINGERPRINTS, SIZES, classify, fingerprint_of, size_of
from hotstage.stages.spans import OUTCOME_CANCELLED, OUTCOME_REFUSED
from hotstage.stages.stage import STAGE_SLOTS, Stage, stage_name

RATE_NS = 10_000_000_000
PENALTY_NS = 5_000_000_000
"""The tick has penalties worked out no more often: a p99 over a minute moves slowly, and sorting is dear."""
FINGERPRINT_NAMES = tuple(ClassName(each) for each in FINGERPRINTS)
CLASS_NAMES = tuple(ClassName(fingerprint_of(code), size_of(code)) for code in range(CLASSES))
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
        ("endpoint", np.uint32),
        ("instance", np.uint32),
        ("is_judged", np.bool_),  # its latency says something
        ("seconds", np.float64),
        ("equivalents", np.float64),  # 0: nobody said
        ("stages", np.float32, (STAGE_SLOTS,)),  # seconds in each; NaN: not passed
    ]
)


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
class ComponentTable:
    """`request` is the whole request; `components` in pipeline order."""

    window_seconds: float
    request: ComponentRow
    components: tuple[ComponentRow, ...]


class RequestStatistics:
    """`keep` and `costs` from the tick, `classes` and `components` from any thread."""

    def __init__(self, config: ClassesConfig, frame: FrameConfig) -> None:
        self._window_ns = round(frame.latency_window_seconds * 1e9)
        self._min_samples = frame.quantile_min_samples
        self._rules = ClassRules(config)
        self._first_ns = self._kept = 0
        self._fresh: deque[Rows] = deque()
        self._costs = RequestCosts()
        self._penalties_ns = 0
        self._lock = threading.Lock()  # of what follows
        self._rows = Rolling(_ROW_DTYPE, _KEPT)
        self._totals = np.zeros(CLASSES, np.int64)
        self._endpoint_totals: Counter[int] = Counter()
        self._endpoints = Names(frame.max_endpoints + 2)
        self._instances = Names()

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

    def costs(self, now_ns: int) -> RequestCosts:
        """For the slow tick. While a reader is at work, those of the second before."""
        if not self._lock.acquire(blocking=False):
            return self._costs
        try:
            self._take_in()
            rows = self._rows.since(now_ns - self._window_ns)
            names = (
                self._endpoints.texts(range(len(self._endpoints))),
                self._instances.texts(range(len(self._instances))),
            )
        finally:
            self._lock.release()
        penalties = self._costs.penalties
        if now_ns - self._penalties_ns >= PENALTY_NS:
            recent = self._rated(rows, now_ns)
            of = rows["code"] // len(SIZES)
            codes = rows["endpoint"].astype(np.int64) * len(FINGERPRINTS) + of
            penalties = penalties_of(
                self._class_rows(recent, codes, {}, self._endpoint_name),
                self._class_rows(recent, of, {}, FINGERPRINT_NAMES.__getitem__),
            )
            self._penalties_ns = now_ns
        self._costs = RequestCosts(costs_by_entity(rows, *names), penalties)
        return self._costs

    def classes(self, now_ns: int) -> ClassTable:
        """As of the last fast tick, whose time is `now_ns` (CLOCK_MONOTONIC)."""
        rows, totals, endpoint_totals = self._recent(now_ns)
        recent = self._rated(rows, now_ns)
        of = rows["code"] // len(SIZES)
        by_fingerprint = totals.reshape(len(FINGERPRINTS), len(SIZES)).sum(axis=1)
        by_endpoint = rows["endpoint"].astype(np.int64) * len(FINGERPRINTS) + of
        return ClassTable(
            window_seconds=self._window_ns / 1e9,
            fingerprints=self._class_rows(
                recent, of, _counted(by_fingerprint), FINGERPRINT_NAMES.__getitem__
            ),
            classes=self._class_rows(recent, rows["code"], _counted(totals), CLASS_NAMES.__getitem__),
            endpoints=self._class_rows(recent, by_endpoint, endpoint_totals, self._endpoint_name),
        )

    def components(self, now_ns: int) -> ComponentTable:
        """As of the last fast tick, whose time is `now_ns` (CLOCK_MONOTONIC)."""
        rows, _, _ = self._recent(now_ns)
        judged = rows[rows["is_judged"]]
        whole = float(judged["seconds"].sum())
        times = judged["stages"].astype(np.float64)
        passed = ~np.isnan(times)
        return ComponentTable(
            self._window_ns / 1e9,
            self._component("request", judged["seconds"], whole),
            tuple(
                self._component(stage_name(stage), times[passed[:, stage], stage], whole)
                for stage in Stage
                if stage in ALWAYS_SHOWN or passed[:, stage].any()
            ),
        )

    def _recent(self, now_ns: int) -> tuple[Rows, NDArray[np.int64], dict[int, int]]:
        """(rows of the window, totals by class, totals by endpoint and fingerprint)."""
        with self._lock:
            self._take_in()
            rows = self._rows.since(now_ns - self._window_ns)
            return rows, self._totals.copy(), dict(self._endpoint_totals)

    def _rated(self, rows: Rows, now_ns: int) -> Recent:
        rated_ns = min(max(now_ns - (self._first_ns or now_ns), _SECOND), RATE_NS)
        return Recent(rows, rows["at_ns"] > max(now_ns - RATE_NS, 0), rated_ns / 1e9)

    def _class_rows(
        self, recent: Recent, codes: Codes, totals: dict[int, int], name_of: Callable[[int], ClassName]
    ) -> tuple[ClassRow, ...]:
        return class_rows(self._rules, recent, codes, totals, name_of, self._min_samples)

    def _endpoint_name(self, code: int) -> ClassName:
        place, fingerprint = divmod(code, len(FINGERPRINTS))
        return ClassName(FINGERPRINTS[fingerprint], endpoint=self._endpoints[place] or UNNAMED)

    def _take_in(self) -> None:
        """Reduce what is fresh; with the lock held."""
        # As plain bytes: numpy moves structured rows field by field.
        fresh = [self._fresh.popleft().view(_RAW) for _ in range(len(self._fresh))]
        if not fresh:
            return
        finished = np.concatenate(fresh).view(FINISHED_DTYPE)
        rows = self._reduced(finished)
        self._rows.append(rows)
        counted = rows[finished["outcome"] != OUTCOME_REFUSED]
        self._totals += np.bincount(counted["code"], minlength=CLASSES)
        fingerprints = counted["code"] // len(SIZES)
        codes = counted["endpoint"].astype(np.int64) * len(FINGERPRINTS) + fingerprints
        self._endpoint_totals.update(codes.tolist())

    def _reduced(self, finished: Rows) -> Rows:
        found, outcome, slots = classify(finished), finished["outcome"], finished["stages"]
        rows = np.zeros(len(finished), _ROW_DTYPE)
        rows["at_ns"], rows["code"] = finished["ended_ns"], found.code
        rows["endpoint"] = self._endpoints.intern_rows(finished["endpoint"])
        rows["instance"] = self._instances.intern_rows(finished["instance"])
        rows["is_judged"] = (outcome != OUTCOME_CANCELLED) & (outcome != OUTCOME_REFUSED)
        took = finished["ended_ns"].astype(np.float64) - finished["started_ns"].astype(np.float64)
        rows["seconds"] = np.maximum(took, 0.0) / 1e9
        rows["equivalents"] = self._rules.equivalents(found)
        rows["stages"] = np.where(slots["count"] > 0, slots["total_ns"] / 1e9, np.nan)
        return rows

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


def _counted(totals: NDArray[np.int64]) -> dict[int, int]:
    """Those that there are, by code."""
    return {code: int(totals[code]) for code in np.flatnonzero(totals).tolist()}


def no_components(now_ns: int) -> ComponentTable:
    """What an agent says that has seen no request."""
    return ComponentTable(0.0, ComponentRow("request", 0, None, None, None, None), ())
