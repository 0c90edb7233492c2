# SPDX-License-Identifier: Apache-2.0
"""The explorer's only HTTP, against the other end of a wire: well-behaved, slow, hostile, gone."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from support.wire import Answer, Wire, listening, send

from hotstage_explorer.picture import Picture
from hotstage_explorer.questions import UNREAD, Question
from hotstage_explorer.sources.agent import AgentSource
from hotstage_explorer.sources.wire import MAX_BODY_BYTES


def body(**parts: object) -> bytes:
    return json.dumps(
        {"at_ns": 1_700_000_000_000_000_000, "host": "gpu-1", "stale": False, "tick": 7, **parts}
    ).encode()


@pytest.fixture
def wire() -> Iterator[Wire]:
    with listening() as made:
        made.default = send(body())
        yield made


def read(wire: Wire, previous: Picture | None = None, timeout_seconds: float = 0.4) -> Picture:
    return AgentSource(wire.address, timeout_seconds=timeout_seconds).read(previous or Picture(wire.address))


def test_one_read_asks_for_each_part_once_over_one_connection(wire: Wire) -> None:
    picture = read(wire)
    assert picture.link == "live"
    assert picture.host == "gpu-1"
    assert picture.tick == 7
    assert wire.asked == ["/v1/heat", "/v1/stages", "/v1/windows", "/v1/breakers", "/v1/coverage"]
    assert wire.connections == 1


def test_an_unchanged_part_is_not_sent_again(wire: Wire) -> None:
    breakers = body(breakers=[{"name": "host", "state": "open"}])
    wire.answers["/v1/breakers"] = send(breakers, "200 OK", 'ETag: "a"')
    source = AgentSource(wire.address)
    first = source.read(Picture(wire.address))
    wire.answers["/v1/breakers"] = send(b"", "304 Not Modified", 'ETag: "a"')
    second = source.read(first)
    assert 'if-none-match: "a"' in wire.headers[-2]
    assert [b.name for b in second.breakers.value] == ["host"]
    assert second.breakers.problem is None


def test_nobody_there_is_unreachable_at_once(wire: Wire) -> None:
    wire.listener.shutdown(socket.SHUT_RDWR)
    wire.listener.close()
    picture = read(wire)
    assert picture.link == "unreachable"
    assert picture.problem
    assert "connection refused" in picture.problem.message
    assert "hotstage agent" in picture.problem.remedy


def test_an_agent_that_never_answers_costs_one_timeout(wire: Wire) -> None:
    wire.default = lambda _connection, _path: time.sleep(5)
    began = time.monotonic()
    picture = read(wire)
    assert time.monotonic() - began < 1.5
    assert picture.problem
    assert "no answer within 0.4 s" in picture.problem.message


def test_a_body_that_drips_is_cut_off(wire: Wire) -> None:
    def drip(connection: socket.socket, _path: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(50):
            connection.sendall(b"{")
            time.sleep(0.1)

    wire.answers["/v1/stages"] = drip
    began = time.monotonic()
    picture = read(wire)
    assert time.monotonic() - began < 2.5
    assert picture.link == "live"
    assert picture.stages.problem == "/v1/stages did not finish its answer in time"


def test_a_body_without_end_is_cut_off(wire: Wire) -> None:
    def flood(connection: socket.socket, _path: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b" " * (1 << 20))

    wire.answers["/v1/heat"] = flood
    picture = read(wire, timeout_seconds=3.0)
    assert picture.heat.problem == f"/v1/heat sent more than {MAX_BODY_BYTES >> 20} MiB"
    assert picture.link == "live"


def test_a_redirect_is_not_followed(wire: Wire) -> None:
    wire.answers["/v1/coverage"] = send(b"", "302 Found", f"Location: {wire.address}/secret")
    picture = read(wire)
    assert picture.coverage.problem == "/v1/coverage answered HTTP 302"
    assert "/secret" not in wire.asked


def test_a_compressed_body_is_not_unpacked(wire: Wire) -> None:
    wire.answers["/v1/heat"] = send(b"\x1f\x8b\x08\x00bomb", "200 OK", "Content-Encoding: gzip")
    assert read(wire).heat.problem == "/v1/heat answered with no JSON"
    assert "accept-encoding: identity" in wire.headers[0]


def test_the_agents_own_error_sentence_is_passed_on(wire: Wire) -> None:
    error = b'{"error": {"code": "store", "message": "the store refused a read", "remedy": ""}}'
    wire.answers["/v1/windows"] = send(error, "500 Internal Server Error")
    assert read(wire).windows.problem == "/v1/windows answered HTTP 500: the store refused a read"


def test_a_part_that_fails_keeps_its_last_good_value(wire: Wire) -> None:
    wire.answers["/v1/heat"] = send(body(points=[{"endpoint": "/a", "instance": "i-0", "heat": 1}]))
    first = read(wire)
    wire.answers["/v1/heat"] = send(b"{", "200 OK")
    second = read(wire, first)
    assert [p.endpoint for p in second.heat.value] == ["/a"]
    assert second.heat.problem
    assert second.version == first.version + 1


def test_another_program_on_the_port_is_told_from_an_agent(wire: Wire) -> None:
    wire.default = send(b"<html>hello</html>")
    picture = read(wire)
    assert picture.link == "unreachable"
    assert picture.problem
    assert "not like a hotstage agent" in picture.problem.message


def test_no_http_at_all_is_survived(wire: Wire) -> None:
    wire.default = lambda connection, _path: (
        connection.sendall(b"\x16\x03\x01 not http\r\n\r\n") or connection.close()
    )
    assert read(wire).link == "unreachable"


def test_age_follows_the_tick_and_not_the_answers(wire: Wire) -> None:
    now = [100.0]
    source = AgentSource(wire.address, monotonic=lambda: now[0], wall_ns=lambda: 1_700_000_000_400_000_000)
    first = source.read(Picture(wire.address))
    assert first.age_seconds(100.0) == pytest.approx(0.4)
    now[0] = 109.0
    wire.default = send(body(at_ns=1_700_000_009_000_000_000))
    assert source.read(first).age_seconds(109.0) == pytest.approx(9.4), "the same tick is the same age"
    wire.default = send(body(tick=8, at_ns=1_700_000_000_300_000_000))
    assert source.read(first).age_seconds(109.0) == pytest.approx(0.1)


def test_an_agent_that_calls_itself_stale_is_believed(wire: Wire) -> None:
    wire.answers["/v1/stages"] = send(body(stale=True))
    assert read(wire).says_stale


def test_questions_of_pages_are_asked_beside_the_picture(wire: Wire) -> None:
    row = {"seq": 4, "id": "r-4", "endpoint": "/v1/a", "outcome": "ok"}
    wire.answers["/v1/requests"] = send(body(requests=[row], next=4, totals={"finished": 4}))
    source = AgentSource(wire.address)
    first = source.answer(Question("requests"), UNREAD)
    assert [each.id for each in first.value.rows] == ["r-4"]
    second = source.answer(Question("requests"), first)
    assert second.value.rows == first.value.rows, "what comes twice is there once"


def test_an_item_of_any_name_stays_one_segment_of_the_path(wire: Wire) -> None:
    AgentSource(wire.address).answer(Question("request", "../../metrics?a=b#c"), UNREAD)
    assert wire.asked == ["/v1/requests/..%2F..%2Fmetrics%3Fa%3Db%23c"]


def test_what_stays_as_it_is_is_asked_for_once(wire: Wire) -> None:
    wire.answers["/v1/snapshots/s-1"] = send(body(id="s-1", snapshot={"requests": [{"key": "a"}]}))
    source = AgentSource(wire.address)
    first = source.answer(Question("stored", "s-1"), UNREAD)
    assert source.answer(Question("stored", "s-1"), first) is first
    assert len(wire.asked) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (send(b'{"error":{"message":"no such request"}}', "404 Not Found"), "HTTP 404: no such request"),
        (send(b"<html>"), "answered with no JSON"),
        (send(b"[1]"), "JSON, but no object"),
    ],
)
def test_a_question_without_an_answer_keeps_the_last_value_and_says_why(
    wire: Wire, answer: Answer, said: str
) -> None:
    wire.answers["/v1/classes"] = send(body(classes=[{"fingerprint": "llm", "requests": 2}]))
    source = AgentSource(wire.address)
    first = source.answer(Question("classes"), UNREAD)
    wire.answers["/v1/classes"] = answer
    second = source.answer(Question("classes"), first)
    assert second.value is first.value
    assert said in (second.problem or "")
