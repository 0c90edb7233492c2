# SPDX-License-Identifier: Apache-2.0
"""`/v1/events`: what was committed, as server-sent events.

A bounded memory lets a client that lost its line go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from io import BufferedIOBase

from hotstage.api.bell import Bell
from hotstage.api.message import ApiError
from hotstage.store.outbox import Event

REMEMBERED = 512
MAX_STREAMS = 8
HEARTBEAT_SECONDS = 10.0
_MAX_DIGITS = 18


class EventStream:
    """`publish` from the journal's thread; `serve` holds one connection's thread for as long as it lasts."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._lock = threading.Lock()
        self._last = 0
        self._events: deque[tuple[int, Event]] = deque(maxlen=REMEMBERED)
        self._places = threading.BoundedSemaphore(MAX_STREAMS)

    def publish(self, events: Iterable[Event]) -> None:
        with self._lock:
            for event in events:
                self._last += 1
                self._events.append((self._last, event))
        self._bell.ring()

    def close(self) -> None:
        """End all streams."""
        self._bell.close()

    def serve(self, last_event_id: int | None, out: BufferedIOBase) -> None:
        """Write events until the peer leaves (OSError) or the stream is closed.

        `last_event_id` is what the client saw last; without one it gets what comes from now on.
        """
        # A number from another run of the agent is from another count.
        after = self._last if last_event_id is None else min(last_event_id, self._last)
        out.write(b"retry: 2000\n\n")
        while not self._bell.is_closed:
            seen = self._bell.count
            for number, event in self._since(after):
                out.write(_message(number, event))
                after = number
            if not self._bell.wait(seen, HEARTBEAT_SECONDS) and not self._bell.is_closed:
                out.write(b": still here\n\n")

    def take_place(self) -> None:
        """One stream's place, until `give_place_back`. Raises ApiError 503 when all are taken."""
        if not self._places.acquire(blocking=False):
            raise ApiError(
                503, "too_many_streams", f"{MAX_STREAMS} streams are open", "close one, or poll /v1/windows"
            )

    def give_place_back(self) -> None:
        """However the stream ended, and though it never began."""
        self._places.release()

    def _since(self, after: int) -> list[tuple[int, Event]]:
        with self._lock:
            return [(number, event) for number, event in self._events if number > after]


def event_id(text: str | None) -> int | None:
    """The number in `Last-Event-ID`; None where there is none. Raises ApiError 400 for what no count reaches:
    of thousands of digits `int` makes nothing.
    """
    if not text or not text.isdecimal():
        return None
    if len(text) > _MAX_DIGITS:
        raise ApiError(
            400, "bad_event_id", f"Last-Event-ID: {text[:32]}…", f"send at most {_MAX_DIGITS} digits"
        )
    return int(text)


def _message(number: int, event: Event) -> bytes:
    # A JSON body of ours has no line break, so it is one data line.
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, event.type.encode(), event.body)
