# SPDX-License-Identifier: Apache-2.0
"""TLS handshakes of one listener: each has a short time, and one address never takes more than a share.

A peer that begins and stops costs nothing but itself: a newcomer ends the oldest of its own address, which
has had longer than an honest one needs. It serves nothing and keeps nothing once a handshake is over.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

SECONDS = 2.0
"""For one handshake, whatever a request may take; an honest one needs a few round trips."""
_SHARE = 4
"""One address may be in handshake on a fourth of the places."""


class Handshakes:
    """`ended` counts those that a newcomer of the same address displaced."""

    def __init__(self, tls: ssl.SSLContext, places: int, timeout_seconds: float) -> None:
        self._tls = tls
        self._limit = max(1, places // _SHARE)
        self._seconds = min(SECONDS, timeout_seconds)
        self._lock = threading.Lock()
        # Address → its handshakes, the oldest first.
        self._under_way: dict[str, list[ssl.SSLSocket]] = {}
        self.ended = 0

    def wrap(self, request: socket.socket, address: str) -> ssl.SSLSocket:
        """The connection before its handshake; the plain socket has handed its descriptor over."""
        secured = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        secured.settimeout(self._seconds)
        with self._lock:
            of_address = self._under_way.setdefault(address, [])
            if len(of_address) >= self._limit:
                self.ended += 1
                with contextlib.suppress(OSError):
                    # Its thread sees the end of the line. The plain verb: TLS has nothing to say yet.
                    socket.socket.shutdown(of_address.pop(0), socket.SHUT_RDWR)
            of_address.append(secured)
        return secured

    def complete(self, secured: ssl.SSLSocket, address: str) -> None:
        """Do it; OSError for a peer that does not, or not in time."""
        try:
            secured.do_handshake()
        finally:
            with self._lock:
                of_address = self._under_way.get(address, [])
                if secured in of_address:
                    of_address.remove(secured)
                if not of_address:
                    self._under_way.pop(address, None)
