# SPDX-License-Identifier: Apache-2.0
"""Finished requests of the latency window: their time by component, and their first tokens.

The tick only hands records over; they are reduced once a second for the frame, or by whoever asks. If nobody
does, the tick reduces them when `FRESH_MAX` have gathered. The tick never waits for a reader.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from hotstage.config.settings import FrameConfig
from hotstage.frame.component_table import component_table
from hotstage.frame.latency_types import Components, Latency
from hotstage.frame.rolling import Rolling, Rows
from hotstage.frame.timing_rows import TIMING_DTYPE, TOKENS_DTYPE, reduced
from hotstage.frame.token_latency import latency_table
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.labels import OwnNames, no_names

FRESH_MAX = 512
"""Records that wait to be reduced."""

_KEPT = 16_384
_TOKENS_KEPT = 32_768
"""Requests; where more end within the window, the oldest go and it shrinks."""
_RAW = np.dtype((np.void, FINISHED_DTYPE.itemsize))


class RequestTimings:
    """`keep` and `tokens` from the tick, `components` and `latency` from any thread.

    Cancelled and refused requests are left out: their latency says nothing.
    """

    def __init__(self, config: FrameConfig, own_names: Callable[[], OwnNames] = no_names) -> None:
        self._window_ns = round(config.latency_window_seconds * 1e9)
        self._min_samples = config.quantile_min_samples
        self._own_names = own_names
        self._fresh: deque[Rows] = deque()
        self._kept = 0
        self._told = np.zeros(0, TOKENS_DTYPE)
        self._lock = threading.Lock()  # of what follows
        self._timings = Rolling(TIMING_DTYPE, _KEPT)
        self._tokens = Rolling(TOKENS_DTYPE, _TOKENS_KEPT)

    def keep(self, finished: Rows) -> None:
        """One fast tick: the FINISHED_DTYPE rows that ended in it."""
        if not len(finished):
            return
        self._fresh.append(finished)
        self._kept += len(finished)
        if self._kept >= FRESH_MAX and self._lock.acquire(blocking=False):
            try:
                self._take_in()
            finally:
                self._lock.release()

    def tokens(self, now_ns: int) -> Rows:
        """TOKENS_DTYPE of the window that ends at `now_ns` (CLOCK_MONOTONIC).

        While a reader is at work, what it was the last time.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._take_in()
                self._told = self._tokens.since(now_ns - self._window_ns)
            finally:
                self._lock.release()
        return self._told

    def components(self, now_ns: int) -> Components:
        """As of the last fast tick, whose time is `now_ns` (CLOCK_MONOTONIC)."""
        rows, _ = self._recent(now_ns)
        return component_table(rows, self._window_ns / 1e9, self._min_samples, self._own_names())

    def latency(self, now_ns: int) -> Latency:
        """As of the last fast tick, whose time is `now_ns` (CLOCK_MONOTONIC)."""
        rows, tokens = self._recent(now_ns)
        return latency_table(rows, tokens, self._window_ns / 1e9, self._min_samples, self._own_names())

    def _recent(self, now_ns: int) -> tuple[Rows, Rows]:
        """(TIMING_DTYPE, TOKENS_DTYPE) of the window."""
        since_ns = now_ns - self._window_ns
        with self._lock:
            self._take_in()
            return self._timings.since(since_ns), self._tokens.since(since_ns)

    def _take_in(self) -> None:
        """Reduce what is fresh; with the lock held."""
        # As plain bytes: numpy moves structured rows field by field.
        fresh = [self._fresh.popleft().view(_RAW) for _ in range(len(self._fresh))]
        self._kept = 0
        if not fresh:
            return
        timings, tokens = reduced(np.concatenate(fresh).view(FINISHED_DTYPE))
        self._timings.append(timings)
        self._tokens.append(tokens)
