# SPDX-License-Identifier: Apache-2.0
"""One signal's way to the collector, and what is said about it: once when it fails, once when it works again.

OpenTelemetry's own log lines, several a failure and some with the header that could not be parsed, are kept
back; the last reason of the exporters is told in ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

log = logging.getLogger(__name__)

_EXPORTERS = "opentelemetry.exporter."


class LastWords(logging.Handler):
    """Keeps the last line of an exporter, shows none."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_EXPORTERS):
            self.text = record.getMessage()


def hush() -> LastWords:
    """From now on OpenTelemetry logs nowhere else."""
    words = LastWords()
    logger = logging.getLogger("opentelemetry")
    logger.handlers = [words]
    logger.propagate = False
    return words


class Channel:
    """`send` → whether the collector took the batch. Not thread-safe."""

    def __init__(self, signal: str, url: str, export: Callable[[Any], bool], words: LastWords) -> None:
        self.signal = signal
        self.is_failing = False
        self._url = url
        self._export = export
        self._words = words

    def send(self, batch: Sequence[object] | object) -> bool:
        """May take as long as the exporter's timeout."""
        self._words.text = ""
        try:
            was_taken = self._export(batch)
        except Exception as error:
            was_taken, self._words.text = False, f"{type(error).__name__}: {error}"
        if was_taken == self.is_failing:
            self._tell(was_taken)
        self.is_failing = not was_taken
        return was_taken

    def _tell(self, was_taken: bool) -> None:
        place = {"signal": self.signal, "url": self._url}
        if was_taken:
            log.info("the OTLP collector takes %s again", self.signal, extra=place)
        else:
            reason = self._words.text or "no reason given"
            log.error("the OTLP collector does not take %s: %s", self.signal, reason, extra=place)
