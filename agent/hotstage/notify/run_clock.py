# SPDX-License-Identifier: Apache-2.0
"""The notifier's own clock: how long it has run, over all its runs. By it retries are due and given up.

A wall clock that is set back would stop them, one that is set forward would give everything up at once; a
monotonic one means nothing after a reboot.
"""

from __future__ import annotations

from hotstage.clock import Clock
from hotstage.store.db import Cursor, Database


class RunClock:
    """Goes on from what `keep` wrote last. Usable from any thread."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = kept(database) - clock.monotonic_ns()

    def now_ns(self) -> int:
        return self._clock.monotonic_ns() + self._offset_ns

    def keep(self, cursor: Cursor) -> None:
        """Write it with what is written anyway."""
        cursor.execute("UPDATE run_clock SET run_ns = max(run_ns, ?)", (self.now_ns(),))


def kept(database: Database) -> int:
    """As it was last written: what another process can know of it."""
    ((run_ns,),) = database.read("SELECT run_ns FROM run_clock")
    assert isinstance(run_ns, int)
    return run_ns
