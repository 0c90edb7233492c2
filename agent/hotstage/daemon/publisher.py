# SPDX-License-Identifier: Apache-2.0
"""What a tick changed, made known in the one right order: page, database with its events, listeners.

The page is written at once; the database by the journal's thread, which rings the bell when a change is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hotstage.api.bell import Bell
from hotstage.api.stream import EventStream
from hotstage.breaker.page import BreakerPage, entry_of
from hotstage.breaker.record import BreakerRecord, BreakerState, Override, Transition
from hotstage.clock import Clock
from hotstage.config.settings import PageConfig, StoreConfig
from hotstage.config.snapshots import SnapshotsConfig
from hotstage.daemon.snapshot_keeper import KeeperState, MakeSnapshot, SnapshotKeeper
from hotstage.probes.restraint.governor import Step
from hotstage.probes.restraint.switch import Switch
from hotstage.sinks.events import EventMaker
from hotstage.store.journal import Journal, JournalState
from hotstage.store.outbox import Event
from hotstage.store.snapshots import SnapshotCause
from hotstage.store.store import Changes, Store
from hotstage.store.switches import SwitchMove
from hotstage.windows.window import WindowUpdate

CLOSE_SECONDS = 5.0
STEPS_TOLD = 16
"""Steps of the governor in one second that become events: a thousand processes may come at once."""

_OPENINGS = frozenset({BreakerState.open, BreakerState.forced_open})
_DEFAULT_LIMITS = SnapshotsConfig()


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
        snapshots: SnapshotsConfig = _DEFAULT_LIMITS,
    ) -> None:
        self._page = page
        self._page_config = page_config
        self._events = events
        self._clock = clock
        self.outbox_bell = Bell()
        self.stream = EventStream()
        self._journal = Journal(store, store_config.pending_max, self._committed)
        self._keeper = SnapshotKeeper(store, clock, snapshots)
        self._known: dict[str, Override | None] = {}

    def start(self) -> None:
        self._journal.start()
        self._keeper.start()

    def know(self, records: Iterable[BreakerRecord]) -> None:
        """Breakers that the database has already."""
        self._known = {record.name: record.override for record in records}

    def page(self, records: Iterable[BreakerRecord], now_ns: int) -> None:
        """Callers see these states from now on."""
        self._page.publish((entry_of(record, self._page_config) for record in records), now_ns)

    def changes(
        self,
        at_ns: int,
        windows: WindowUpdate,
        transitions: tuple[Transition, ...],
        records: tuple[BreakerRecord, ...],
        make_snapshot: MakeSnapshot,
    ) -> None:
        """Put what changed in line for the database, each change together with its events.

        `make_snapshot` is called later, if at all: it must hold what this tick has read.
        """
        offset_ns = self._clock.wall_ns_of(0)
        moved = {transition.name for transition in transitions}
        # An override that takes another's place moves nothing that is seen, but its time and actor count.
        unwritten = {
            record.name
            for record in records
            if record.name not in self._known or self._known[record.name] != record.override
        }
        self.know(records)
        snapshot_id = self._snapshot(windows, transitions, at_ns + offset_ns, make_snapshot)
        events = [
            *(self._events.window_opened(window, offset_ns) for window in windows.opened),
            *(
                self._events.transition(
                    move, offset_ns, snapshot_id=snapshot_id if move.to_state in _OPENINGS else None
                )
                for move in transitions
            ),
            *(self._events.window_closed(window, offset_ns) for window in windows.closed),
        ]
        self._journal.submit(
            Changes(
                at_ns=at_ns,
                wall_offset_ns=offset_ns,
                windows=(*windows.opened, *windows.updated, *windows.closed),
                breakers=tuple(record for record in records if record.name in moved | unwritten),
                transitions=transitions,
                events=tuple(events),
            )
        )

    def switched(self, switch: Switch, actor: str) -> None:
        """The kill switch has moved; from any thread."""
        move = SwitchMove(self._clock.wall_ns(), "off" if switch.is_off else "on", actor, switch.reason)
        self._tell(switches=(move,), events=(self._events.switched(move),))

    def stepped(self, steps: Sequence[Step]) -> None:
        """The governor has moved these processes. All of them are in the log, the first ones are events."""
        wall_ns = self._clock.wall_ns()
        self._tell(events=tuple(self._events.stepped(step, wall_ns) for step in steps[:STEPS_TOLD]))

    def _tell(self, events: tuple[Event, ...], switches: tuple[SwitchMove, ...] = ()) -> None:
        offset_ns = self._clock.wall_ns_of(0)
        at_ns = self._clock.monotonic_ns()
        self._journal.submit(Changes(at_ns=at_ns, wall_offset_ns=offset_ns, switches=switches, events=events))

    @property
    def is_writing(self) -> bool:
        """Whether the journal's thread runs; what the disk refuses is another matter."""
        return self._journal.is_running

    def journal_state(self) -> JournalState:
        return self._journal.state()

    def snapshot_state(self) -> KeeperState:
        return self._keeper.state()

    def close(self) -> int:
        """Write what waits, wake every listener; how many changes could not be written."""
        left = self._journal.stop(CLOSE_SECONDS)
        self._keeper.stop(CLOSE_SECONDS)
        self.stream.close()
        self.outbox_bell.close()
        self._page.close()
        return left

    def _snapshot(
        self,
        windows: WindowUpdate,
        transitions: tuple[Transition, ...],
        wall_ns: int,
        make_snapshot: MakeSnapshot,
    ) -> str | None:
        """One for all that opened in this tick; its id, None where nothing did or too many wait."""
        causes = (
            *(SnapshotCause("window", window.id, window.id) for window in windows.opened),
            *(
                SnapshotCause("breaker", move.name, move.window_id)
                for move in transitions
                if move.to_state in _OPENINGS
            ),
        )
        return self._keeper.keep(causes, wall_ns, make_snapshot) if causes else None

    def _committed(self, batch: list[Changes]) -> None:
        events: list[Event] = [event for changes in batch for event in changes.events]
        if events:
            self.outbox_bell.ring()
            self.stream.publish(events)
