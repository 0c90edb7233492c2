# SPDX-License-Identifier: Apache-2.0
"""The kernel's maps behind their lock: both ticks, the governor and whoever asks over the API read them.

There between `open` and `close` only; reading before or after is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hotstage.errors import HotstageError
from hotstage.probes.maps.kernel import KernelMaps


class GuardedMaps:
    """Made without maps. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._maps: KernelMaps | None = None

    def open(self, maps: KernelMaps) -> None:
        """The programs are loaded."""
        self._maps = maps

    @contextmanager
    def held(self) -> Iterator[KernelMaps]:
        """The maps, for the caller alone, for as long as a read takes."""
        with self._lock:
            yield self.free

    @property
    def free(self) -> KernelMaps:
        """The maps without the lock: for what has none to share, such as rules, bursts and names."""
        if self._maps is None:
            raise HotstageError("the probes are not started")
        return self._maps

    def close(self) -> None:
        """Let go of every descriptor. Safe to call twice."""
        with self._lock:
            maps, self._maps = self._maps, None
            if maps is not None:
                maps.close()
