# SPDX-License-Identifier: Apache-2.0
"""The other end of a wire, byte by byte: an HTTP server that can misbehave below HTTP."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answer = Callable[[socket.socket, str], None]
"""What goes over the connection for a request's target (path and query)."""


def send(raw: bytes, status: str = "200 OK", *headers: str) -> Answer:
    def answer(connection: socket.socket, _path: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(raw)}", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode() + raw)

    return answer


class Wire:
    """A raw server: `answers[path]` or `default` decides what goes over the connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.default: Answer = send(b"{}")
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.headers: list[str] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            pending = b""
            while True:
                while b"\r\n\r\n" not in pending:
                    more = connection.recv(65536)
                    if not more:
                        return
                    pending += more
                head, pending = pending.split(b"\r\n\r\n", 1)
                target = head.split()[1].decode()
                path = target.split("?")[0]
                self.asked.append(path)
                self.headers.append(head.decode().lower())
                self.answers.get(path, self.default)(connection, target)


@contextmanager
def listening() -> Iterator[Wire]:
    made = Wire()
    try:
        yield made
    finally:
        made.listener.close()
