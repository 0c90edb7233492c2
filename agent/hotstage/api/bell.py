# SPDX-License-Identifier: Apache-2.0
"""Wakes whoever waits for news: long polls and event streams."""

from __future__ import annotations

import threading


class Bell:
    """`count` grows with each ring, so that a ring between looking and waiting is not missed."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        return self._count

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def ring(self) -> None:
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def close(self) -> None:
        """Wake everybody for good."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def wait(self, seen: int, seconds: float) -> bool:
        """Until the count is above `seen`: True; after `seconds`, or once closed: False."""
        with self._condition:
            return self._condition.wait_for(lambda: self._count > seen or self._is_closed, seconds) and (
                self._count > seen
            )
