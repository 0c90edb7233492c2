# SPDX-License-Identifier: Apache-2.0
"""When the agent may say that it is ready and alive, and what it says of itself in one line.

It judges this process only. What a restart would not mend is no reason to be restarted: a devices process
that hangs in the driver (the next agent meets the same driver, and the probes would be gone meanwhile), a
disk that refuses writes (they wait in memory), a target that cannot be attached. `/healthz` tells of those.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from hotstage.daemon.failures import TickFailures
from hotstage.daemon.publisher import Publisher
from hotstage.devices.samples import DevicesState
from hotstage.probes.engine import ProbeEngine
from hotstage.service import ServiceManager

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Signs:
    """What shows that the agent works. The tick itself is the first sign: it is what asks."""

    rings_are_drained: bool
    """False: what programs write into a ring is not taken out of it, though the tick reads it."""
    discovery_runs: bool
    """The thread that attaches to new processes."""
    journal_runs: bool
    """The thread that writes transitions and events."""
    ticks_come_through: bool = True
    """False: those that end a second have failed for long, though others come to their end."""

    def failing(self) -> tuple[str, ...]:
        found = {
            "rings are not drained": self.rings_are_drained,
            "discovery has ended": self.discovery_runs,
            "the journal's thread has ended": self.journal_runs,
            "ticks fail": self.ticks_come_through,
        }
        return tuple(what for what, is_well in found.items() if not is_well)


class Heartbeat:
    """`ticked` after every tick that came to its end: a tick that fails or hangs sends no beat."""

    def __init__(
        self, service: ServiceManager, signs: Callable[[], Signs], status: Callable[[], str]
    ) -> None:
        self._service = service
        self._signs = signs
        self._status = status
        self._is_ready = False
        self._failing: tuple[str, ...] = ()
        self._note = ""

    def ticked(self, *, is_slow: bool) -> None:
        """Ready after the first one; then a beat while all signs are good, a status once a second."""
        if not self._is_ready:
            self._is_ready = True
            self._service.ready(self._status())
        failing = self._signs().failing()
        if not failing:
            self._service.beat()
        if failing != self._failing:
            self._failing = failing
            if failing:
                log.error("the agent is not well; a service manager restarts it", extra={"signs": failing})
            else:
                log.info("the agent is well again")
        if is_slow:
            self._service.status(self._line())

    def reloading(self) -> None:
        self._service.reloading()

    def reloaded(self, note: str = "") -> None:
        """`note` stays in the status until the next reload: why the last one changed nothing."""
        self._note = note
        self._service.ready(self._line())

    def stopping(self) -> None:
        self._service.stopping()

    def _line(self) -> str:
        return "; ".join(part for part in (*self._failing, self._status(), self._note) if part)


def signs_of(engine: ProbeEngine, publisher: Publisher, failures: TickFailures) -> Signs:
    """As of now."""
    return Signs(
        rings_are_drained=engine.rings_are_drained(),
        discovery_runs=engine.following.is_running,
        journal_runs=publisher.is_writing,
        ticks_come_through=not failures.are_lasting(),
    )


def status_line(engine: ProbeEngine, devices: DevicesState) -> str:
    """`attached: 96 points in 2 processes, rung S through libbpf; …`: no name that a target chose."""
    processes = len(engine.pids())
    attached = f"{engine.following.books.counts()[0]} points in {processes} process{'es' * (processes != 1)}"
    through = engine.beside.xid.side.through
    kernel_log = f"kernel log through {through}" if through else "kernel log not read"
    return (
        f"attached: {attached}, rung {engine.rung} through {engine.loader}; {kernel_log}; "
        f"GPU values: {devices.value}"
    )
