# SPDX-License-Identifier: Apache-2.0
"""Processes that call as fast as they can, and their line protocol: see callers.c."""

from __future__ import annotations

import select
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotstage.cli.bench.variants import LAUNCH_CALL, WAIT_CALL
from hotstage.errors import HotstageError

# Primes: a lost or doubled call shows.
LAUNCHES_PER_ROUND, WAITS_PER_ROUND = 100_003, 10_007
_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Burst:
    """What one `go` makes in one process: `threads` × (`launches` + `waits`) calls."""

    threads: int
    launches: int
    waits: int

    @property
    def by_call(self) -> dict[int, int]:
        """Call id → calls."""
        return {LAUNCH_CALL: self.threads * self.launches, WAIT_CALL: self.threads * self.waits}

    @property
    def calls(self) -> int:
        return sum(self.by_call.values())


class Caller:
    """One such process, which stays until it is ended."""

    def __init__(self, program: Path, library: Path, burst: Burst) -> None:
        """Raises HotstageError when it does not get ready."""
        words = (program, library, burst.threads, burst.launches, burst.waits)
        self._process = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self._line("ready")

    def go(self) -> None:
        """Let it make its burst; it answers when it is done."""
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def has_answered(self) -> bool:
        """Whether it is done. Raises HotstageError when it has ended instead."""
        if self._process.poll() is not None:
            raise HotstageError(f"a calling process ended with {self._process.returncode}")
        assert self._process.stdout
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def taken_seconds(self) -> float:
        """How long its burst took; waits for it."""
        return int(self._line("made").split()[2]) / 1e9

    def end(self) -> None:
        """Let it leave; kill it when it does not."""
        with suppress(BrokenPipeError):
            self._process.communicate("end\n", timeout=_END_SECONDS)
        self._process.kill()
        self._process.wait()

    def _line(self, word: str) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line.startswith(word):
            raise HotstageError(f"a calling process answered {line!r}, not {word}")
        return line


def start_short(program: Path, library: Path, burst: Burst) -> subprocess.Popen[str]:
    """A process that makes one burst and ends. The caller waits for it."""
    words = (program, library, burst.threads, burst.launches, burst.waits)
    process = subprocess.Popen(
        [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.close()
    return process
