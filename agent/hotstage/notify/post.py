# SPDX-License-Identifier: Apache-2.0
"""One POST: to a checked address, within one deadline, following nothing, reading little of the answer."""

from __future__ import annotations

import contextlib
import errno
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from hotstage.notify.destinations import Resolver, Target, system_resolver

ANSWER_LIMIT_BYTES = 4096
PAUSING = frozenset({429, 503})
"""Answers that may ask for a pause; on others Retry-After means nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for connecting (with TLS), and for everything together."""

    connect_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What the receiver said. `retry_after_seconds` is its wish, where it gave one."""

    status: int
    retry_after_seconds: float | None


class Poster:
    """Posts to targets; one object serves all threads."""

    def __init__(self, limits: Limits, resolver: Resolver = system_resolver) -> None:
        self._limits = limits
        self._resolver = resolver
        self._tls = ssl.create_default_context()

    def resolve(self, target: Target) -> str:
        """The one address to post to, checked. Raises OSError or RefusedAddressError."""
        return target.resolve(self._resolver)

    def post(self, target: Target, headers: Mapping[str, str], body: bytes, address: str) -> Reply:
        """Post to an address that `resolve` gave.

        Raises OSError (TimeoutError, ssl.SSLError), http.client.HTTPException.
        """
        until = time.monotonic() + self._limits.total_seconds
        connect_seconds = min(self._limits.connect_seconds, self._limits.total_seconds)
        connection: socket.socket = socket.create_connection((address, target.port), timeout=connect_seconds)
        # Head and body are two writes; without this the second waits for an acknowledgement of the first.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            cut = _Cut(connection, until - time.monotonic())
        except RuntimeError as error:  # this process may have no more threads now
            connection.close()
            raise OSError(errno.EAGAIN, f"its deadline cannot be kept: {error}") from error
        try:
            if target.is_tls:
                # The name is checked against the certificate, the address was checked before.
                connection = self._tls.wrap_socket(
                    connection, server_hostname=target.host, do_handshake_on_connect=False
                )
                cut.connection = connection
                connection.do_handshake()
            connection.settimeout(self._limits.total_seconds)
            return self._exchange(connection, cut, target, headers, body)
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() >= until:
                raise self._late() from error
            raise
        finally:
            cut.cancel()
            connection.close()

    def _exchange(
        self, connection: socket.socket, cut: _Cut, target: Target, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        client = http.client.HTTPConnection(target.host, target.port)
        client.sock = connection
        try:
            sent = {"Host": target.host_header, "User-Agent": "hotstage", "Connection": "close", **headers}
            client.request("POST", target.path, body, sent)
            response = client.getresponse()
            if cut.has_fallen:
                # Headers that stop halfway read like complete ones.
                raise self._late()
            status = response.status
            wish = response.getheader("Retry-After") if status in PAUSING else None
            # Read a little, so that the receiver is not reset while it writes. The status is known: what the
            # content is, or whether it ever comes, says nothing to us.
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                response.read1(ANSWER_LIMIT_BYTES)
            return Reply(status, retry_after(wish))
        finally:
            client.close()

    def _late(self) -> TimeoutError:
        return TimeoutError(f"no answer within {self._limits.total_seconds:g} s")


def retry_after(header: str | None) -> float | None:
    """Seconds from a Retry-After header, a number or a date; None if there is none that makes sense."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            return None
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        # The parser stumbles over a zone or a year that is out of bounds, each in its own way.
        return None


class _Cut:
    """Ends a connection at a deadline: socket timeouts are per operation, and an answer may come byte by
    byte.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.connection = connection
        self.has_fallen = False
        self._timer = threading.Timer(max(0.0, seconds), self._end)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self.has_fallen = True
        with contextlib.suppress(OSError):
            # The base class's: SSLSocket's own would take the TLS object from the thread that is using it.
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)
