# SPDX-License-Identifier: Apache-2.0
"""Log records for systemd's journal, by its native protocol: one datagram, a field a value.

Values may come from hostile processes (names with newlines), so each is sent with its length before it: none
can end its field and begin another. What the journal does not take goes to standard error, and is counted;
what would have to wait there as well is dropped, and the next record says how many were.
https://systemd.io/JOURNAL_NATIVE_PROTOCOL
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SOCKET = Path("/run/systemd/journal/socket")
VALUE_LIMIT_BYTES = 1 << 16
"""A longer value is cut, and HOTSTAGE_CUT_BYTES says by how much in all."""
SEND_SECONDS = 0.5
"""A busy journal may take so long; then it gets no time at all for `HURRIED_SECONDS`."""
HURRIED_SECONDS = 30.0
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG_PRIORITY = 7
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9_]")
_NAME_LIMIT = 64
_TOO_BIG = frozenset({errno.EMSGSIZE, errno.ENOBUFS})

Fields = Callable[[logging.LogRecord], Mapping[str, Any]]


def is_journal(fd: int, stream: str | None) -> bool:
    """Whether a descriptor is the journal's: `stream` is JOURNAL_STREAM, its `device:inode`.

    It is inherited by children whose output goes elsewhere, so the descriptor itself is compared.
    """
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"


class JournalHandler(logging.Handler):
    """Sends every record. `fields` are those of a record beside its sentence, `otherwise` takes what is
    refused.
    """

    def __init__(self, process: str, fields: Fields, otherwise: logging.Handler, path: Path = SOCKET) -> None:
        super().__init__()
        self._process = process
        self._fields = fields
        self._otherwise = otherwise
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._hurried_until = 0.0
        self.refused = 0
        """Records that went to standard error instead."""
        self.dropped = 0
        """Records that went nowhere: standard error, often the journal's as well, would have waited too."""
        self._untold = 0

    def emit(self, record: logging.LogRecord) -> None:
        is_hurried = time.monotonic() < self._hurried_until
        self._socket.settimeout(0.0 if is_hurried else SEND_SECONDS)
        try:
            self._send(encode(self._entry(record)))
            self._untold = 0
        except OSError as error:
            if isinstance(error, TimeoutError):
                self._hurried_until = time.monotonic() + HURRIED_SECONDS
            self._pass_on(record)
        except Exception:
            self.handleError(record)

    def _pass_on(self, record: logging.LogRecord) -> None:
        """Whoever logs may be the thread that measures: it never waits for a reader that does not read."""
        if _would_wait(self._otherwise):
            self.dropped += 1
            self._untold += 1
            return
        self.refused += 1
        self._otherwise.handle(record)

    def close(self) -> None:
        self._socket.close()
        super().close()

    def _entry(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        fields = self._fields(record)
        shown = (f"{key}={json.dumps(value, default=str)}" for key, value in fields.items())
        sentence = " ".join((record.getMessage(), *shown))
        if record.exc_info:
            sentence += "\n" + logging.Formatter().formatException(record.exc_info)
        yield "MESSAGE", sentence
        yield "PRIORITY", str(priority(record.levelno))
        yield "SYSLOG_IDENTIFIER", f"hotstage-{self._process}"
        yield "CODE_FILE", record.pathname
        yield "CODE_LINE", str(record.lineno)
        yield "CODE_FUNC", record.funcName or ""
        yield "HOTSTAGE_PROCESS", self._process
        yield "HOTSTAGE_LOGGER", record.name
        if self._untold:
            yield "HOTSTAGE_DROPPED_RECORDS", str(self._untold)
        for key, value in fields.items():
            yield field_name(key), value if isinstance(value, str) else json.dumps(value, default=str)

    def _send(self, message: bytes) -> None:
        try:
            self._socket.sendto(message, self._path)
        except OSError as error:
            if error.errno not in _TOO_BIG:
                raise
            self._send_sealed(message)

    def _send_sealed(self, message: bytes) -> None:
        """Too big for a datagram: a sealed file in memory, which the journal maps."""
        fd = os.memfd_create("hotstage-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(message)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("@i", fd))]
            self._socket.sendmsg([], rights, 0, self._path)
        finally:
            os.close(fd)


def encode(entry: Iterator[tuple[str, str]]) -> bytes:
    """Fields as the journal reads them: name, newline, length, value, newline; too long values are cut."""
    parts: list[bytes] = []
    cut = 0
    for name, text in entry:
        value = text.encode("utf-8", "replace")
        cut += max(0, len(value) - VALUE_LIMIT_BYTES)
        parts.append(_field(name, value[:VALUE_LIMIT_BYTES]))
    if cut:
        parts.append(_field("HOTSTAGE_CUT_BYTES", str(cut).encode()))
    return b"".join(parts)


def field_name(key: str) -> str:
    """`event_id` → `HOTSTAGE_EVENT_ID`; what a name may not hold becomes `_`."""
    return _NOT_IN_NAMES.sub("_", f"HOTSTAGE_{key.upper()}")[:_NAME_LIMIT]


def priority(level: int) -> int:
    """Syslog's number for a level of logging."""
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG_PRIORITY)


def _would_wait(handler: logging.Handler) -> bool:
    """Whether the handler's stream is one whose reader is behind."""
    try:
        fd = handler.stream.fileno() if isinstance(handler, logging.StreamHandler) else None
    except (OSError, ValueError):  # a stream in memory
        return False
    if fd is None:
        return False
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return not poll.poll(0)


def _field(name: str, value: bytes) -> bytes:
    return name.encode("ascii") + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
