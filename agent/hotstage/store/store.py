# SPDX-License-Identifier: Apache-2.0
"""hotstage.db: what the agent knows that must outlive it. One transaction for a change and the events it
causes.

Only the agent writes this file. The store never retries by itself: `journal.Journal` does.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hotstage.breaker.record import BreakerRecord, Transition
from hotstage.clock import Clock
from hotstage.errors import StoreError
from hotstage.store import breakers, outbox, switches, windows
from hotstage.store.db import Database, lock_directory
from hotstage.store.switches import SwitchMove
from hotstage.windows.window import AnomalyWindow

FILE_NAME = "hotstage.db"


@dataclass(frozen=True, slots=True)
class Changes:
    """What one tick changed. All of it is written, or nothing.

    `wall_offset_ns` is wall minus monotonic time as it was then: a write that had to wait keeps its dates.
    """

    at_ns: int
    wall_offset_ns: int
    windows: tuple[AnomalyWindow, ...] = ()
    breakers: tuple[BreakerRecord, ...] = ()
    transitions: tuple[Transition, ...] = ()
    events: tuple[outbox.Event, ...] = ()
    switches: tuple[SwitchMove, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.windows or self.breakers or self.transitions or self.switches or self.events)


class Store:
    """The open database. Methods may be called from any thread; all raise StoreError."""

    def __init__(self, directory: Path, clock: Clock, boot_id: str) -> None:
        self.directory = directory
        self._clock = clock
        self._boot_id = boot_id
        self._lock = lock_directory(directory, "store.directory")
        try:
            self.database = Database(directory / FILE_NAME, "hotstage.store.migrations")
            self.store_id = self._identify()
        except BaseException:
            os.close(self._lock)
            raise
        self._run_id: int | None = None

    def begin_run(
        self, event_of_interrupted: Callable[[windows.StoredWindow], outbox.Event]
    ) -> list[windows.StoredWindow]:
        """Take over from the run before: its open windows become `interrupted`, each with its event."""
        with self.database.transaction() as cursor:
            interrupted = windows.interrupt_open(cursor)
            outbox.append(cursor, (event_of_interrupted(stored) for stored in interrupted))
            cursor.execute(
                "INSERT INTO runs (boot_id, started_wall_ns) VALUES (?, ?)",
                (self._boot_id, self._clock.wall_ns()),
            )
            self._run_id = cursor.lastrowid
        return interrupted

    def commit(self, many: Iterable[Changes]) -> None:
        """Write these changes, in order, in one transaction that is on disk when this returns."""
        with self.database.transaction() as cursor:
            for changes in many:
                offset = changes.wall_offset_ns
                moment = breakers.Moment(self._boot_id, changes.at_ns, changes.at_ns + offset)
                for window in changes.windows:
                    windows.save(cursor, window, offset)
                for record in changes.breakers:
                    breakers.save(cursor, record, moment)
                for transition in changes.transitions:
                    breakers.append(cursor, transition, offset)
                for move in changes.switches:
                    switches.append(cursor, move)
                outbox.append(cursor, changes.events)

    def restored_breakers(self) -> list[BreakerRecord]:
        """Every breaker of earlier runs, on this boot's clock."""
        now = breakers.Moment(self._boot_id, self._clock.monotonic_ns(), self._clock.wall_ns())
        return breakers.load_all(self.database, now)

    def close(self) -> None:
        """A clean end. What cannot be written any more is not worth a failure: the next start repairs it."""
        try:
            if self._run_id is not None:
                with self.database.transaction(settles=True) as cursor:
                    cursor.execute(
                        "UPDATE runs SET stopped_wall_ns = ? WHERE run_id = ?",
                        (self._clock.wall_ns(), self._run_id),
                    )
        except StoreError:
            pass
        finally:
            self.database.close()
            os.close(self._lock)

    def _identify(self) -> str:
        """A name for this file's life: a notifier that sees another one counts from the beginning."""
        with self.database.transaction() as cursor:
            cursor.execute(
                "INSERT INTO meta (key, value) VALUES ('store_id', ?) ON CONFLICT (key) DO NOTHING",
                (uuid.uuid4().hex,),
            )
        ((store_id,),) = self.database.read("SELECT value FROM meta WHERE key = 'store_id'")
        return str(store_id)
