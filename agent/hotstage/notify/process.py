# SPDX-License-Identifier: Apache-2.0
"""The notifier as a process: one puller, one worker a destination, a clean end.

It needs no privilege at all.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from hotstage.clock import Clock, SystemClock
from hotstage.config.notify import NotifyConfig
from hotstage.errors import HotstageError, PeerError, StoreError
from hotstage.notify.attempt import Outcome, attempt
from hotstage.notify.db import Counts, HeldEvent, NotifyDatabase
from hotstage.notify.delivery import RetryPolicy, Worker
from hotstage.notify.destinations import RefusedTarget, Resolver, Target, read_targets, system_resolver
from hotstage.notify.formats.context import Context
from hotstage.notify.post import Limits, Poster
from hotstage.notify.pull import Agent, Puller
from hotstage.service import ServiceManager

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
REPORT_SECONDS = 10.0
_REPORT_PAUSE_SECONDS = 0.25
_PRUNE_SECONDS = 3600.0
_KEEP_TIME_SECONDS = 60.0
_LOOK_SECONDS = 1.0


class Notifier:
    """Wires the parts; `start` and `stop` may be used without signals."""

    def __init__(
        self,
        config: NotifyConfig,
        environment: Mapping[str, str],
        clock: Clock,
        resolver: Resolver = system_resolver,
    ) -> None:
        """Raises ConfigError for two destinations of one name, StoreError for a directory that cannot be
        used. A destination that is refused by itself stops nobody: its events wait.
        """
        self.targets, self.refused = read_targets(config.destinations, environment)
        self._clock = clock
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self.database = NotifyDatabase(Path(config.directory), clock)
        known: list[Target | RefusedTarget] = [*self.targets, *self.refused]
        self.database.register({each.name: each.identity for each in known})
        poster = Poster(limits_of(config), resolver)
        policy = RetryPolicy(
            config.retry_base_seconds, config.retry_max_seconds, config.give_up_after_seconds
        )
        context = context_of(config)
        self._workers = {
            target.name: Worker(target, self.database, poster, policy, clock, context, self._changed.set)
            for target in self.targets
        }
        self._puller = Puller(
            Agent(config.agent_socket), self.database, known, clock, self._wake_workers, self._told_of
        )
        self._threads = [
            threading.Thread(target=self._puller.run, name="hotstage-pull", daemon=True),
            threading.Thread(target=self._keep_house, name="hotstage-report", daemon=True),
        ]

    def start(self) -> None:
        for refused in self.refused:
            log.error(
                "destination refused, its events wait: %s",
                refused.reason,
                extra={"destination": refused.name, "remedy": refused.remedy},
            )
        for worker in self._workers.values():
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
        for worker in self._workers.values():
            worker.stop()
        for worker in self._workers.values():
            worker.join(max(0.0, until - time.monotonic()))
        self.database.close()

    def fallen(self) -> list[str]:
        """Names of threads that should run and do not: an error that nobody foresaw has ended them."""
        alive = [(thread.name, thread.is_alive()) for thread in self._threads]
        alive += [(worker.name, worker.is_alive()) for worker in self._workers.values()]
        return [name for name, is_alive in alive if not is_alive]

    def status(self) -> str:
        """One line for people."""
        told = [
            f"{verb} {', '.join(each.name for each in those)}"
            for verb, those in (("delivering to", self.targets), ("refused:", self.refused))
            if those
        ]
        return "; ".join(told) or "no destination is configured"

    def _wake_workers(self) -> None:
        for worker in self._workers.values():
            worker.wake()

    def _told_of(self, counts: Counts) -> Mapping[str, object]:
        """What the agent's metrics say of a destination beside its counts."""
        worker = self._workers.get(counts.name)
        if worker is None:
            return {"is_refused": True}
        per_bucket, seconds = worker.durations.total()
        return {"duration_counts": per_bucket, "duration_sum_seconds": seconds}

    def _keep_house(self) -> None:
        """Report when counts have moved, or every ten seconds; forget old rows once an hour."""
        prune_at, keep_at = 0.0, time.monotonic() + _KEEP_TIME_SECONDS
        while not self._stopping.is_set():
            self._changed.wait(REPORT_SECONDS)
            self._changed.clear()
            try:
                if time.monotonic() >= keep_at:
                    keep_at = time.monotonic() + _KEEP_TIME_SECONDS
                    self.database.keep_time()
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
        elif may_begin_again(service, read, notifier):
            break
    notifier.stop()
    log.info("notifier stopped")
    return taken.si_signo == signal.SIGHUP


def may_begin_again(service: ServiceManager, read: Callable[[], NotifyConfig], notifier: Notifier) -> bool:
    """Whether the configuration as it is now can be begun with. A wrong one changes nothing and is told: so
    is one in which a destination would be refused that works now, or a directory that cannot be used.
    """
    service.reloading()
    try:
        _try(read(), notifier)
    except HotstageError as error:
        reason, remedy = error.message, error.remedy
    except Exception as error:
        log.exception("a reload failed in a way that nobody foresaw")
        reason, remedy = f"{type(error).__name__}: {error}", "`hotstage config check`"
    else:
        return True
    log.error("not reloaded: %s", reason, extra={"remedy": remedy})
    service.ready(f"{notifier.status()}; not reloaded: {reason}")
    return False


def _try(config: NotifyConfig, notifier: Notifier) -> None:
    """Whatever could end the next run at its start. Raises HotstageError."""
    _, refused = read_targets(config.destinations, os.environ)
    working = {target.name for target in notifier.targets}
    for each in refused:
        if each.name in working:
            raise HotstageError(each.reason, remedy=each.remedy)
    directory, held = Path(config.directory), notifier.database.database.path
    if not _is_same(directory, held.parent):
        NotifyDatabase(directory).close()
    elif not all(os.access(place, os.R_OK | os.W_OK) for place in (directory, held)):
        raise StoreError(
            f"cannot write in {directory} any more", remedy="give it back to the notifier's user"
        )


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def send_test(
    config: NotifyConfig, target: Target, event: HeldEvent, resolver: Resolver = system_resolver
) -> Outcome:
    """Post `event` to one destination now, past the queue: what `hotstage webhook test` does."""
    context = replace(
        context_of(config), sent_ns=SystemClock().wall_ns(), resend_seconds=target.resend_seconds
    )
    return attempt(target, event, Poster(limits_of(config), resolver), context)


def context_of(config: NotifyConfig) -> Context:
    return Context(host=config.host or socket.gethostname(), explorer_url=config.explorer_url)


def limits_of(config: NotifyConfig) -> Limits:
    return Limits(config.connect_timeout_seconds, config.total_timeout_seconds)
