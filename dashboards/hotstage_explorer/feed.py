# SPDX-License-Identifier: Apache-2.0
"""One reader for all browsers: a thread that asks the source once a period while somebody looks, then rests.

It never formats and never speaks HTTP.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from hotstage_explorer.picture import Picture, Problem
from hotstage_explorer.sources.base import Source

log = logging.getLogger(__name__)


class Feed:
    """`latest()` is what callbacks use; it waits only when the picture at hand is older than two periods."""

    def __init__(
        self,
        source: Source,
        *,
        period_seconds: float = 1.0,
        rest_after_seconds: float = 15.0,
        patience_seconds: float = 1.2,
    ) -> None:
        self._source = source
        self._period_seconds = period_seconds
        self._rest_after_seconds = rest_after_seconds
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self._picture = Picture(source.address, source.origin)
        self._read_at = float("-inf")
        self._asked_at = float("-inf")
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        return self._source.address

    def peek(self) -> Picture:
        """The picture at hand, without starting or keeping up the reading."""
        return self._picture

    def latest(self) -> Picture:
        """The newest picture; keeps the reader awake."""
        with self._changed:
            self._asked_at = time.monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            self._changed.wait_for(self._is_fresh, self._patience_seconds)
            return self._picture

    def close(self) -> None:
        """End the thread; returns when it has ended, or after a read's own deadline."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread:
            thread.join(5.0)

    def _is_fresh(self) -> bool:
        return self._closed or time.monotonic() - self._read_at < 2 * self._period_seconds

    def _is_wanted(self) -> bool:
        return self._closed or time.monotonic() - self._asked_at < self._rest_after_seconds

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_wanted)
                if self._closed:
                    return
            began = time.monotonic()
            picture = self._read()
            with self._changed:
                self._picture = picture
                self._read_at = time.monotonic()
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._closed, max(0.05, began + self._period_seconds - time.monotonic())
                )

    def _read(self) -> Picture:
        try:
            return self._source.read(self._picture)
        except Exception as error:
            # A fault of ours must be seen on the page, not freeze it without a word.
            log.exception("reading the source failed")
            problem = Problem(
                "Explorer failed",
                f"Reading {self.address} failed inside the explorer: {error!r}.",
                "Its log has the details.",
            )
            return replace(
                self._picture, version=self._picture.version + 1, link="unreachable", problem=problem
            )
