# SPDX-License-Identifier: Apache-2.0
"""Hostile and clumsy peers: slow, huge, malformed, many. The next peer is always served."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

import pytest

from hotstage.api import connection as connection_module

OK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def still_serves(served) -> bool:
    return served.ask("/healthz").status == 200


def status_and_error(received: bytes) -> tuple[int, str]:
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_a_peer_that_sends_a_byte_now_and_then_is_dropped_at_the_deadline(serve):
    served = serve(timeout_seconds=0.3)
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=5) as slow:
        began = time.monotonic()
        with pytest.raises(OSError):
            for byte in OK * 100:
                slow.sendall(bytes([byte]))
                slow.settimeout(0.02)
                try:
                    if slow.recv(1) == b"":
                        raise ConnectionResetError
                except TimeoutError:
                    pass
        assert time.monotonic() - began < 3
    assert still_serves(served)


def test_a_peer_that_never_reads_its_answer_is_dropped(serve, sources):
    served = serve(sources=sources(snapshot=lambda: {"x": "y" * 20_000_000}), timeout_seconds=0.3)
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as deaf:
        deaf.sendall(OK.replace(b"/healthz", b"/v1/snapshot"))
        time.sleep(1.0)
        received = 0
        while chunk := deaf.recv(1 << 20):
            received += len(chunk)
        assert received < 20_000_000
    assert still_serves(served)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/9.9\r\n\r\n", 505),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 411),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", 400),
        (b"GET /healthz?" + b"a=1&" * 40 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://[/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ],
)
def test_what_is_malformed_or_too_large_gets_an_error_and_the_door(served, sent, status):
    received = served.raw(sent)
    assert status_and_error(received)[0] == status
    assert b"connection: close" in received.lower()
    assert still_serves(served)


def test_a_ten_megabyte_body_is_refused_while_it_is_still_being_sent(served):
    head = b"POST /v1/outbox/ack HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=5) as connection:
        connection.sendall(head)
        received = connection.recv(65536)
    assert status_and_error(received) == (413, "body_too_large")


def test_a_body_that_ends_early_is_given_up_quietly(served):
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=5) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    assert still_serves(served)


def test_two_requests_on_one_connection_get_two_answers(served):
    received = served.raw(OK + OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert received.count(b"HTTP/1.1 200") == 2


def test_head_has_the_headers_of_get_and_no_body(served):
    received = served.raw(OK.replace(b"GET", b"HEAD").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"Content-Length: 41" in head
    assert body == b""


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "169.254.169.254", "evil.example:80"]
)
def test_a_foreign_host_name_is_refused_on_loopback(served, host):
    received = served.raw(f"GET /v1/snapshot HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert status_and_error(received) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9178", "LOCALHOST:1", "[::1]:9178", "127.8.8.8"])
def test_loopback_names_are_served(served, host):
    assert b" 200 " in served.raw(
        f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    )


def test_where_all_places_are_at_work_there_is_a_503_and_places_come_back(serve, sources):
    go_on = threading.Event()
    began = threading.Semaphore(0)

    def slow():
        began.release()
        go_on.wait(10)
        return {}

    served = serve(sources=sources(coverage=slow), max_connections=2, timeout_seconds=5.0)
    address = ("127.0.0.1", served.server.port)
    held = [socket.create_connection(address, timeout=5) for _ in range(2)]
    try:
        for connection in held:
            connection.sendall(OK.replace(b"/healthz", b"/v1/coverage"))
            assert began.acquire(timeout=5), "a request was begun within 5 s"
        received = served.raw(OK)
        assert status_and_error(received) == (503, "too_many_connections")
        assert served.ask("/healthz", unix=True).status == 200, "the Unix socket has places of its own"
    finally:
        go_on.set()
        for connection in held:
            connection.close()
    deadline = time.monotonic() + 5
    while b" 200 " not in served.raw(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")):
        assert time.monotonic() < deadline, "no place came back within 5 s of the peers leaving"


@pytest.mark.parametrize("begun", [b"", b"GET /healthz", OK], ids=["idle", "half a request", "kept alive"])
def test_who_keeps_us_waiting_longest_gives_its_place_to_a_newcomer(serve, begun):
    served = serve(max_connections=4, timeout_seconds=10.0)
    address = ("127.0.0.1", served.server.port)
    held = [socket.create_connection(address, timeout=5) for _ in range(40)]
    try:
        for connection in held:
            with contextlib.suppress(OSError):
                connection.sendall(begun)
        began = time.monotonic()
        assert served.ask("/healthz").status == 200
        assert time.monotonic() - began < 2.0, "long before the others are too late"
    finally:
        for connection in held:
            connection.close()


def test_who_does_not_take_its_answer_gives_its_place_to_a_newcomer(serve, sources):
    served = serve(sources=sources(coverage=lambda: {"x": "y" * (16 << 20)}), max_connections=2)
    held = []
    try:
        for _ in range(2):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(5)
            connection.connect(("127.0.0.1", served.server.port))
            connection.sendall(OK.replace(b"/healthz", b"/v1/coverage"))
            assert connection.recv(1), "the answer begins"
            held.append(connection)
        began = time.monotonic()
        assert served.ask("/healthz").status == 200
        assert time.monotonic() - began < 2.0, "long before the others are too late"
    finally:
        for connection in held:
            connection.close()


def test_an_error_of_ours_is_a_500_that_tells_the_peer_nothing_of_it(serve, sources, caplog):
    def broken():
        raise ZeroDivisionError("secret detail")

    served = serve(sources=sources(coverage=broken))
    answer = served.ask("/v1/coverage")
    assert (answer.status, answer.code) == (500, "internal")
    assert b"secret" not in answer.body
    assert "secret detail" in caplog.text
    assert still_serves(served)


def test_a_long_body_is_compressed_for_those_who_can_read_it(serve, sources):
    served = serve(sources=sources(coverage=lambda: {"x": "y" * 100_000}))
    packed = served.ask("/v1/coverage", accept_encoding="gzip")
    plain = served.ask("/v1/coverage")
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert len(packed.body) < 2_000 < 100_000 < len(plain.body)
    assert "content-encoding" not in plain.headers


def test_the_server_does_not_name_its_language(served):
    assert served.ask("/healthz").headers["server"] == "hotstage"


def test_reads_share_one_deadline():
    ours, theirs = socket.socketpair()
    reader = connection_module.DeadlineReader(ours)
    reader.restart(0.05)
    theirs.sendall(b"a")
    assert reader.read(1) == b"a"
    sender = threading.Timer(0.2, theirs.sendall, (b"b",))
    sender.start()
    with pytest.raises(TimeoutError):
        reader.read(1)
    sender.join()
    ours.close()
    theirs.close()
