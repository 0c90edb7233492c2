# SPDX-License-Identifier: Apache-2.0
"""A program on a pseudo-terminal: keys in, what stands on its screen out, resized at will."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class OnTerminal:
    """`screen` is what was drawn last, from its home to what clears the rest; `raw` is all bytes so far."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid, self._fd = pid, fd
        self.raw = b""
        self.status: int | None = None

    @property
    def screen(self) -> list[str]:
        """Lines without what controls the terminal, of the last drawing that has come whole."""
        whole = self.raw.decode("utf-8", "replace").rpartition("\x1b[J")[0]
        drawn = whole.rpartition("\x1b[H")[2]
        return [_CONTROL.sub("", line).rstrip() for line in drawn.split("\r\n")]

    @property
    def text(self) -> str:
        return "\n".join(self.screen)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
        """Read on until it holds. AssertionError with the screen when it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s; the screen:\n{self.text}"
            self._read(0.05)

    def wait(self, seconds: float = 20.0) -> int:
        """Its exit code, negative for a signal; reads to the end."""

        def has_ended() -> bool:
            if self.status is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.status = status if pid else None
            return self.status is not None

        self.until(has_ended, "the program's end", seconds)
        while self._read(0.05):
            pass
        assert self.status is not None
        return os.waitstatus_to_exitcode(self.status)

    def is_cooked(self) -> bool:
        """Whether lines are edited and echoed, as a shell has them."""
        flags = termios.tcgetattr(self._fd)[3]
        return bool(flags & termios.ICANON and flags & termios.ECHO)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            read = os.read(self._fd, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.raw += read
        return bool(read)


@contextlib.contextmanager
def on_terminal(
    command: Sequence[str], size: tuple[int, int], environment: Mapping[str, str]
) -> Iterator[OnTerminal]:
    """`command` on a terminal of (columns, lines), ended at the latest with the block."""
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        os.execvpe(command[0], list(command), {**os.environ, **environment})
    program = OnTerminal(pid, fd)
    try:
        yield program
    finally:
        if program.status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)
