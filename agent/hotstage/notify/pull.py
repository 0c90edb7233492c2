# SPDX-License-Identifier: Apache-2.0
"""Takes events over from the agent's outbox: long poll, hold, acknowledge; and tells the agent how deliveries
stand.
"""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Raw, Struct

from hotstage.clock import Clock
from hotstage.errors import PeerError, StoreError
from hotstage.notify.db import Counts, HeldEvent, NotifyDatabase

log = logging.getLogger(__name__)

WAIT_SECONDS = 20
LIMIT_ROWS = 200
_ANSWER_SECONDS = 10
_BODY_LIMIT_BYTES = 64 << 20
_PATIENCE = 5
"""Failures in a row before it is worth a line: two seconds, in which an agent starts."""
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)


Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Row(Struct, frozen=True):
    """One row of `/v1/outbox`."""

    seq: Count
    id: str
    type: str
    subject: str
    created_ns: Count
    body: Raw

    def held(self) -> HeldEvent:
        return HeldEvent(self.seq, self.id, self.type, self.subject, self.created_ns, bytes(self.body))


class Page(Struct, frozen=True):
    """The answer of `/v1/outbox`."""

    store: str
    rows: list[Row]


class Agent:
    """The agent's Unix socket. Every failure is a PeerError."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path

    def outbox(self, after: int, wait_seconds: float) -> Page:
        """Rows after a number, waiting for the first one."""
        path = f"/v1/outbox?after={after}&limit={LIMIT_ROWS}&wait={wait_seconds}"
        status, body = self._request("GET", path, None, wait_seconds + _ANSWER_SECONDS)
        if status != 200:
            raise PeerError(f"the agent answers {status} to the outbox: {body[:200]!r}")
        try:
            return msgspec.json.decode(body, type=Page)
        except msgspec.DecodeError as error:
            raise PeerError(f"the agent's outbox is not understood: {error}") from error

    def acknowledge(self, store_id: str | None, seq: int, reports: list[dict[str, object]]) -> None:
        """Everything up to `seq` is held here."""
        said = msgspec.json.encode({"seq": seq, "store": store_id, "destinations": reports})
        status, body = self._request("POST", "/v1/outbox/ack", said, _ANSWER_SECONDS)
        if status != 200:
            raise PeerError(f"the agent answers {status} to an acknowledgement: {body[:200]!r}")

    def _request(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("localhost", timeout=seconds)
        try:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(seconds)
            connection.sock.connect(self._socket_path)
            connection.request(method, path, body, {"Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read(_BODY_LIMIT_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise PeerError(
                f"no agent answers at {self._socket_path}: {error}",
                remedy="start the agent; check http.socket, http.socket_group and notify.agent_socket",
            ) from error
        finally:
            connection.close()


class Subscriber(Protocol):
    """Whom events are held for; it may be one that nothing can be sent to now."""

    @property
    def name(self) -> str: ...

    def wants(self, event_type: str) -> bool: ...


class Puller:
    """Pulls until stopped. `on_new` hears that events were held; `told_of` adds to a destination's report."""

    def __init__(
        self,
        agent: Agent,
        database: NotifyDatabase,
        subscribers: Sequence[Subscriber],
        clock: Clock,
        on_new: Callable[[], None],
        told_of: Callable[[Counts], Mapping[str, object]] = lambda counts: {},
    ) -> None:
        self._agent = agent
        self._database = database
        self._subscribers = subscribers
        self._clock = clock
        self._on_new = on_new
        self._told_of = told_of
        self._stopping = threading.Event()
        self._failures = 0
        self._report_lock = threading.Lock()

    def run(self) -> None:
        """Until `stop`; failures are logged once per outage and tried again, nothing is acknowledged
        meanwhile.
        """
        while not self._stopping.is_set():
            try:
                # After a failure without waiting, so that the recovery is known at once.
                if self.pull(0 if self._failures else WAIT_SECONDS):
                    self._on_new()
                    self.report()
            except (PeerError, StoreError) as error:
                if self._failures == _PATIENCE:
                    log.warning("%s", error.message, extra={"remedy": error.remedy})
                self._stopping.wait(_PAUSES[min(self._failures, len(_PAUSES) - 1)])
                self._failures += 1
                continue
            if self._failures > _PATIENCE:
                log.info("pulling again")
            self._failures = 0

    def stop(self) -> None:
        self._stopping.set()

    def pull(self, wait_seconds: float) -> int:
        """One poll; how many rows are now held.

        Raises PeerError or StoreError, and then nothing was taken.
        """
        store_id, seq = self._database.progress()
        page = self._agent.outbox(seq, wait_seconds)
        if store_id is not None and page.store != store_id:
            # The agent has another file, whose numbers start anew.
            log.warning("the agent's store is another one; reading it from its beginning")
            page = self._agent.outbox(0, 0)
        if not page.rows:
            return 0
        wanted_by = [[each.name for each in self._subscribers if each.wants(row.type)] for row in page.rows]
        self._database.hold(page.store, [row.held() for row in page.rows], wanted_by, self._clock.wall_ns())
        return len(page.rows)

    def report(self) -> None:
        """Acknowledge what is held and say how deliveries stand. Raises PeerError or StoreError."""
        with self._report_lock:
            store_id, seq = self._database.progress()
            now_ns = self._clock.wall_ns()
            reports: list[dict[str, object]] = [
                {
                    "name": counts.name,
                    "delivered": counts.delivered,
                    "failed": counts.failed,
                    "dead": counts.dead,
                    "pending": counts.pending,
                    "oldest_age_seconds": None
                    if counts.oldest_wall_ns is None
                    else max(0.0, (now_ns - counts.oldest_wall_ns) / 1e9),
                    "is_disabled": counts.disabled_error is not None,
                    **self._told_of(counts),
                }
                for counts in self._database.counts(each.name for each in self._subscribers)
            ]
            self._agent.acknowledge(store_id, seq, reports)
