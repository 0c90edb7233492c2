# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of one host, watches them, starts a fallen one again, and ends them in order.

It kills only what it started, by pid, and waits for each with a deadline; when it is killed itself, the
kernel ends its children. It knows no verb, no configuration.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hotstage.clock import Clock

log = logging.getLogger(__name__)

RESTART_BASE_SECONDS = 1.0
RESTART_MAX_SECONDS = 30.0
STOP_SECONDS = 10.0

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Child:
    """One supervised process. `essential`: when it ends with a preflight or permission code, all end."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    essential: bool = False
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    restart_at_ns: int | None = field(default=None)


class Supervisor:
    """A handful of children, started in order and stopped in reverse."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._children: list[Child] = []

    def start(self, child: Child) -> None:
        """Start it now; its standard error is ours, its standard output is discarded."""
        self._children.append(child)
        self._launch(child)

    def pid(self, name: str) -> int | None:
        """The pid of a running child; None when it is not running."""
        for child in self._children:
            if child.name == name and child.process is not None and child.process.poll() is None:
                return child.process.pid
        return None

    def watch(self) -> int | None:
        """Restart what has fallen; the code to end with when an essential child cannot run, else None."""
        for child in self._children:
            code = child.process.poll() if child.process else None
            if code is None:
                continue
            if child.restart_at_ns is None:
                if child.essential and code in {2, 4, 5}:
                    return code
                self._plan_restart(child, code)
            elif self._clock.monotonic_ns() >= child.restart_at_ns:
                child.restart_at_ns = None
                self._launch(child)
        return None

    def stop(self) -> None:
        """End all, last started first: SIGTERM, then SIGKILL after the deadline."""
        for child in reversed(self._children):
            process = child.process
            if process is None or process.poll() is not None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("did not end in time, killed", extra={"child": child.name, "pid": process.pid})
                process.kill()
                process.wait(STOP_SECONDS)
        self._children.clear()

    def _launch(self, child: Child) -> None:
        child.process = subprocess.Popen(
            list(child.command),
            env={**os.environ, **child.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=partial(_end_with, os.getpid()),  # noqa: PLW1509  # one thread; a system call, no lock
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then ends them in order
        )

    def _plan_restart(self, child: Child, code: int) -> None:
        delay_seconds = min(RESTART_MAX_SECONDS, RESTART_BASE_SECONDS * 2**child.restarts)
        child.restarts += 1
        child.restart_at_ns = self._clock.monotonic_ns() + round(delay_seconds * 1e9)
        log.warning(
            "ended unasked, will be started again",
            extra={"child": child.name, "code": code, "in_seconds": delay_seconds},
        )


def _end_with(parent_pid: int) -> None:
    """In the child, before its command: SIGTERM when the supervisor ends, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before the line above
        os._exit(1)
