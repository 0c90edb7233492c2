# SPDX-License-Identifier: Apache-2.0
"""Server-sent events over a real connection."""

from __future__ import annotations

import time
from http.client import RemoteDisconnected

import pytest

from hotstage.api import stream as module
from hotstage.api.connection import Connection


class Reader:
    """One open stream; `event()` reads the next event as (id, type, data)."""

    def __init__(self, served, last_event_id=None):
        self.connection = served.tcp()
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        self.connection.request("GET", "/v1/events", headers=headers)
        self.response = self.connection.getresponse()

    def line(self):
        return self.response.readline().decode().rstrip("\n")

    def event(self):
        fields = {}
        while True:
            line = self.line()
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                return int(fields["id"]), fields["event"], fields["data"]

    def ready(self):
        assert self.line() == "retry: 2000"
        return self


@pytest.fixture
def read(served):
    opened = []

    def start(last_event_id=None):
        opened.append(Reader(served, last_event_id))
        return opened[-1]

    yield start
    for reader in opened:
        reader.connection.close()


def test_what_is_published_arrives_in_order(served, read, make):
    reader = read().ready()
    served.api.events.publish([make.event("a", body=b'{"n":1}'), make.event("b", body=b'{"n":2}')])
    kind = "io.hotstage.breaker.opened.v1"
    assert reader.event() == (1, kind, '{"n":1}')
    assert reader.event() == (2, kind, '{"n":2}')
    assert reader.response.headers["Content-Type"] == "text/event-stream"


def test_a_client_that_lost_its_line_goes_on_where_it_was(served, read, make):
    served.api.events.publish([make.event(str(n), body=b"%d" % n) for n in range(3)])
    reader = read("1")
    assert [reader.event()[2] for _ in range(2)] == ["1", "2"]


@pytest.mark.parametrize("last", ["999", "x", "-1", ""])
def test_a_number_of_another_run_starts_from_now(served, read, make, last):
    served.api.events.publish([make.event("old", body=b"0")])
    reader = read(last).ready()
    served.api.events.publish([make.event("new", body=b"1")])
    assert reader.event()[2] == "1"


def test_an_idle_stream_says_that_it_is_still_there(served, read, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.01)
    reader = read().ready()
    reader.line()
    assert reader.line() == ": still here"


def test_only_so_many_streams_are_served_and_a_place_comes_back(served, read, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.01)
    readers = [read().ready() for _ in range(module.MAX_STREAMS)]
    answer = served.ask("/v1/events")
    assert (answer.status, answer.code) == (503, "too_many_streams")
    readers[0].connection.close()
    readers[0].response.close()
    deadline = time.monotonic() + 5
    while read().response.status != 200:
        assert time.monotonic() < deadline, "no place came back within 5 s"


def test_closing_ends_the_streams(served, read):
    reader = read().ready()
    served.api.events.close()
    assert reader.response.read() == b"\n"


def all_places(served, read):
    """Every place can be had: none was kept by what came before."""
    opened = [read().ready() for _ in range(module.MAX_STREAMS)]
    return len(opened) == module.MAX_STREAMS


def test_a_head_takes_no_place(served, read):
    for _ in range(module.MAX_STREAMS + 1):
        connection = served.tcp()
        connection.request("HEAD", "/v1/events")
        assert connection.getresponse().status == 200
        connection.close()
    assert all_places(served, read)


def test_a_number_of_thousands_of_digits_is_refused_and_keeps_no_place(served, read):
    for _ in range(module.MAX_STREAMS + 1):
        reader = read("9" * 5000)
        assert reader.response.status == 400
        assert b"bad_event_id" in reader.response.read()
    assert all_places(served, read)


def test_a_peer_that_is_gone_before_the_head_gives_its_place_back(served, read, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "end_headers", gone)
        for _ in range(module.MAX_STREAMS + 1):
            with pytest.raises(RemoteDisconnected):
                read()
    assert all_places(served, read)


def gone(connection):
    raise ConnectionResetError
