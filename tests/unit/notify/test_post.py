# SPDX-License-Identifier: Apache-2.0
"""One POST against receivers that behave, stall, drip, flood and pretend."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from hotstage.config.notify import Destination
from hotstage.notify.destinations import RefusedAddressError, Target
from hotstage.notify.post import Limits, Poster, Reply, retry_after

QUICK = Limits(connect_seconds=0.5, total_seconds=0.5)


@pytest.fixture
def listen():
    """`listen(serve)`: a server of one connection at a time; `serve(connection)` may do what it likes."""
    opened = []

    def start(serve, wrap=lambda connection: connection):
        listening = socket.create_server(("127.0.0.1", 0))

        def run():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with contextlib.suppress(OSError), wrap(connection) as wrapped:
                        serve(wrapped)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        opened.append((listening, thread))
        return listening.getsockname()[1]

    yield start
    for listening, thread in opened:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def post(poster, target, headers, body):
    return poster.post(target, headers, body, poster.resolve(target))


def read_request(connection):
    received = b""
    while not received.endswith(b"\r\n\r\n{}"):
        received += connection.recv(65536)
    return received


def test_a_post_carries_its_headers_and_body_and_brings_the_status(listen, target):
    seen = []

    def serve(connection):
        seen.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 429 Slow down\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nok")

    port = listen(serve)
    reply = post(Poster(QUICK), target(port), {"Content-Type": "application/json", "webhook-id": "e1"}, b"{}")
    assert (reply.status, reply.retry_after_seconds) == (429, 7.0)
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{port}".encode() in head
    assert head.lower().count(b"host:") == 1
    assert b"webhook-id: e1" in head
    assert body == b"{}"


def test_a_receiver_that_never_answers_costs_the_total_time_and_no_more(listen, target):
    port = listen(lambda connection: (read_request(connection), connection.recv(1)))
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0\.5 s"):
        post(Poster(QUICK), target(port), {}, b"{}")
    assert 0.4 < time.monotonic() - began < 2


@pytest.mark.parametrize("drip", [b"H", b"HTTP/1.1 200 OK\r\nX: y"])
def test_an_answer_that_comes_byte_by_byte_is_cut_at_the_deadline(listen, target, drip):
    def serve(connection):
        read_request(connection)
        connection.sendall(drip)
        for _ in range(100):
            connection.sendall(b"a")
            time.sleep(0.05)

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        post(Poster(QUICK), target(listen(serve)), {}, b"{}")
    assert time.monotonic() - began < 2


def test_an_endless_answer_is_not_read_to_its_end(listen, target):
    def serve(connection):
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    assert post(Poster(QUICK), target(listen(serve)), {}, b"{}").status == 200


@pytest.mark.parametrize(
    "rest",
    [
        b"Retry-After: Mon, 01 Jan 2024 00:00:00 +99999999999999999999\r\nContent-Length: 0\r\n\r\n",
        b"Retry-After: Mon, 01 Jan 0000 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-5\r\nxx\r\n",
        b"Content-Length: 99999999999999999999999999\r\n\r\nxx",
        b"Content-Length: 7\r\n\r\n",
    ],
)
def test_what_follows_the_status_of_a_200_does_not_make_it_a_failure(listen, target, rest):
    def serve(connection):
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + rest)

    assert post(Poster(QUICK), target(listen(serve)), {}, b"{}") == Reply(200, None)


def test_a_200_whose_body_never_comes_is_one(listen, target):
    def serve(connection):
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
        connection.recv(1)

    assert post(Poster(QUICK), target(listen(serve)), {}, b"{}").status == 200


def test_a_port_that_nobody_listens_on_is_an_os_error(target):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        post(Poster(QUICK), target(port), {}, b"{}")


def test_a_name_that_flips_to_the_metadata_address_is_never_connected_to():
    answers = iter([["8.8.8.8"], ["169.254.169.254"]])
    target = Target.of(Destination(name="a", url="https://hooks.example/", format="plain"), {})
    poster = Poster(QUICK, resolver=lambda host, port: next(answers))
    assert target.resolve(poster._resolver) == "8.8.8.8"
    with pytest.raises(RefusedAddressError, match="metadata"):
        post(poster, target, {}, b"{}")


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """A certificate for `right.example`, trusted by this process."""
    paths = (tmp_path / "key.pem", tmp_path / "cert.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=right.example", "-addext", "subjectAltName=DNS:right.example", "-days", "2",
         "-keyout", str(paths[0]), "-out", str(paths[1])],
        check=True, capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(paths[1]))
    return paths


def tls_target(host, port):
    config = Destination(name="a", url=f"https://{host}:{port}/", format="plain", allow_private=True)
    return Target.of(config, {})


def ok(connection):
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])
    return lambda connection: context.wrap_socket(connection, server_side=True)


def test_the_certificate_must_be_of_the_name_though_the_address_is_pinned(listen, certificate):
    port = listen(ok, tls(certificate))
    poster = Poster(QUICK, resolver=lambda host, port: ["127.0.0.1"])
    assert post(poster, tls_target("right.example", port), {}, b"{}").status == 200
    with pytest.raises(ssl.SSLCertVerificationError, match="wrong"):
        post(poster, tls_target("wrong.example", port), {}, b"{}")


def test_an_untrusted_certificate_is_refused(listen, certificate, monkeypatch):
    port = listen(ok, tls(certificate))
    monkeypatch.delenv("SSL_CERT_FILE")
    poster = Poster(QUICK, resolver=lambda host, port: ["127.0.0.1"])
    with pytest.raises(ssl.SSLCertVerificationError):
        post(poster, tls_target("right.example", port), {}, b"{}")


def test_a_tls_handshake_that_never_comes_is_cut_as_well(listen):
    port = listen(lambda connection: connection.recv(10_000) and connection.recv(1))
    poster = Poster(QUICK, resolver=lambda host, port: ["127.0.0.1"])
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        post(poster, tls_target("right.example", port), {}, b"{}")
    assert time.monotonic() - began < 2


def test_a_tls_answer_that_drips_is_cut(listen, certificate):
    def serve(connection):
        read_request(connection)
        for _ in range(100):
            connection.sendall(b"a")
            time.sleep(0.05)

    port = listen(serve, tls(certificate))
    poster = Poster(QUICK, resolver=lambda host, port: ["127.0.0.1"])
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        post(poster, tls_target("right.example", port), {}, b"{}")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "header",
    [
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
        "Fri, 31 Dec 9999 23:59:59 +9999",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 99 Foo 2024 00:00:00 GMT",
        "Mon, 01 Jan 2024 00:00:00 -0000",
        "\x1b[2J",
        "12" * 5000,
        "1e9",
        "0x10",
        "\u0663",
    ],
)
def test_a_retry_after_that_makes_no_sense_is_none(header):
    assert retry_after(header) is None


def test_a_retry_after_at_the_end_of_time_is_a_number():
    found = retry_after("Fri, 31 Dec 9999 23:59:59 -2359")
    assert found is None or found > 1e9


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("120", 120.0), (" 7 ", 7.0), ("-1", None), ("soon", None), ("1" * 30, None), ("", None)],
)
def test_retry_after_as_a_number(header, seconds):
    assert retry_after(header) == seconds


def test_retry_after_as_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 85 < retry_after(later) < 91
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


def test_where_no_thread_can_be_started_nothing_is_sent_and_the_attempt_has_failed(
    listen, target, monkeypatch
):
    def start(thread):
        raise RuntimeError("can't start new thread")

    port = listen(lambda connection: connection.recv(1))
    monkeypatch.setattr(threading.Timer, "start", start)
    with pytest.raises(OSError, match="deadline cannot be kept: can't start new thread"):
        Poster(Limits(1.0, 1.0)).post(target(port), {}, b"{}", "127.0.0.1")
