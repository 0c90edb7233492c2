# SPDX-License-Identifier: Apache-2.0
"""Pages from servers that behave and from servers that do not, on loopback."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time

import pytest
from support.wire import listening, send

from hotstage.config.engines import EngineEndpoint
from hotstage.engines.fetch import Fetcher, FetchError
from hotstage.engines.target import read_targets

PAGE = b'vllm:num_requests_waiting{model_name="m"} 2\n'


@pytest.fixture
def wire():
    with listening() as made:
        yield made


def fetcher(wire, *, timeout=2.0, max_bytes=1 << 16, **changed):
    (target,) = read_targets([EngineEndpoint(name="e", url=wire.address, **changed)])
    return Fetcher(target, timeout, max_bytes)


def refused(made):
    with pytest.raises(FetchError) as caught:
        made.fetch()
    return caught.value.kind, str(caught.value)


def raw(*parts, pause=0.0):
    """Exactly these bytes, and the end."""

    def answer(connection, _path):
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
                if pause:
                    threading.Event().wait(pause)
            connection.close()

    return answer


def test_a_page_is_asked_for_as_plain_text_and_unpacked_on_loopback(wire):
    wire.default = send(PAGE)
    assert fetcher(wire).fetch() == PAGE
    assert wire.asked == ["/metrics"]
    assert "accept: text/plain;version=0.0.4" in wire.headers[0]
    assert "accept-encoding: identity" in wire.headers[0] and "authorization" not in wire.headers[0]


def test_a_packed_page_is_unpacked(wire):
    wire.default = send(gzip.compress(PAGE), "200 OK", "Content-Encoding: gzip")
    assert fetcher(wire).fetch() == PAGE


def test_a_page_in_chunks_is_put_together(wire):
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (PAGE[:10], PAGE[10:]))
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire.default = raw(head, chunks, b"0\r\n\r\n")
    assert fetcher(wire).fetch() == PAGE


def test_a_bearer_token_goes_with_the_request(wire, tmp_path):
    (tmp_path / "token").write_text("geheim\n")
    wire.default = send(PAGE)
    fetcher(wire, token_file=str(tmp_path / "token")).fetch()
    assert "authorization: bearer geheim" in wire.headers[0]


def test_a_token_that_is_not_there_is_said_and_nothing_is_asked(wire, tmp_path):
    kind, text = refused(fetcher(wire, token_file=str(tmp_path / "gone")))
    assert kind == "token" and "No such file" in text and wire.connections == 0


@pytest.mark.parametrize("text", ["two words", "two\nlines", ""])
def test_a_file_that_is_no_token_is_said_and_not_sent(wire, tmp_path, text):
    (tmp_path / "token").write_text(text)
    kind, said = refused(fetcher(wire, token_file=str(tmp_path / "token")))
    assert kind == "token" and "does not hold one word" in said and wire.connections == 0


def test_a_redirect_is_not_followed(wire):
    wire.default = send(b"", "302 Found", f"Location: {wire.address}/other")
    assert refused(fetcher(wire)) == ("status", "answers 302: redirects are not followed")
    assert wire.asked == ["/metrics"]


def test_a_status_of_trouble_is_the_reason(wire):
    wire.default = send(PAGE, "503 Service Unavailable")
    assert refused(fetcher(wire)) == ("status", "answers 503")


def test_nobody_there_is_said_in_plain_words():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    (target,) = read_targets([EngineEndpoint(name="e", url=url)])
    assert refused(Fetcher(target, 2.0, 1 << 16)) == ("unreachable", "Connection refused")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
def test_a_page_without_end_is_cut_at_the_limit(wire, pack):
    headers = ["Content-Encoding: gzip"] if pack is gzip.compress else []
    wire.default = send(pack(b"x" * 5_000_000), "200 OK", *headers)
    kind, text = refused(fetcher(wire))
    assert kind == "size" and "65536 bytes" in text


@pytest.mark.parametrize(
    "answer",
    [
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
        raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        raw(b""),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1" * 3_000_000),
        raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"),
    ],
    ids=[
        "too short",
        "another protocol",
        "broken chunks",
        "nothing",
        "a size without end",
        "headers without end",
    ],
)
def test_an_answer_that_is_no_page_is_a_failure_with_a_reason(wire, answer):
    wire.default = answer
    kind, text = refused(fetcher(wire))
    assert kind == "unreachable" and text and "0x" not in text


def test_an_encoding_that_was_not_asked_for_is_refused(wire):
    wire.default = send(b"\x00", "200 OK", "Content-Encoding: br")
    assert refused(fetcher(wire))[0] == "encoding"
    wire.default = send(gzip.compress(PAGE * 100)[:-30], "200 OK", "Content-Encoding: gzip")
    assert refused(fetcher(wire))[0] == "encoding"


def test_silence_ends_at_the_deadline(wire):
    wire.default = lambda connection, path: threading.Event().wait(5.0)
    began = time.monotonic()
    assert refused(fetcher(wire, timeout=0.2)) == ("timeout", "no whole answer within 0.2 s")
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"], ids=["headers", "body"]
)
def test_a_drip_ends_when_it_is_cut(wire, head):
    wire.default = raw(head, *[b"H"] * 100, pause=0.05)
    made = fetcher(wire, timeout=0.3)
    stop = threading.Event()

    def watch():
        while not stop.wait(0.05):
            made.cut_if_late()

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    try:
        assert refused(made)[0] == "timeout"
    finally:
        stop.set()
        watcher.join()
    assert time.monotonic() - began < 2.0


def test_nothing_is_cut_between_two_fetches(wire):
    wire.default = send(PAGE)
    made = fetcher(wire)
    made.cut_if_late()
    assert made.fetch() == PAGE
    made.cut_if_late()
    assert made.fetch() == PAGE
