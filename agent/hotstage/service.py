# SPDX-License-Identifier: Apache-2.0
"""What a process tells the service manager that started it: ready, alive, reloading, ending (sd_notify(3)).

Standard library only, since the explorer imports it too. It never raises, never decides whether a process is
well, and is silent where nobody listens.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Protocol

log = logging.getLogger(__name__)

SEND_SECONDS = 0.2
"""The manager's queue is long; where it is full for so long, one message is given up and counted."""
STATUS_LIMIT = 400
_BEATS_A_DEADLINE = 3
"""Two may be late or lost before the third one is due."""


class ServiceManager(Protocol):
    """Who started this process, or nobody. No verb raises; all may be called at any time from any thread."""

    watchdog_seconds: float | None
    """A process silent for longer is killed and started again; None: nobody counts."""

    def ready(self, status: str) -> None:
        """Start-up, or a reload, is over."""
        ...

    def status(self, text: str) -> None:
        """One line for people; sent when it differs from the last one."""
        ...

    def beat(self) -> None:
        """All is well now. Call it as often as you like: it is sent three times within the deadline."""
        ...

    def reloading(self) -> None:
        """The configuration is being read anew; `ready` ends it."""
        ...

    def stopping(self) -> None:
        """The end has begun."""
        ...


class NoManager:
    """Nobody listens: started by hand, by a container, by `hotstage up`."""

    watchdog_seconds: float | None = None

    def ready(self, status: str) -> None: ...

    def status(self, text: str) -> None: ...

    def beat(self) -> None: ...

    def reloading(self) -> None: ...

    def stopping(self) -> None: ...


class Systemd:
    """Datagrams to the socket that NOTIFY_SOCKET names."""

    def __init__(self, address: str, watchdog_seconds: float | None = None) -> None:
        """`address` is a path, or `@` and an abstract name."""
        # A leading @ stands for the NUL byte of the abstract namespace.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds
        self.unsent = 0
        """Messages that could not be sent."""
        self._status = ""
        self._beat_due = 0.0

    def ready(self, status: str) -> None:
        self._status = one_line(status)
        self._send("READY=1", f"STATUS={self._status}")

    def status(self, text: str) -> None:
        line = one_line(text)
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def beat(self) -> None:
        if self.watchdog_seconds is None or time.monotonic() < self._beat_due:
            return
        self._beat_due = time.monotonic() + self.watchdog_seconds / _BEATS_A_DEADLINE
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        # The time tells this reload from a signal that comes while it is under way.
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(SEND_SECONDS)
                channel.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            self.unsent += 1
            if self.unsent == 1:
                log.warning("the service manager does not listen", extra={"reason": str(error)})


def service_manager(environment: Mapping[str, str], pid: int | None = None) -> ServiceManager:
    """The manager that the environment names; `pid` is this process's own unless a test says otherwise."""
    address = environment.get("NOTIFY_SOCKET", "")
    if len(address) < 2 or address[0] not in "/@":
        return NoManager()
    return Systemd(address, _watchdog_seconds(environment, os.getpid() if pid is None else pid))


def one_line(text: str) -> str:
    """A newline would begin another variable of the message."""
    return "".join(char if char.isprintable() else " " for char in text)[:STATUS_LIMIT]


def _watchdog_seconds(environment: Mapping[str, str], pid: int) -> float | None:
    """None where no deadline is set, or it is set for another process than this one."""
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    with contextlib.suppress(ValueError, OverflowError):
        microseconds = int(environment.get("WATCHDOG_USEC", ""))
        return microseconds / 1e6 if microseconds > 0 else None
    return None
