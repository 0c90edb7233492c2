# SPDX-License-Identifier: Apache-2.0
"""What processes that have ended called their own stages: their finished requests are told for a while yet.

Bounded, the oldest go first. A process that comes by the pid of one that has ended takes its names away when
it names a stage itself. It reads no map.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

NAMES_LIMIT = 4096
"""As many as the kernel's map holds of the living."""

Names = Mapping[tuple[int, int], str]
"""(pid, stage id) → name."""


class EndedNames:
    """`keep` from the tick, `beside` from any thread."""

    def __init__(self, limit: int = NAMES_LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._names: dict[tuple[int, int], str] = {}

    def keep(self, names: Names) -> None:
        """Of processes that are about to be forgotten."""
        pids = {pid for pid, _ in names}
        with self._lock:
            older = {key: name for key, name in self._names.items() if key[0] not in pids}
            every = [*older.items(), *names.items()]
            self._names = dict(every[-self._limit :])

    def beside(self, living: Names) -> dict[tuple[int, int], str]:
        """The names of the living, and of the ended under other pids than theirs."""
        pids = {pid for pid, _ in living}
        with self._lock:
            ended = {key: name for key, name in self._names.items() if key[0] not in pids}
        return {**ended, **living}
