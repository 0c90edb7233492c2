# SPDX-License-Identifier: Apache-2.0
"""HTTP to a collector that may be hostile or broken: one deadline for everything, a little of the answer,
nothing unpacked, nothing followed.

OpenTelemetry's exporters read all of an answer, bound only the pause between two of its bytes, and take a
redirect for success.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from weakref import WeakSet

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

ANSWER_LIMIT_BYTES = 64 << 10


class RedirectedError(requests.RequestException):
    """The collector names another place; the operator's URL is the only one that exports go to."""


class CollectorSession(requests.Session):
    """What an exporter posts with. Not thread-safe; `answer` is the body of the last reply, cut."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = b""
        self._cut = _Cut()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(self._cut))
        self.headers["Accept-Encoding"] = "identity"
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> requests.Response:
        """One exchange within `timeout` seconds. Raises requests.RequestException.

        The exporters ask for a whole answer; they get one whose body has been read already.
        """
        self.answer = b""
        seconds = float(options.get("timeout") or 0.0)
        late = requests.exceptions.Timeout(f"no answer within {seconds:.3g} s")
        options |= {"stream": True, "allow_redirects": False}
        with self._cut.after(seconds):
            try:
                response = super().request(method, url, *args, **options)
                self.answer = _head_of(response)
            except Exception as error:
                if self._cut.has_fallen:
                    raise late from error
                raise
            if self._cut.has_fallen:
                # Headers that stop halfway read like complete ones.
                response.close()
                raise late
        if 300 <= response.status_code < 400:
            raise RedirectedError(f"it answered {response.status_code}, redirects are not followed")
        return response

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: to look where it leads, `requests` would read all of the body first."""


def _head_of(response: requests.Response) -> bytes:
    """A little of the body, as it was sent; the connection is kept only if that was all of it."""
    head = bytes(response.raw.read(ANSWER_LIMIT_BYTES, decode_content=False) or b"")
    if len(head) < ANSWER_LIMIT_BYTES:
        response.raw.release_conn()
    else:
        response.close()
    response._content = head
    response._content_consumed = True
    return head


class _Cut:
    """Ends the connections at a deadline: socket timeouts are per operation, and an answer may come byte by
    byte.
    """

    def __init__(self) -> None:
        self.has_fallen = False
        self._sockets: WeakSet[socket.socket] = WeakSet()

    def hold(self, connection: socket.socket) -> None:
        self._sockets.add(connection)

    @contextlib.contextmanager
    def after(self, seconds: float) -> Iterator[None]:
        self.has_fallen = False
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        self.has_fallen = True
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                # The base class's: SSLSocket's own would take the TLS object from the thread that uses it.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Adapter(HTTPAdapter):
    """Connections whose sockets the deadline knows."""

    def __init__(self, cut: _Cut) -> None:
        self._pools = _pools(cut)
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(cut: _Cut) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            cut.hold(self.sock)

    class Tls(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            # The handshake takes the descriptor over from this object; a second one still reaches it.
            made = super()._new_conn()
            self._handshaking = made.dup()
            cut.hold(self._handshaking)
            return made

        def connect(self) -> None:
            try:
                super().connect()
            finally:
                if handshaking := getattr(self, "_handshaking", None):
                    handshaking.close()
            cut.hold(self.sock)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    return {"http": PlainPool, "https": TlsPool}
