# SPDX-License-Identifier: Apache-2.0
"""What a tick changed, made known in the one right order: page, database with its events, listeners.

The page is written at once; the database by the journal's thread, which rings the bell when a change is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from hotstage.api.bell import Bell
from hotstage.api.stream import EventStream
from hotstage.breaker.page import BreakerPage, entry_of
from hotstage.breaker.record import BreakerRecord, Transition
from hotstage.clock import Clock
from hotstage.config.settings import PageConfig, StoreConfig
from hotstage.sinks.events import EventMaker
from hotstage.store.journal import Journal, JournalState
from hotstage.store.outbox import Event
from hotstage.store.snapshots import StoredSnapshot
from hotstage.store.store import Changes, Store
from hotstage.windows.window import AnomalyWindow, WindowUpdate

CLOSE_SECONDS = 5.0

TakeSnapshot = Callable[[], dict[str, object]]


class Publisher:
    """`page` every tick; `changes` when something changed; `close` writes what is left."""

    def __init__(
        self,
        store: Store,
        page: BreakerPage,
        events: EventMaker,
        clock: Clock,
        *,
        store_config: StoreConfig,
        page_config: PageConfig,
    ) -> None:
        self._page = page
        self._page_config = page_config
        self._events = events
        self._clock = clock
        self.outbox_bell = Bell()
        self.stream = EventStream()
        self._journal = Journal(store, store_config.pending_max, self._committed)
        self._known: frozenset[str] = frozenset()

    def start(self) -> None:
        self._journal.start()

    def know(self, records: Iterable[BreakerRecord]) -> None:
        """Breakers that the database has already."""
        self._known = frozenset(record.name for record in records)

    def page(self, records: Iterable[BreakerRecord], now_ns: int) -> None:
        """Callers see these states from now on."""
        self._page.publish((entry_of(record, self._page_config) for record in records), now_ns)

    def changes(
        self,
        at_ns: int,
        windows: WindowUpdate,
        transitions: tuple[Transition, ...],
        records: tuple[BreakerRecord, ...],
        take_snapshot: TakeSnapshot,
    ) -> None:
        """Put what changed in line for the database, each change together with its events."""
        offset_ns = self._clock.wall_ns_of(0)
        moved = {transition.name for transition in transitions}
        new = frozenset(record.name for record in records) - self._known
        self._known |= new
        events = [
            *(self._events.window_opened(window, offset_ns) for window in windows.opened),
            *(self._events.transition(move, offset_ns) for move in transitions),
            *(self._events.window_closed(window, offset_ns) for window in windows.closed),
        ]
        self._journal.submit(
            Changes(
                at_ns=at_ns,
                wall_offset_ns=offset_ns,
                windows=(*windows.opened, *windows.updated, *windows.closed),
                breakers=tuple(record for record in records if record.name in moved | new),
                transitions=transitions,
                events=tuple(events),
                snapshots=self._snapshots(windows.opened, take_snapshot, at_ns + offset_ns),
            )
        )

    @property
    def is_writing(self) -> bool:
        """Whether the journal's thread runs; what the disk refuses is another matter."""
        return self._journal.is_running

    def journal_state(self) -> JournalState:
        return self._journal.state()

    def close(self) -> int:
        """Write what waits, wake every listener; how many changes could not be written."""
        left = self._journal.stop(CLOSE_SECONDS)
        self.stream.close()
        self.outbox_bell.close()
        self._page.close()
        return left

    def _snapshots(
        self, opened: tuple[AnomalyWindow, ...], take_snapshot: TakeSnapshot, wall_ns: int
    ) -> tuple[StoredSnapshot, ...]:
        if not opened:
            return ()
        body = msgspec.json.encode(take_snapshot())
        return tuple(StoredSnapshot(window.id, wall_ns, body) for window in opened)

    def _committed(self, batch: list[Changes]) -> None:
        events: list[Event] = [event for changes in batch for event in changes.events]
        if events:
            self.outbox_bell.ring()
            self.stream.publish(events)
