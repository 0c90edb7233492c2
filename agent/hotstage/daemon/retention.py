# SPDX-License-Identifier: Apache-2.0
"""The thread that has old rows forgotten, now and then. What is old: `store/retention.py`.

A wall clock that jumps ahead must not make everything old at once: a row's age counts by the time that has
passed since this run began, as far as it reaches, and by the wall clock only where that says less.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from hotstage.clock import Clock
from hotstage.config.settings import StoreConfig
from hotstage.errors import StoreError
from hotstage.store.db import Database
from hotstage.store.retention import prune

log = logging.getLogger(__name__)

PRUNE_SECONDS = 600.0


class Retention:
    """`start` once; ends with the event `stop`. `on_expired` hears of events that nobody fetched in time."""

    def __init__(
        self,
        database: Database,
        config: StoreConfig,
        clock: Clock,
        stop: threading.Event,
        on_expired: Callable[[int], None],
    ) -> None:
        self._database = database
        self._keep_ns = round(config.retention_days * 86_400e9)
        self._max_bytes = config.max_bytes
        self._clock = clock
        self._stop = stop
        self._on_expired = on_expired
        self._wall_at_start_ns = clock.wall_ns()
        self._began_ns = clock.monotonic_ns()

    def start(self) -> None:
        threading.Thread(target=self._run, name="hotstage-retention", daemon=True).start()

    def now_ns(self) -> int:
        """Wall time from which ages count: never further from the start of the run than time has passed."""
        passed_ns = self._clock.monotonic_ns() - self._began_ns
        return min(self._clock.wall_ns(), self._wall_at_start_ns + passed_ns)

    def prune(self) -> None:
        try:
            gone = prune(self._database, self.now_ns(), self._keep_ns, self._max_bytes)
        except StoreError as error:
            log.warning("old rows were not removed: %s", error.message)
        else:
            self._on_expired(gone.events_lost)

    def _run(self) -> None:
        while not self._stop.wait(PRUNE_SECONDS):
            self.prune()
