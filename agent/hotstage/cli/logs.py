# SPDX-License-Identifier: Apache-2.0
"""Log lines of all processes: sentences with fields, to standard error as text or JSON, or to the journal."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
from typing import Any

from hotstage.cli.journald import SOCKET, JournalHandler, is_journal
from hotstage.clock import SystemClock, rfc3339
from hotstage.config.log import LogConfig

_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def start_logging(config: LogConfig, process: str) -> None:
    """Send every logger of this process where and in which form the configuration says.

    `auto` is the journal where standard error is the journal's, and text elsewhere.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_JsonFormatter(process) if config.format == "json" else _TextFormatter(process))
    handler: logging.Handler = lines
    if config.format == "journal" or (config.format == "auto" and _speaks_to_journal()):
        handler = JournalHandler(process, _fields, otherwise=lines)
    # A watchdog ends a process with SIGABRT: then every thread says where it stood.
    faulthandler.enable()
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)


def _speaks_to_journal() -> bool:
    return SOCKET.exists() and is_journal(sys.stderr.fileno(), os.environ.get("JOURNAL_STREAM"))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _OWN_ATTRIBUTES}


class _TextFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process
        self._clock = SystemClock()

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in _fields(record).items())
        at = rfc3339(self._clock.wall_ns())
        line = f"{at} {record.levelname.lower()} {self._process}: {record.getMessage()} {fields}"
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n".join(map(_escaped, (line.rstrip(), *trace)))


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process
        self._clock = SystemClock()

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "at": rfc3339(self._clock.wall_ns()),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _escaped(json.dumps(entry, default=str))


def _escaped(line: str) -> str:
    """The line with every character that a terminal could obey written out: peers choose some words."""
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" if ord(char) < 0x10000 else "?" for char in line
    )
