# SPDX-License-Identifier: Apache-2.0
"""Answers that come slowly or again on one connection, from sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hotstage_explorer.sources.base import AnswerError, UnreachableError
from hotstage_explorer.sources.wire import Wire

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
Behave = Callable[[socket.socket], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Behave], str]]:
    """`serve(behave)` → the URL of a server whose one connection `behave` has."""
    listening: list[socket.socket] = []

    def start(behave: Behave) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def work() -> None:
            try:
                connection, _ = server.accept()
                with connection:
                    behave(connection)
            except OSError:
                return

        threading.Thread(target=work, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/"

    yield start
    for each in listening:
        each.close()


def dripping(head: bytes) -> Behave:
    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head)
        never = threading.Event()
        while not never.wait(0.05):
            connection.sendall(b" ")

    return behave


@pytest.mark.parametrize(
    ("head", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", UnreachableError),
        (HEAD.replace(b"Length: 2", b"Length: 9000"), AnswerError),
    ],
    ids=["in its head", "in its body"],
)
def test_a_server_that_drips_bytes_is_given_up_in_time(
    serve: Callable[[Behave], str], head: bytes, error: type[Exception]
) -> None:
    url = serve(dripping(head))
    began = time.monotonic()
    with pytest.raises(error, match=r"in time|within"):
        Wire().get(url, what="query", wait=0.4, headers={})
    assert time.monotonic() - began < 1.5


def test_two_answers_come_on_one_connection_each_with_its_own_time(serve: Callable[[Behave], str]) -> None:
    def behave(connection: socket.socket) -> None:
        for body in (b"{}", b"[]"):
            connection.recv(65536)
            connection.sendall(HEAD + body)
        connection.recv(1)

    wire, url = Wire(), serve(behave)
    assert wire.get(url, what="query", wait=0.3, headers={}).body == b"{}"
    pause = time.monotonic() + 0.35
    while time.monotonic() < pause:
        threading.Event().wait(0.05)
    assert wire.get(url, what="query", wait=0.3, headers={}).body == b"[]"
