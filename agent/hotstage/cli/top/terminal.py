# SPDX-License-Identifier: Apache-2.0
"""A terminal taken over for a while: its other screen, keys as they are pressed, and back as it was, whatever
ends the program.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from hotstage.cli.top.screen import Line
from hotstage.cli.top.views import Style

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"
_PAINT: Mapping[Style, str] = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "reverse": "\x1b[7m",
    "warning": "\x1b[1;33m",
}
_WITHOUT_COLOUR: Mapping[Style, str] = {**_PAINT, "warning": "\x1b[1m"}
_END = "\x1b[0m"
_KEY = re.compile(rb"\x1b[\[O]([A-D56]~?)|([ -~\r\n])")
_ARROWS = {b"A": "k", b"B": "j", b"5~": "page up", b"6~": "page down"}


class Terminal:
    """`taken` around all of its use; `is_here`: there is one that can be drawn on, with keys."""

    def __init__(self) -> None:
        # Whoever writes a byte into it ends a wait: signals, and answers that have come.
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._paint = _WITHOUT_COLOUR if os.environ.get("NO_COLOR") else _PAINT

    @staticmethod
    def is_here() -> bool:
        return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    @property
    def size(self) -> tuple[int, int]:
        """(columns, lines) as of now: $COLUMNS and $LINES, where they are set, do not follow a resize."""
        found = os.get_terminal_size(sys.stdout.fileno())
        if not found.columns:
            found = shutil.get_terminal_size()
        return max(found.columns, 10), max(found.lines, 4)

    def wake(self, *_: object) -> None:
        """From any thread or signal: end a wait."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b".")

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """The other screen, keys at once; a resize wakes, Ctrl-C and SIGTERM end, SIGTSTP lends it back."""
        before = termios.tcgetattr(sys.stdin)
        handlers: dict[int, Callable[[int, FrameType | None], object]] = {
            signal.SIGWINCH: self.wake,
            signal.SIGINT: signal.default_int_handler,  # a shell has what runs beside it ignore Ctrl-C
            signal.SIGTERM: _end,
            signal.SIGHUP: _end,
            signal.SIGTSTP: lambda number, frame: self._lend(before),
        }
        saved = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._enter()
        try:
            yield
        finally:
            self._leave(before)
            for number, handler in saved.items():
                signal.signal(number, handler)

    def draw(self, lines: Sequence[Line]) -> None:
        """In place of what was there, in one write."""
        text = "\r\n".join(self._painted(line) + _CLEAR_LINE for line in lines)
        _write(_HOME + text + _CLEAR_REST)

    def keys(self, timeout_seconds: float) -> list[str]:
        """What was pressed, arrows as `j` and `k`; empty after the time, a resize, or `wake`.

        Raises EOFError when the terminal has gone.
        """
        ready, _, _ = select.select([sys.stdin, self._wake_read], [], [], max(0.0, timeout_seconds))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if sys.stdin not in ready:
            return []
        pressed = os.read(sys.stdin.fileno(), 1024)
        if not pressed:
            raise EOFError
        return [
            _ARROWS.get(found[1], "") if found[1] else found[2].decode() for found in _KEY.finditer(pressed)
        ]

    def _painted(self, line: Line) -> str:
        return "".join(f"{self._paint[style]}{text}{_END}" if style else text for text, style in line)

    def _enter(self) -> None:
        tty.setcbreak(sys.stdin)
        _write(_ENTER)

    def _leave(self, before: list[object]) -> None:
        with contextlib.suppress(OSError, termios.error):  # it may be what has gone
            _write(_LEAVE)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)  # type: ignore[arg-type]

    def _lend(self, before: list[object]) -> None:
        """Ctrl-Z: the shell has its terminal as it was, until it sends us on."""
        self._leave(before)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()
        self.wake()


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
