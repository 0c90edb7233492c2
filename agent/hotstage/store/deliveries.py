# SPDX-License-Identifier: Apache-2.0
"""What the notifier last said about its destinations, for metrics and health.

In memory: its own file is the truth.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]

DURATION_EDGES = tuple(2.0**power for power in range(-7, 4))
"""Upper bounds of the buckets of an attempt's duration, 7.8 ms to 8 s; scale-3 edges."""


class DestinationReport(Struct, frozen=True, kw_only=True):
    """One destination, counted since its notifier's database was made; `oldest_age_seconds` of what waits."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    delivered: Count
    failed: Count
    dead: Count
    pending: Count
    oldest_age_seconds: float | None = None
    is_disabled: bool = False
    is_refused: bool = False
    """Its URL or secret is not usable: nothing is sent, its events wait."""
    duration_counts: Annotated[tuple[Count, ...], Meta(max_length=len(DURATION_EDGES) + 1)] = ()
    """Attempts per bucket of `DURATION_EDGES`, the last one beyond them; empty if nobody counted."""
    duration_sum_seconds: Annotated[float, Meta(ge=0)] = 0.0


@dataclass(frozen=True, slots=True)
class NotifierReport:
    """`at_ns` is CLOCK_MONOTONIC when it came."""

    at_ns: int
    destinations: tuple[DestinationReport, ...]


class Deliveries:
    """Holds the last report; None until a notifier has spoken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._report: NotifierReport | None = None

    def put(self, report: NotifierReport) -> None:
        with self._lock:
            self._report = report

    def latest(self) -> NotifierReport | None:
        with self._lock:
            return self._report
