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
from collections.abc import Callable, Mapping
from pathlib import Path

from hotstage.clock import Clock, SystemClock
from hotstage.config.settings import NotifyConfig
from hotstage.errors import ConfigError, HotstageError, PeerError, StoreError
from hotstage.notify.db import HeldEvent, NotifyDatabase
from hotstage.notify.delivery import Outcome, RetryPolicy, Worker, attempt
from hotstage.notify.destinations import Target
from hotstage.notify.post import Limits, Poster
from hotstage.notify.pull import Agent, Puller
from hotstage.service import ServiceManager

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
REPORT_SECONDS = 10.0
_REPORT_PAUSE_SECONDS = 0.25
_PRUNE_SECONDS = 3600.0
_LOOK_SECONDS = 1.0


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

    def fallen(self) -> list[str]:
        """Names of threads that should run and do not: an error that nobody foresaw has ended them."""
        alive = [(thread.name, thread.is_alive()) for thread in self._threads]
        alive += [(worker.name, worker.is_alive()) for worker in self._workers]
        return [name for name, is_alive in alive if not is_alive]

    def status(self) -> str:
        """One line for people."""
        names = ", ".join(target.name for target in self.targets)
        return f"delivering to {names}" if names else "no destination is configured"

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


def run(config: NotifyConfig, service: ServiceManager, read: Callable[[], NotifyConfig]) -> bool:
    """Until SIGTERM or SIGINT → False, or until SIGHUP finds a valid configuration → True: begin again.

    `read` gives the configuration as it is now. Raises ConfigError or StoreError before anything has begun.
    """
    # Blocked here and in every thread, and taken by `sigtimedwait`: a handler that sets an event can come
    # just before the main thread begins to wait for it, and is then not run until something else wakes it.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    notifier = Notifier(config, os.environ, SystemClock())
    notifier.start()
    service.ready(notifier.status())
    has_fallen = False
    while True:
        taken = signal.sigtimedwait(signals, _LOOK_SECONDS)
        if taken is None:
            fallen = notifier.fallen()
            if not fallen:
                service.beat()
            elif not has_fallen:
                has_fallen = True
                log.error("parts of the notifier have ended; it must be restarted", extra={"threads": fallen})
                service.status(f"must be restarted: {', '.join(fallen)} ended")
        elif taken.si_signo != signal.SIGHUP:
            service.stopping()
            break
        elif _may_begin_again(service, read, notifier.status()):
            break
    notifier.stop()
    log.info("notifier stopped")
    return taken.si_signo == signal.SIGHUP


def _may_begin_again(service: ServiceManager, read: Callable[[], NotifyConfig], status: str) -> bool:
    """Whether the configuration as it is now can be begun with. A wrong one changes nothing and is told."""
    service.reloading()
    try:
        targets_of(read(), os.environ)
    except HotstageError as error:
        log.error("not reloaded: %s", error.message, extra={"remedy": error.remedy})
        service.ready(f"{status}; not reloaded: {error.message}")
        return False
    return True


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
