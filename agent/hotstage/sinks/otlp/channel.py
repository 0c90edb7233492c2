# SPDX-License-Identifier: Apache-2.0
"""One signal's way to the collector, and what is said about it: once when it fails or refuses a part, once
when it works again.

OpenTelemetry's own log lines, several a failure and some with the header that could not be parsed, are kept
back; the last reason of the exporters is told in ours.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hotstage.text import plain_line

log = logging.getLogger(__name__)

_EXPORTERS = "opentelemetry.exporter."
_QUERY = re.compile(r"\?[^\s)'\"]+")


@dataclass(frozen=True, slots=True)
class Rejection:
    """How much of a batch that was taken the collector did not want, and what it says about it."""

    count: int = 0
    reason: str = ""


NOTHING_REJECTED = Rejection()


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

    def __init__(
        self,
        signal: str,
        url: str,
        export: Callable[[Any], bool],
        words: LastWords,
        rejection: Callable[[], Rejection] = lambda: NOTHING_REJECTED,
    ) -> None:
        """`url` as it may be shown; `rejection` tells of the batch that `export` has just had taken."""
        self.signal = signal
        self.is_failing = False
        self.rejected = 0
        """Of the last batch, if that was taken."""
        self._url = url
        self._export = export
        self._words = words
        self._rejection = rejection

    def send(self, batch: Sequence[object] | object) -> bool:
        """May take as long as the exporter's timeout."""
        self._words.text = ""
        rejection = NOTHING_REJECTED
        try:
            was_taken = self._export(batch)
            rejection = self._rejection() if was_taken else NOTHING_REJECTED
        except Exception as error:
            was_taken, self._words.text = False, f"{type(error).__name__}: {error}"
        if was_taken == self.is_failing:
            self._tell(was_taken)
        self.is_failing = not was_taken
        if rejection.count and not self.rejected:
            self._tell_rejected(rejection)
        self.rejected = rejection.count
        return was_taken

    def _tell_rejected(self, rejection: Rejection) -> None:
        log.error(
            "the OTLP collector rejects a part of %s: %s",
            self.signal,
            _clean(rejection.reason) or "no reason given",
            extra={"signal": self.signal, "url": self._url, "rejected": rejection.count},
        )

    def _tell(self, was_taken: bool) -> None:
        place = {"signal": self.signal, "url": self._url}
        if was_taken:
            log.info("the OTLP collector takes %s again", self.signal, extra=place)
        else:
            reason = _clean(self._words.text) or "no reason given"
            log.error("the OTLP collector does not take %s: %s", self.signal, reason, extra=place)


def _clean(text: str) -> str:
    """What came from the collector or tells of its URL, fit for a log line: a query may hold a token."""
    return plain_line(_QUERY.sub("?…", text))
