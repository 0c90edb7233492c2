# SPDX-License-Identifier: Apache-2.0
"""A webhook receiver that answers what a test tells it to and keeps what it was sent. Verifies nothing.

with RawReceiver(lambda request, before: Reply(429, {"Retry-After": "2"})) as receiver:
    … receiver.url …
    receiver.requests[0].json
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """Header names are lower case; `at` is monotonic seconds."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """`drip_seconds`: the body comes one byte in that time."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    drip_seconds: float = 0.0


Script = Callable[[Request, int], Reply]
"""(request, how many came before it) → what to answer."""


class RawReceiver:
    """Serves on loopback inside its `with`."""

    def __init__(self, script: Script = lambda request, before: Reply(), tls: ssl.SSLContext | None = None):
        self.requests: list[Request] = []
        self.script = script
        self._lock = threading.Lock()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"

    def __enter__(self) -> RawReceiver:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            return self.script(request, len(self.requests) - 1)


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 5

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.owner.take(Request(self.path, headers, body, time.monotonic()))  # type: ignore[attr-defined]
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        try:
            self._write(reply)
        except OSError:
            # The sender has heard enough.
            self.close_connection = True

    def do_GET(self) -> None:
        self.do_POST()

    def _write(self, reply: Reply) -> None:
        if not reply.drip_seconds:
            self.wfile.write(reply.body)
            return
        for byte in reply.body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(reply.drip_seconds)

    def log_message(self, format: str, *arguments: object) -> None:
        """The requests are kept; nothing is printed."""
