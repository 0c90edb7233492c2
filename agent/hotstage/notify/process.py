# SPDX-License-Identifier: Apache-2.0
"""The notifier as a process: one puller, one worker a destination, a clean end.

It needs no privilege at all.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from hotstage.clock import Clock, SystemClock
from hotstage.config.settings import NotifyConfig
from hotstage.errors import ConfigError, PeerError, StoreError
from hotstage.notify.db import HeldEvent, NotifyDatabase
from hotstage.notify.delivery import Outcome, RetryPolicy, Worker, attempt
from hotstage.notify.destinations import Target
from hotstage.notify.post import Limits, Poster
from hotstage.notify.pull import Agent, Puller

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
REPORT_SECONDS = 10.0
_REPORT_PAUSE_SECONDS = 0.25
_PRUNE_SECONDS = 3600.0


class Notifier:
    """Wires the parts; `start` and `stop` may be used without signals."""

    def __init__(self, config: NotifyConfig, environment: Mapping[str, str], clock: Clock) -> None:
        """Raises ConfigError for a destination that cannot be, StoreError for a directory that cannot be
        used.
        """
        self.targets = targets_of(config, environment)
        self._clock = clock
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self.database = NotifyDatabase(Path(config.directory))
        self.database.register({target.name: target.shown_url for target in self.targets})
        poster = Poster(limits_of(config))
        policy = RetryPolicy(
            config.retry_base_seconds, config.retry_max_seconds, config.give_up_after_seconds
        )
        self._workers = [
            Worker(target, self.database, poster, policy, clock, self._changed.set) for target in self.targets
        ]
        self._puller = Puller(
            Agent(config.agent_socket), self.database, self.targets, clock, self._wake_workers
        )
        self._threads = [
            threading.Thread(target=self._puller.run, name="hotstage-pull", daemon=True),
            threading.Thread(target=self._keep_house, name="hotstage-report", daemon=True),
        ]

    def start(self) -> None:
        for worker in self._workers:
            worker.start()
        for thread in self._threads:
            thread.start()
        log.info("notifier started", extra={"destinations": [target.name for target in self.targets]})

    def stop(self) -> None:
        """End within two seconds.

        A delivery that is under way is made again by the next run, with the same id.
        """
        self._stopping.set()
        self._changed.set()
        self._puller.stop()
        until = time.monotonic() + STOP_SECONDS
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.join(max(0.0, until - time.monotonic()))

    def _wake_workers(self) -> None:
        for worker in self._workers:
            worker.wake()

    def _keep_house(self) -> None:
        """Report when counts have moved, or every ten seconds; forget old rows once an hour."""
        prune_at = 0.0
        while not self._stopping.is_set():
            self._changed.wait(REPORT_SECONDS)
            self._changed.clear()
            try:
                self._puller.report()
                if time.monotonic() >= prune_at:
                    self.database.prune(self._clock.wall_ns())
                    prune_at = time.monotonic() + _PRUNE_SECONDS
            except (PeerError, StoreError) as error:
                log.debug("%s", error.message)
            self._stopping.wait(_REPORT_PAUSE_SECONDS)


def run(config: NotifyConfig) -> None:
    """Until SIGTERM or SIGINT. Raises ConfigError or StoreError before anything has begun."""
    # Blocked here and in every thread, and taken by `sigwait`: a handler that sets an event can come just
    # before the main thread begins to wait for it, and is then not run until something else wakes it.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    notifier = Notifier(config, os.environ, SystemClock())
    notifier.start()
    signal.sigwait(ends)
    notifier.stop()
    log.info("notifier stopped")


def send_test(config: NotifyConfig, name: str, event: HeldEvent, environment: Mapping[str, str]) -> Outcome:
    """Post `event` to one destination now, past the queue: what `hotstage webhook test` does."""
    for target in targets_of(config, environment):
        if target.name == name:
            return attempt(target, event, Poster(limits_of(config)), SystemClock().wall_ns())
    known = ", ".join(destination.name for destination in config.destinations) or "none"
    raise ConfigError(f"no destination {name}", remedy=f"configured: {known}")


def targets_of(config: NotifyConfig, environment: Mapping[str, str]) -> list[Target]:
    """The destinations, checked. Raises ConfigError."""
    targets = [Target.of(destination, environment) for destination in config.destinations]
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two destinations are named {name}", remedy="names tell destinations apart")
    return targets


def limits_of(config: NotifyConfig) -> Limits:
    return Limits(config.connect_timeout_seconds, config.total_timeout_seconds)
