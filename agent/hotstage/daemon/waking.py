# SPDX-License-Identifier: Apache-2.0
"""What the tick's thread waits for: its time, an urgent record of the kernel, the end. It reads no record."""

from __future__ import annotations

import os
import select
from collections.abc import Collection
from enum import Enum

from hotstage.clock import Clock

_POLLS_KEPT = 8


class Woken(Enum):
    """What a wait ended by."""

    time = "time"
    urgent = "urgent"
    """The kernel has put something into an urgent ring."""
    end = "end"


class Waking:
    """`wait` on one thread; `end` from any, a signal handler among them. The end stays told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._polls: dict[tuple[int, ...], select.poll] = {}

    def end(self) -> None:
        """Every wait returns at once from now on."""
        os.eventfd_write(self._end, 1)

    def wait(self, until_ns: int, urgent: Collection[int] = ()) -> Woken:
        """Until CLOCK_MONOTONIC is `until_ns`, or sooner where a ring of `urgent` (descriptors) has news.

        A signal does not shorten it, its handler does by `end`. A descriptor that is none counts as news: who
        then looks finds nothing.
        """
        poll = self._poll_of(tuple(urgent))
        left_ms = max(0.0, (until_ns - self._clock.monotonic_ns()) / 1e6)
        ready = {fd for fd, _ in poll.poll(left_ms)}
        if self._end in ready:
            return Woken.end
        return Woken.urgent if ready else Woken.time

    def _poll_of(self, urgent: tuple[int, ...]) -> select.poll:
        """As before while the rings are the same ones; between two ticks there may be none."""
        poll = self._polls.get(urgent)
        if poll is None:
            if len(self._polls) > _POLLS_KEPT:
                self._polls.clear()
            poll = self._polls[urgent] = select.poll()
            for fd in (self._end, *urgent):
                poll.register(fd, select.POLLIN)
        return poll
