# SPDX-License-Identifier: Apache-2.0
"""Finished requests of the latency window, by class: rates and quantiles.

The tick only hands records over; whoever asks reduces them to rows of fixed size and works out the rest. If
nobody asks, the tick reduces them when `FRESH_MAX` have gathered. What vanished with its process has left no
record, and is in no class.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hotstage.config.classes import ClassesConfig
from hotstage.config.settings import FrameConfig
from hotstage.frame.class_rules import ClassRules
from hotstage.frame.class_table import ClassName, ClassRow, ClassTable, Recent, class_rows
from hotstage.frame.request_costs import UNNAMED, RequestCosts, costs_by_entity, penalties_of
from hotstage.frame.rolling import Codes, Rolling, Rows
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.names import UNNAMED as NO_NAME
from hotstage.stages.names import Names
from hotstage.stages.request_class import CLASSES, FINGERPRINTS, SIZES, classify, fingerprint_of, size_of
from hotstage.stages.spans import OUTCOME_CANCELLED, OUTCOME_REFUSED

RATE_NS = 10_000_000_000
PENALTY_NS = 5_000_000_000
"""The tick has penalties worked out no more often: a p99 over a minute moves slowly, and sorting is dear."""
FINGERPRINT_NAMES = tuple(ClassName(each) for each in FINGERPRINTS)
CLASS_NAMES = tuple(ClassName(fingerprint_of(code), size_of(code)) for code in range(CLASSES))
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
    ]
)


class RequestStatistics:
    """`keep` and `costs` from the tick, `classes` from any thread."""

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
        self._endpoints = Names(frame.max_endpoints + 3)
        self._unnamed = self._endpoints.intern(UNNAMED)
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
        return ClassName(FINGERPRINTS[fingerprint], endpoint=self._endpoints[place])

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
        found, outcome = classify(finished), finished["outcome"]
        rows = np.zeros(len(finished), _ROW_DTYPE)
        rows["at_ns"], rows["code"] = finished["ended_ns"], found.code
        endpoints = self._endpoints.intern_rows(finished["endpoint"])
        # An endpoint may be called as one without a name is shown: they are one.
        rows["endpoint"] = np.where(endpoints == NO_NAME, self._unnamed, endpoints)
        rows["instance"] = self._instances.intern_rows(finished["instance"])
        rows["is_judged"] = (outcome != OUTCOME_CANCELLED) & (outcome != OUTCOME_REFUSED)
        took = finished["ended_ns"].astype(np.float64) - finished["started_ns"].astype(np.float64)
        rows["seconds"] = np.maximum(took, 0.0) / 1e9
        rows["equivalents"] = self._rules.equivalents(found)
        return rows


def _counted(totals: NDArray[np.int64]) -> dict[int, int]:
    """Those that there are, by code."""
    return {code: int(totals[code]) for code in np.flatnonzero(totals).tolist()}
