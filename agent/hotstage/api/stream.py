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

    def serve(self, last_event_id: str | None, out: BufferedIOBase) -> None:
        """Write events until the peer leaves (OSError) or the stream is closed.

        `last_event_id` is what the client saw last; without one it gets what comes from now on.
        """
        after = int(last_event_id) if last_event_id and last_event_id.isdecimal() else self._last
        # A number from another run of the agent is from another count.
        after = min(after, self._last)
        try:
            out.write(b"retry: 2000\n\n")
            while not self._bell.is_closed:
                seen = self._bell.count
                for number, event in self._since(after):
                    out.write(_message(number, event))
                    after = number
                if not self._bell.wait(seen, HEARTBEAT_SECONDS) and not self._bell.is_closed:
                    out.write(b": still here\n\n")
        finally:
            self._places.release()

    def take_place(self) -> None:
        """One stream's place; `serve` gives it back. Raises ApiError 503 when all are taken."""
        if not self._places.acquire(blocking=False):
            raise ApiError(
                503, "too_many_streams", f"{MAX_STREAMS} streams are open", "close one, or poll /v1/windows"
            )

    def _since(self, after: int) -> list[tuple[int, Event]]:
        with self._lock:
            return [(number, event) for number, event in self._events if number > after]


def _message(number: int, event: Event) -> bytes:
    # A JSON body of ours has no line break, so it is one data line.
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, event.type.encode(), event.body)
