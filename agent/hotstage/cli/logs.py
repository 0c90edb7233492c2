# SPDX-License-Identifier: Apache-2.0
"""Log lines of all processes: sentences with fields, to standard error, as text or JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from hotstage.clock import SystemClock, rfc3339
from hotstage.config.settings import LogConfig

_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def start_logging(config: LogConfig, process: str) -> None:
    """Send every logger of this process to standard error in the configured form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(process) if config.format == "json" else _TextFormatter(process))
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)


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
        line = f"{at} {record.levelname.lower()} {self._process}: {record.getMessage()}"
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{line} {fields}".rstrip() + trace


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
        return json.dumps(entry, default=str)
