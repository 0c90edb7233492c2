# SPDX-License-Identifier: Apache-2.0
"""A program of `programs/` as a process: started, told what to do, ended. Every wait has a deadline."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any

END_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class TargetError(Exception):
    """A program ended, refused or did not answer; the message says which, to what."""


class Target:
    """`with Target(…) as target: target.tell("verb", …)`. Standard error goes to the log."""

    def __init__(
        self, python: str, module: str, *arguments: str, environment: Mapping[str, str], log: IO[bytes]
    ) -> None:
        self.name = module
        log.write(f"--- {module} {' '.join(arguments)}\n".encode())
        log.flush()
        self.process = subprocess.Popen(
            [python, "-m", f"gpu_checks.programs.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(environment),
            text=True,
            preexec_fn=end_with_us(),  # noqa: PLW1509  # system calls only, no lock
        )
        self.pid = self.process.pid

    def tell(self, verb: str, *, within_seconds: float = 30.0, **arguments: Any) -> dict[str, Any]:
        """Say it and wait for the answer. Raises TargetError."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps({"do": verb, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise TargetError(f"{self.name} ended before {verb}: see programs.log") from None
        readable, _, _ = select.select([self.process.stdout], [], [], within_seconds)
        if not readable:
            raise TargetError(f"{self.name} did not answer {verb} within {within_seconds:g} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait(END_SECONDS)
            raise TargetError(f"{self.name} ended with {code} in {verb}: see programs.log")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise TargetError(f"{self.name} {verb}: {answer['error']}")
        return answer

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Close its input, wait for it, and kill it when that takes too long."""
        assert self.process.stdin and self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_SECONDS)
        self.process.stdout.close()


def end_with_us() -> Callable[[], None]:
    """For a child, before its command: SIGTERM when the checks end, however they end."""
    return partial(_end_with, os.getpid())


def _end_with(parent_pid: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before the line above
        os._exit(1)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far; 0 when it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100  # USER_HZ is 100 on every Linux that Python runs on


def wait_until(holds: Any, what: str, seconds: float, pause: float = 0.02) -> Any:
    """The first true value of `holds()`. Raises TargetError naming what was waited for."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise TargetError(f"{what}: not within {seconds:g} s")
        time.sleep(pause)
    return value
