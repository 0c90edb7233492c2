# SPDX-License-Identifier: Apache-2.0
"""Orders of people to breakers, carried from the API's threads to the tick, which alone moves breakers."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hotstage.api.message import ApiError
from hotstage.breaker.record import BreakerRecord

ANSWER_SECONDS = 3.0
_MAX_WAITING = 64


class OverrideOrder(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /v1/breakers/{name}/override`. `reset` takes an override back and needs no time."""

    action: Literal["force_open", "disable", "metrics_only", "reset"]
    ttl_seconds: Annotated[float, Meta(gt=0, le=7 * 86_400)] | None = None
    reason: Annotated[str, Meta(max_length=500)] = ""


@dataclass(slots=True)
class PendingOrder:
    """One order on its way; the tick calls `done` or `refuse` exactly once."""

    name: str
    order: OverrideOrder
    actor: str
    _answered: threading.Event = field(default_factory=threading.Event)
    _record: BreakerRecord | None = None
    _error: ApiError | None = None

    def done(self, record: BreakerRecord) -> None:
        self._record = record
        self._answered.set()

    def refuse(self, message: str, remedy: str) -> None:
        """There is no such breaker, or it cannot be ordered so."""
        self._error = ApiError(404, "no_such_breaker", message, remedy)
        self._answered.set()


class OverrideDesk:
    """Where orders wait for the next tick. Bounded; an order nobody takes in time is withdrawn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[PendingOrder] = deque()

    def order(self, name: str, order: OverrideOrder, actor: str) -> BreakerRecord:
        """Hand it to the tick and wait for the breaker as it is then. Raises ApiError."""
        if order.action != "reset" and order.ttl_seconds is None:
            raise ApiError(400, "bad_body", "ttl_seconds is missing", "say how long the override may last")
        pending = PendingOrder(name, order, actor)
        with self._lock:
            if len(self._waiting) >= _MAX_WAITING:
                raise ApiError(503, "busy", "too many overrides are waiting", "try again in a second")
            self._waiting.append(pending)
        pending._answered.wait(ANSWER_SECONDS)
        with self._lock:
            # Whoever holds it now decides: still in line means that the tick will never see it.
            if pending in self._waiting:
                self._waiting.remove(pending)
                raise ApiError(503, "not_ticking", "the agent did not answer in time", "see /healthz")
        pending._answered.wait(ANSWER_SECONDS)
        if pending._error is not None:
            raise pending._error
        if pending._record is None:
            raise ApiError(503, "not_ticking", "the agent did not answer in time", "see /healthz")
        return pending._record

    def take(self) -> list[PendingOrder]:
        """All orders that wait; the caller must answer each."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken
