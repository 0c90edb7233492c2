# SPDX-License-Identifier: Apache-2.0
"""The kill switch at work: follows its file, and puts people's orders and signals into it.

A thread of its own, so that it works while ticks stand still. What is ordered is done within a second on the
rungs S and M; perf-event links (rung P) take the kernel 0.1 s each.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from hotstage.api.message import ApiError
from hotstage.api.probes import SwitchOrder
from hotstage.clock import Clock, rfc3339
from hotstage.errors import HotstageError
from hotstage.probes.restraint.restraint import Restraint
from hotstage.probes.restraint.switch import Switch, SwitchFile

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
ANSWER_SECONDS = 15.0

Document = dict[str, Any]
Told = Callable[[Switch, str], None]
"""Hears of each change: the switch as it is now, and who moved it."""


class ProbeSwitch:
    """`start` after the engine; `order` and `ask` from any thread, `ask` from a signal handler, too."""

    def __init__(self, file: SwitchFile, restraint: Restraint, clock: Clock, told: Told) -> None:
        """What the file says holds at once: an engine that starts later attaches nothing while it is off."""
        self._file = file
        self._restraint = restraint
        self._clock = clock
        self._told = told
        self._applying = threading.Lock()
        self._stop = threading.Event()
        self._asked: deque[bool] = deque(maxlen=1)
        self._unwritten: Switch | None = None  # off, and its file could not be made yet
        self._thread = threading.Thread(target=self._run, name="hotstage-switch", daemon=True)
        self._known_ns = clock.wall_ns()
        self._switch = file.read()
        if self._switch.is_off:
            restraint.let_go(self._switch.sentence)

    @property
    def switch(self) -> Switch:
        return self._switch

    @property
    def off_since_ns(self) -> int | None:
        """Wall time since when the probes are off, or this agent knows it where the file does not tell; None:
        they are on.
        """
        now = self._switch
        if not now.is_off:
            return None
        return self._known_ns if now.since_ns is None else now.since_ns

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def ask(self, *, off: bool) -> None:
        """What a signal asks for; done by the thread at its next look. It takes no lock: another signal may
        come in the middle of it, on the same thread.
        """
        self._asked.append(off)

    def order(self, order: SwitchOrder, actor: str) -> Document:
        """Carry it out and say how it stands then. Raises ApiError."""
        try:
            self._move(order.state == "off", actor, order.reason)
        except HotstageError as error:
            raise ApiError(503, "switch_file", error.message, error.remedy or "see /healthz") from error
        return self.document()

    def document(self) -> Document:
        """As `GET /v1/probes` tells it."""
        now = self._switch
        return {
            "state": "off" if now.is_off else "on",
            "actor": now.actor,
            "reason": now.reason,
            "since": None if now.since_ns is None else rfc3339(now.since_ns),
            "since_ns": now.since_ns,
        }

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(LOOK_SECONDS)
            try:
                if self._asked:
                    asked = self._asked.pop()
                    name = "SIGUSR1" if asked else "SIGUSR2"
                    self._move(asked, "a signal", f"{name} was sent to the agent")
                else:
                    self._apply(self._file.read(), "the switch's file")
            except HotstageError as error:
                log.error("the probes cannot be switched: %s", error.message, extra={"remedy": error.remedy})
            except Exception:  # a switch that has died would be found out when it is needed
                log.exception("the probes cannot be switched")

    def _move(self, off: bool, actor: str, reason: str) -> None:
        """Off is done first and written then: a full disk is no reason to stay attached."""
        wall_ns = self._clock.wall_ns()
        if off:
            with self._applying:
                if not self._switch.is_off:
                    self._unwritten = Switch(True, actor, reason or None, wall_ns)
                    self._carry_out(self._unwritten, actor)
                self._write()
        else:
            with self._applying:
                self._file.on()
                self._unwritten = None
                if self._switch.is_off:
                    self._carry_out(Switch(False, actor, reason or None, wall_ns), actor)

    def _apply(self, found: Switch, actor: str) -> None:
        with self._applying:
            if self._unwritten is not None:
                self._write()  # what has no file yet is not switched on by its absence
            if found.is_off == self._switch.is_off:
                return
            # Read again under the lock: an order may have moved both since.
            found = self._file.read()
            if found.is_off != self._switch.is_off:
                self._carry_out(found, found.actor or actor)

    def _write(self) -> None:
        if self._unwritten is not None:
            now = self._unwritten
            self._file.off(
                actor=now.actor or "", reason=now.reason or "no reason given", wall_ns=now.since_ns or 0
            )
            self._unwritten = None

    def _carry_out(self, switch: Switch, actor: str) -> None:
        self._known_ns = self._clock.wall_ns()
        self._switch = switch
        if switch.is_off:
            seconds = self._restraint.let_go(switch.sentence)
            log.warning(
                "all probes are switched off",
                extra={"actor": actor, "reason": switch.reason, "seconds": round(seconds, 3)},
            )
        else:
            self._restraint.take_up()
            log.warning("the probes are switched on again", extra={"actor": actor, "reason": switch.reason})
        self._told(switch, actor)
