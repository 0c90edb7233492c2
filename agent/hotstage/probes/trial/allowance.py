# SPDX-License-Identifier: Apache-2.0
"""How long the trials of one user's libraries may keep others waiting: a made-up library takes all its time,
and behind thirty of them the library of somebody else waits for nine seconds.

Clock: monotonic. Nothing is reserved: trials that run beside each other each find what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

NS_PER_USER = 1_500_000_000
"""Of trials that end well, as many as a server has libraries; of those that do not, one that took its whole
time or half a dozen that ended at once.
"""
FAILED_WEIGHT = 5
WINDOW_NS = 60_000_000_000
"""What lies longer back is forgotten."""
ROOT = 0
Spent = tuple[int, int]
"""When a trial ended, what it counts for; nanoseconds."""


class Allowance:
    """By user, of those whose trials are not older than the window. Root has no limit. Any thread."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._spent: dict[int | None, list[Spent]] = {}

    def is_left(self, user: int | None) -> bool:
        """Whether one more library of this user may be tried; None: those whose user is not known."""
        if user == ROOT:
            return True
        with self._lock:
            self._forget()
            return sum(ns for _, ns in self._spent.get(user, ())) < NS_PER_USER

    def spend(self, user: int | None, took_ns: int, *, has_failed: bool) -> None:
        """A trial of this user's has ended."""
        if user == ROOT:
            return
        with self._lock:
            counts_ns = took_ns * (FAILED_WEIGHT if has_failed else 1)
            self._spent.setdefault(user, []).append((self._now_ns(), counts_ns))

    def _forget(self) -> None:
        since_ns = self._now_ns() - WINDOW_NS
        kept = {user: [each for each in spent if each[0] > since_ns] for user, spent in self._spent.items()}
        self._spent = {user: spent for user, spent in kept.items() if spent}
