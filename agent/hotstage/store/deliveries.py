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


class DestinationReport(Struct, frozen=True, kw_only=True):
    """One destination, counted since its notifier's database was made; `oldest_age_seconds` of what waits."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    delivered: Count
    failed: Count
    dead: Count
    pending: Count
    oldest_age_seconds: float | None = None
    last_delivery_seconds: float | None = None
    is_disabled: bool = False


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
