# SPDX-License-Identifier: Apache-2.0
"""All that holds the probes back, as one object of the engine: what is denied, what is switched off.

It is told what the engine has loaded and attached, and says of a sample whether it may be believed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from hotstage.clock import Clock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.discovery.watch import Watch
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.maps.levels import rest
from hotstage.probes.restraint.books import RestrainedAttachments
from hotstage.probes.restraint.deny import DenyList, HostVersions
from hotstage.probes.samples import FastSample
from hotstage.probes.totals import TotalsBook

log = logging.getLogger(__name__)


class Restraint:
    """`let_go` and `take_up` at any time, before the start too; any thread may call."""

    def __init__(self, config: ProbesConfig, clock: Clock) -> None:
        self._clock = clock
        self._off: str | None = None
        self._lock = threading.Lock()
        self._books: RestrainedAttachments | None = None
        self._watch: Watch | None = None
        self._end_work: Callable[[Collection[int] | None], None] = lambda pids: None
        self.denies = DenyList.of(config.deny, HostVersions.read()).refusal
        """Why a library must not be probed; None: it may be."""

    def follow(
        self,
        books: RestrainedAttachments,
        end_work: Callable[[Collection[int] | None], None],
    ) -> None:
        """What is held back from now on. `end_work`: calls and requests of these processes (None: all) that
        are in flight will not be seen to end.
        """
        self._books, self._end_work = books, end_work
        if self._off is not None:
            books.let_go(self._off)

    def watch(self, watch: Watch) -> None:
        """Who finds libraries again."""
        self._watch = watch

    @property
    def off(self) -> str | None:
        """Why nothing is attached; None while libraries are."""
        return self._off

    def let_go(self, reason: str) -> float:
        """Detach every library now and attach none until `take_up`; the seconds it took."""
        with self._lock:
            self._off = reason
            if self._books is None:
                return 0.0
            seconds = self._books.let_go(reason)
            self._end_work(None)
            return seconds

    def take_up(self) -> None:
        """Attach what there is, as at the start: new epochs, what lies between is unobserved."""
        with self._lock:
            self._off = None
            if self._books is not None:
                self._books.take_up()
            if self._watch is not None:
                self._watch.look_anew()

    def judged(self, sample: FastSample) -> FastSample:
        """The sample, marked where nothing new can be in it."""
        return sample if self._off is None else replace(sample, is_blind=True)

    def close(self) -> None:
        """Nothing is asked of the engine's parts any more."""
        self._books = self._watch = None


def end_work(maps: KernelMaps, threads_fd: int, totals: TotalsBook, pids: Collection[int] | None) -> None:
    """What processes (None: all) had in flight when their probes went: calls are made and counted, requests
    are gone, no thread is in a stage. Only while no program runs for them; the caller holds the maps' lock.
    """
    threads = maps.threads()
    if pids is not None:
        threads = threads[np.isin(threads["tgid"], np.fromiter(pids, np.uint32, len(pids)))]
    totals.keep_threads(threads)
    rest(threads_fd, threads)
    maps.drop_requests(pids)
