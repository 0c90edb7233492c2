# SPDX-License-Identifier: Apache-2.0
"""Snapshots of window and breaker openings, made and stored beside the tick by a thread of its own.

The tick hands over what it has read and goes on; what cannot be made or stored is tried again for a while,
then counted. No transition waits for a snapshot, and none is lost because of one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hotstage.clock import Clock
from hotstage.config.snapshots import SnapshotsConfig
from hotstage.errors import StoreError
from hotstage.stages.snapshot_types import Snapshot
from hotstage.store import snapshots
from hotstage.store.db import RejectedChangeError
from hotstage.store.snapshots import SnapshotCause, SnapshotLimits, StoredSnapshot
from hotstage.store.store import Store

log = logging.getLogger(__name__)

WAITING_MAX = 4
"""Samples that wait to be made into snapshots: each may hold megabytes."""

UNSTORED_MAX = 16
"""Snapshots, packed, that the disk has refused so far."""

RETRY_SECONDS = 1.0

MakeSnapshot = Callable[[], Snapshot]
"""Makes a snapshot of what was frozen at the tick; called later, on another thread."""


@dataclass(frozen=True, slots=True)
class KeeperState:
    """For health. `error` is the last refusal while it lasts."""

    stored_total: int
    lost_total: int
    waiting: int
    error: str | None


@dataclass(frozen=True, slots=True)
class _Order:
    id: str
    wall_ns: int
    causes: tuple[SnapshotCause, ...]
    make: MakeSnapshot


class SnapshotKeeper:
    """`keep` from the tick; `start` a thread that stores, `stop` ends it."""

    def __init__(self, store: Store, clock: Clock, config: SnapshotsConfig) -> None:
        self._store = store
        self._clock = clock
        self._limits = SnapshotLimits(
            config.keep_max, config.keep_bytes, round(config.keep_days * 86_400 * 1e9)
        )
        self._orders: deque[_Order] = deque()
        self._unstored: deque[StoredSnapshot] = deque()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._stored_total = 0
        self._lost_total = 0
        self._error: str | None = None

    def keep(self, causes: tuple[SnapshotCause, ...], wall_ns: int, make: MakeSnapshot) -> str | None:
        """Have a snapshot made and stored; its id, None where too many wait already (counted). Never waits
        for the store.
        """
        order = _Order(f"s-{wall_ns:x}", wall_ns, causes, make)
        with self._changed:
            if len(self._orders) >= WAITING_MAX:
                self._lost_total += 1
                return None
            self._orders.append(order)
            self._changed.notify()
        return order.id

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="hotstage-snapshots", daemon=True)
        self._thread.start()

    def stop(self, deadline_seconds: float) -> None:
        """Store what waits, within the deadline; what is left then counts as lost."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(deadline_seconds)

    def state(self) -> KeeperState:
        with self._changed:
            waiting = len(self._orders) + len(self._unstored)
            return KeeperState(self._stored_total, self._lost_total, waiting, self._error)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._orders:
                    if self._is_stopping:
                        self._lost_total += len(self._unstored)
                        return
                    self._changed.wait(RETRY_SECONDS if self._unstored else None)
                order = self._orders.popleft() if self._orders else None
            if order is not None:
                self._make(order)
            self._store_all()

    def _make(self, order: _Order) -> None:
        try:
            taken = order.make()
            body, is_packed = snapshots.packed(msgspec.json.encode(taken))
        except Exception:
            # The thread must outlive whatever a hostile row does to the making of one snapshot.
            log.exception("a snapshot could not be made")
            self._lost(1)
            return
        made = StoredSnapshot(
            order.id,
            order.wall_ns,
            body,
            is_packed,
            taken.requests_total,
            taken.threads_total,
            taken.unclean,
            order.causes,
        )
        self._unstored.append(made)
        if len(self._unstored) > UNSTORED_MAX:
            self._unstored.popleft()
            self._lost(1)

    def _store_all(self) -> None:
        while self._unstored:
            try:
                self._commit(self._unstored[0])
            except StoreError as error:
                self._refused(error)
                return
            except RejectedChangeError:
                log.exception("a snapshot cannot be written and is dropped")
                self._lost(1)
            else:
                with self._changed:
                    self._stored_total += 1
                    self._error = None
            self._unstored.popleft()

    def _commit(self, made: StoredSnapshot) -> None:
        with self._store.database.transaction() as cursor:
            snapshots.save(cursor, made)
            snapshots.prune(cursor, self._clock.wall_ns(), self._limits)

    def _refused(self, error: StoreError) -> None:
        with self._changed:
            is_first, self._error = self._error is None, error.message
        if is_first:
            log.warning("%s; snapshots wait", error.message, extra={"remedy": error.remedy})

    def _lost(self, count: int) -> None:
        with self._changed:
            self._lost_total += count
