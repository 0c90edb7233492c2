# SPDX-License-Identifier: Apache-2.0
"""Collectors that flood, drip, pack and redirect: none costs more than the deadline and a little memory."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import logging
import socket
import threading
import time
import tracemalloc

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from hotstage.config.settings import OtlpConfig
from hotstage.sinks.otlp.channels import channels, rejection
from hotstage.sinks.otlp.collector import Collector

SECONDS = 0.6
BATCH = [ReadableSpan(name="x", context=SpanContext(1, 2, False, TraceFlags(1)), start_time=1, end_time=2)]


class Answering:
    """A server that reads a request and hands the connection to `answer`; `requests` are their heads."""

    def __init__(self, answer):
        self.answer, self.requests = answer, []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection:
            connection.settimeout(5)
            while head := self._read(connection):
                self.requests.append(head)
                self.answer(connection)

    @staticmethod
    def _read(connection):
        received = b""
        while b"\r\n\r\n" not in received:
            part = connection.recv(65536)
            if not part:
                return b""
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65536)
        return head

    def close(self):
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(5)


@pytest.fixture
def channel_to():
    """`channel_to(answer, query="")` → (channel of the traces, server)."""
    opened = []

    def build(answer, path="/v1/traces"):
        server = Answering(answer)
        opened.append(server)
        collector = Collector(f"http://127.0.0.1:{server.port}{path}", None, None, {"x-api-key": "s3cr3t"})
        return channels(OtlpConfig(timeout_seconds=SECONDS), collector)["traces"], server

    yield build
    for server in opened:
        server.close()


def plain(status, body=b"", headers=b""):
    head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), headers)
    return lambda connection: connection.sendall(head + body)


def endless(head):
    def answer(connection):
        connection.sendall(head)
        while True:
            connection.sendall(b"x" * 65536)

    return answer


def dripping(head):
    def answer(connection):
        connection.sendall(head)
        for _ in range(200):
            connection.sendall(b"a")
            time.sleep(0.05)

    return answer


def sent_within(channel, seconds):
    began = time.monotonic()
    taken = channel.send(BATCH)
    assert time.monotonic() - began < seconds
    return taken


@pytest.mark.parametrize(
    "status", [b"302 Found", b"307 Temporary Redirect", b"304 Not Modified", b"300 Many"]
)
def test_only_2xx_is_success_and_a_redirect_is_not_followed(channel_to, caplog, status):
    elsewhere = Answering(plain(b"200 OK"))
    try:
        location = b"Location: http://127.0.0.1:%d/v1/traces\r\n" % elsewhere.port
        channel, _ = channel_to(plain(status, headers=location))
        assert not channel.send(BATCH)
        assert elsewhere.requests == []
    finally:
        elsewhere.close()
    assert f"it answered {status[:3].decode()}, redirects are not followed" in caplog.text


def test_a_connection_is_used_again(channel_to):
    channel, server = channel_to(plain(b"200 OK"))
    assert channel.send(BATCH) and channel.send(BATCH)
    assert len(server.requests) == 2
    assert b"Accept-Encoding: identity" in server.requests[0]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 500 No\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n\r\n",
    ],
)
def test_an_endless_answer_costs_neither_memory_nor_time(channel_to, head):
    channel, _ = channel_to(endless(head))
    tracemalloc.start()
    try:
        sent_within(channel, SECONDS + 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_a_packed_answer_is_not_unpacked(channel_to):
    bomb = gzip.compress(b"\0" * (64 << 20))
    channel, _ = channel_to(plain(b"200 OK", bomb, b"Content-Encoding: gzip\r\n"))
    tracemalloc.start()
    try:
        sent_within(channel, SECONDS + 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: y",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n",
    ],
)
def test_an_answer_that_comes_byte_by_byte_is_cut_at_the_deadline(channel_to, head):
    channel, _ = channel_to(dripping(head))
    assert not sent_within(channel, SECONDS + 1)


def test_interim_answers_without_end_are_cut_at_the_deadline(channel_to):
    def answer(connection):
        while True:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    channel, _ = channel_to(answer)
    assert not sent_within(channel, SECONDS + 2)


def test_a_handshake_that_never_ends_is_cut_at_the_deadline():
    listening = socket.create_server(("127.0.0.1", 0))
    held = []

    def drip():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                held.append(connection)
                connection.sendall(b"\x16\x03\x03\x40\x00")
                for _ in range(100):
                    connection.sendall(b"\x02")
                    time.sleep(0.05)

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    url = f"https://127.0.0.1:{listening.getsockname()[1]}/v1/traces"
    channel = channels(OtlpConfig(timeout_seconds=SECONDS), Collector(url, None, None))["traces"]
    assert not sent_within(channel, SECONDS + 1)
    listening.shutdown(socket.SHUT_RDWR)
    for connection in [listening, *held]:
        connection.close()
    thread.join(5)


def test_a_part_that_is_rejected_is_counted_and_its_reason_told_once(channel_to, caplog):
    reply = ExportTraceServiceResponse()
    reply.partial_success.rejected_spans = 1
    reply.partial_success.error_message = "too \x1b[31mlarge"
    channel, _ = channel_to(plain(b"200 OK", reply.SerializeToString()))
    assert channel.send(BATCH) and channel.send(BATCH)
    assert channel.rejected == 1
    told = [record.getMessage() for record in caplog.records]
    assert told == ["the OTLP collector rejects a part of traces: too ?[31mlarge"]


def test_an_answer_that_is_no_otlp_rejects_nothing():
    assert rejection("traces", b"<html>ok</html>").count == 0
    assert rejection("metrics", b"").count == 0


def test_a_collectors_words_reach_the_log_without_control_characters(channel_to, caplog):
    channel, _ = channel_to(plain(b"400 \x1b]0;pwn\x07\x1b[2JEVIL"))
    assert not channel.send(BATCH)
    assert "EVIL" in caplog.text
    assert caplog.messages[0].isprintable()


def test_a_token_in_the_query_is_sent_but_never_told(caplog):
    caplog.set_level(logging.DEBUG, "hotstage")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1/traces?api-key=T0KEN"
    channel = channels(OtlpConfig(timeout_seconds=SECONDS), Collector(url, None, None))["traces"]
    assert not channel.send(BATCH)
    assert "does not take traces" in caplog.text
    told = itertools.chain.from_iterable(
        (str(vars(record)), record.getMessage())
        for record in caplog.records
        if record.name.startswith("hotstage")
    )
    assert not any("T0KEN" in each for each in told)


def test_cookies_of_a_collector_are_not_kept(channel_to):
    channel, server = channel_to(plain(b"200 OK", headers=b"Set-Cookie: a=b\r\n"))
    assert channel.send(BATCH) and channel.send(BATCH)
    assert b"ookie" not in server.requests[1]
