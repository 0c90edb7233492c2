# SPDX-License-Identifier: Apache-2.0
"""Who is watched: discovery finds libraries, trials try them, the books attach them and say what holds.

The one place where these three meet. It counts nothing and reads no map.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hotstage.clock import Clock
from hotstage.config.settings import ProbesConfig
from hotstage.errors import HotstageError
from hotstage.probes.catalogue.spec import Tier
from hotstage.probes.coverage import DiscoveryHealth
from hotstage.probes.departures import Departures
from hotstage.probes.discovery.libraries import is_library, optional_kinds
from hotstage.probes.discovery.processes import ProcessTable
from hotstage.probes.discovery.targets import inspect_library
from hotstage.probes.discovery.watch import Watch
from hotstage.probes.loader.base import Loader, Rung
from hotstage.probes.restraint.books import RestrainedAttachments
from hotstage.probes.restraint.restraint import Restraint
from hotstage.probes.trial.trials import LibraryTrials, NoTrials, Trials

SETTLE_SECONDS = 1.0
"""How long `start` waits for the first scan: what hangs longer is attached when it answers."""

log = logging.getLogger(__name__)


class Following:
    """`begin` makes the books, `start` scans and follows; `stop`, then `let_go`. Any thread may ask."""

    def __init__(
        self, config: ProbesConfig, clock: Clock, restraint: Restraint, is_own: Callable[[int], bool]
    ) -> None:
        """`is_own` names the watcher's own processes: NVML maps libcuda, and is no server."""
        self._config = config
        self._clock = clock
        self._restraint = restraint
        self._is_own = is_own
        self._linger_ns = int(config.process_linger_seconds * 1e9)
        self.departures = Departures(self._linger_ns)
        """Who has gone, for whoever keeps something by process."""
        self._books: RestrainedAttachments | None = None
        self._watch: Watch | None = None
        self._trials: Trials = NoTrials()

    def begin(self, loader: Loader, rung: Rung) -> RestrainedAttachments:
        """The programs are loaded: books that attach them, empty so far."""
        user_of = ProcessTable(Path(self._config.proc_root)).user
        self._books = RestrainedAttachments(
            loader,
            self._clock,
            linger_ns=self._linger_ns,
            departures=self.departures,
            denies=self._restraint.denies,
            has_own_links=rung is Rung.SESSION,
            user_of=user_of,
        )
        if self._config.canary:
            self._trials = LibraryTrials(rung, self._clock, user_of=user_of, has_room=self._books.has_room)
        return self._books

    def start(self, rung: Rung) -> None:
        """Attach what there is, and from now on what comes."""
        config = self._config
        self._watch = Watch(
            ProcessTable(Path(config.proc_root)),
            self.books,
            self._clock,
            inspect=partial(
                inspect_library,
                fast_placement=config.fast_placement,
                essential_only=rung is Rung.PERF,
                tier=Tier[config.tier],
                try_out=self._trials.try_out,
            ),
            deadline_seconds=config.discovery_deadline_seconds,
            is_own=lambda pid: self._trials.owns(pid) or self._is_own(pid),
            is_wanted=partial(is_library, optional=optional_kinds(config)),
        )
        self._restraint.watch(self._watch)
        if not self._watch.start(SETTLE_SECONDS):
            log.warning("some processes do not answer; their libraries are attached when they do")
        self._trials.started()

    @property
    def books(self) -> RestrainedAttachments:
        """What is attached and what is not, by process."""
        if self._books is None:
            raise HotstageError("the probes are not started")
        return self._books

    def pids(self) -> list[int]:
        """Processes that have a known library now; none before the start."""
        return [] if self._books is None else self._books.pids()

    def health(self) -> DiscoveryHealth:
        """What the search for processes could not see."""
        watch = self._watch
        if watch is None:
            raise HotstageError("the probes are not started")
        return DiscoveryHealth(
            stuck=watch.stuck,
            abandoned=watch.abandoned_total,
            lost_records=watch.lost_records,
            truncated=watch.truncated_maps,
            rescans=watch.rescans,
            limited=self.books.limited,
            held_back=watch.held_back,
        )

    @property
    def is_running(self) -> bool:
        """Whether the thread that attaches to new processes runs."""
        return self._watch is not None and self._watch.is_following

    def stop(self) -> None:
        """Nothing new is attached any more."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def let_go(self) -> None:
        """Detach everything, end what is being tried."""
        self._trials.close()
        books, self._books = self._books, None
        if books is not None:
            books.close()
