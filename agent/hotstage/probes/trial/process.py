# SPDX-License-Identifier: Apache-2.0
"""The other end of `subject.py`: starts the process, asks with a deadline, ends it. It believes nothing.

A library's code runs there, so an answer may be anything: it is bounded, parsed and checked, or it is none.
No text of it goes any further.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hotstage.probes.trial.subject import FLAGS, REFUSALS

ANSWER_BYTES_LIMIT = 256 << 10
"""The longest is some 100 KB: a row for each of 2,780 look-ups."""
_SOURCES = Path(__file__).parents[3]
_NONSENSE = "it answered nonsense"
_START = "import sys; sys.path.insert(0, {root!r}); from hotstage.probes.trial.subject import main; main()"


class TrialError(Exception):
    """There is no answer; the message says why: not loaded, late, or nonsense."""


class SubjectCrashedError(TrialError):
    """The process ended by a signal."""


class Subject:
    """One process with one library. A context: it is killed at the end, whatever it does.

    `deadline_ns` is CLOCK_MONOTONIC and holds for all of it.
    """

    def __init__(self, library_fd: int, deadline_ns: int, now_ns: Callable[[], int]) -> None:
        self._deadline_ns = deadline_ns
        self._now_ns = now_ns
        self._unread = b""
        # Without site: a third of the time, and nothing of the environment is imported.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _START.format(root=str(_SOURCES)), str(library_fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={},
            cwd="/",
            pass_fds=(library_fd,),
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Kill it and take its status; twice does nothing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def wait_loaded(self) -> None:
        """Until the library is loaded. Raises TrialError."""
        answer = self._answer()
        if answer.get("loaded") is not True:
            word = answer.get("refused")
            raise TrialError(REFUSALS.get(word, _NONSENSE) if isinstance(word, str) else _NONSENSE)

    def call(self, symbol: str, times: int) -> tuple[list[int], int, int]:
        """(distinct results, value behind the pointer, the pointer) of so many calls. Raises TrialError."""
        answer = self._ask({"call": {"symbol": symbol, "times": times}})
        results = answer.get("results")
        if not isinstance(results, list) or len(results) > times:
            raise TrialError(_NONSENSE)
        return (
            [_number(result, 32) for result in results],
            _number(answer.get("value")),
            _number(answer.get("pointer")),
        )

    def addresses(
        self, symbol: str, names: list[str], versions: list[int]
    ) -> list[tuple[int, int, int, int]]:
        """Rows of (index of the name, version, flags, address less the library's). Raises TrialError."""
        answer = self._ask({"ask": {"symbol": symbol, "names": names, "versions": versions}})
        rows = answer.get("rows")
        if not isinstance(rows, list) or len(rows) > 2 * len(names) * len(versions):
            raise TrialError(_NONSENSE)
        return [_row(row, len(names), versions) for row in rows]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            answer = json.loads(self._line())
        except (ValueError, RecursionError):
            raise TrialError(_NONSENSE) from None
        if not isinstance(answer, dict):
            raise TrialError(_NONSENSE)
        return answer

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left_seconds = (self._deadline_ns - self._now_ns()) / 1e9
            if left_seconds <= 0 or not select.select([fd], [], [], left_seconds)[0]:
                raise TrialError("it did not answer in time")
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                raise self._ended()
            self._unread += chunk
            if len(self._unread) > ANSWER_BYTES_LIMIT:
                raise TrialError("it answered without end")
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _ended(self) -> TrialError:
        try:
            status = self._process.wait(max(0.0, (self._deadline_ns - self._now_ns()) / 1e9))
        except subprocess.TimeoutExpired:
            return TrialError("it did not answer in time")
        if status < 0:
            return SubjectCrashedError(f"it ended by {_signal_name(-status)}")
        return TrialError(f"it ended with status {status}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _number(value: Any, bits: int = 64) -> int:
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise TrialError(_NONSENSE)
    return value


def _row(row: Any, names: int, versions: Collection[int]) -> tuple[int, int, int, int]:
    if not isinstance(row, list) or len(row) != 4 or not all(type(field) is int for field in row):
        raise TrialError(_NONSENSE)
    index, version, flags, address = row
    if not 0 <= index < names or version not in versions or flags not in FLAGS or abs(address) >= 1 << 64:
        raise TrialError(_NONSENSE)
    return index, version, flags, address
