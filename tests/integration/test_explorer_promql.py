# SPDX-License-Identifier: Apache-2.0
"""The PromQL client and its source, against servers that are slow, wrong, hostile, partial or gone."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.wire import Answer, Wire, listening, send

from hotstage_explorer.picture import Picture
from hotstage_explorer.sources.base import AnswerError, SettingError, UnreachableError
from hotstage_explorer.sources.prometheus import PrometheusSource
from hotstage_explorer.sources.promql import PromQL
from hotstage_explorer.sources.wire import MAX_BODY_BYTES

WAIT = 0.4
AT = 1_700_000_000.0
HOST = {"instance": "gpu-1:9178", "job": "hotstage"}
TOKEN = "eyJ-secret-token"


def success(rows: list[Any], kind: str = "vector", **more: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": rows}, **more}).encode()


def vector(*rows: tuple[dict[str, str], str], at: float = AT) -> list[Any]:
    return [{"metric": labels, "value": [at, value]} for labels, value in rows]


@pytest.fixture
def wire() -> Iterator[Wire]:
    with listening() as made:
        made.default = send(success([]))
        yield made


def ask(wire: Wire, expression: str = "up", **options: Any) -> Any:
    return PromQL(wire.address, **options).query(expression, wait=WAIT)


def test_values_come_as_strings_and_what_is_no_number_is_unknown(wire: Wire) -> None:
    labels = [{"n": str(n)} for n in range(6)]
    values = ("1.5", "NaN", "+Inf", "-Inf", "4.9e-324", "4.9e-99")
    wire.default = send(success(vector(*zip(labels, values, strict=True))))
    answer = ask(wire)
    assert [each.value for each in answer.series] == [1.5, None, None, None, None, 4.9e-99]
    assert answer.at == AT
    assert answer.caveats == ()


def test_rows_without_a_shape_are_left_out(wire: Wire) -> None:
    rows = [
        7,
        {"metric": [], "value": [AT, "1"]},
        {"metric": {}, "value": [AT, 1]},
        {"metric": {}, "value": ["now", "1"]},
        {"metric": {}, "value": [AT, "one"]},
        {"metric": {}},
        {"metric": {}, "values": []},
        {"metric": {"ok": "yes"}, "value": [AT, "1"]},
    ]
    wire.default = send(success(rows))
    assert [dict(each.labels) for each in ask(wire).series] == [{"ok": "yes"}]


def test_a_scalar_and_a_matrix_are_understood(wire: Wire) -> None:
    wire.default = send(success([AT, "42"], "scalar"))
    assert ask(wire).series[0].value == 42
    wire.default = send(success([{"metric": HOST, "values": [[AT, "1"], [AT + 1, "2"]]}], "matrix"))
    assert ask(wire).series[0].points == ((AT, 1.0), (AT + 1, 2.0))


def test_an_empty_answer_is_as_of_the_servers_clock(wire: Wire) -> None:
    wire.default = send(success([]), "200 OK", "Date: Tue, 14 Nov 2023 22:13:20 GMT")
    answer = ask(wire)
    assert answer.series == ()
    assert answer.at == AT


def test_a_moment_of_the_past_is_asked_for_by_its_time(wire: Wire) -> None:
    seen: list[dict[str, list[str]]] = []

    def answer(connection: socket.socket, target: str) -> None:
        seen.append(parse_qs(urlsplit(target).query))
        send(success([], "matrix"))(connection, target)

    wire.default = answer
    assert PromQL(wire.address).query("up[5m]", at=AT, wait=WAIT).at == AT
    assert seen == [{"query": ["up[5m]"], "nocache": ["1"], "time": [f"{AT:.3f}"]}]


def test_warnings_and_a_partial_answer_are_passed_on(wire: Wire) -> None:
    wire.default = send(success([], warnings=["store x timed out", []], isPartial=True))
    assert ask(wire).caveats == (
        "the answer is partial: a storage node did not answer",
        "store x timed out",
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (send(b"<html>"), "query answered HTTP 200 with no JSON"),
        (send(b"[]"), "JSON, but no object"),
        (send(b"{}"), "query answered HTTP 200"),
        (send(b'{"status":"success","data":{"resultType":"vector"}}'), "without a result"),
        (send(b'{"status":"success","data":7}'), "without a result"),
        (send(b"oops", "500 Internal Server Error"), "HTTP 500"),
        (send(b'{"status":"error","error":"query timed out"}', "503 x"), "HTTP 503: query timed out"),
        (send(b'{"status":"error","error":"parse error"}', "400 Bad Request"), "HTTP 400: parse error"),
        (send(b"{}", "302 Found", "Location: http://127.0.0.1:1/secret"), "HTTP 302"),
    ],
)
def test_a_wrong_answer_is_named(wire: Wire, answer: Answer, words: str) -> None:
    wire.default = answer
    with pytest.raises(AnswerError, match=words):
        ask(wire)
    assert "/secret" not in wire.asked


def test_a_server_that_never_answers_costs_one_timeout(wire: Wire) -> None:
    wire.default = lambda _connection, _target: time.sleep(5)
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"no answer within 0\.4 s"):
        ask(wire)
    assert time.monotonic() - began < 1.5


def test_a_body_that_drips_or_never_ends_is_cut_off(wire: Wire) -> None:
    def drip(connection: socket.socket, _target: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(50):
            connection.sendall(b"{")
            time.sleep(0.1)

    def flood(connection: socket.socket, _target: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b" " * (1 << 20))

    wire.default = drip
    with pytest.raises(AnswerError, match="did not finish its answer in time"):
        ask(wire)
    wire.default = flood
    with pytest.raises(AnswerError, match=f"more than {MAX_BODY_BYTES >> 20} MiB"):
        PromQL(wire.address).query("up", wait=5.0)


@pytest.mark.parametrize(
    ("facts", "header", "name"),
    [
        ({"version": "2.42.0+ds", "goVersion": "go1.19.8"}, "X-None: x", "Prometheus 2.42.0"),
        ({}, "X-Server-Hostname: vm-1", "VictoriaMetrics"),
        ({"version": "2.24.0"}, "X-Server-Hostname: vm-1", "VictoriaMetrics"),
        ({"application": "Grafana Mimir", "version": "2.9.0"}, "X-None: x", "Grafana Mimir 2.9.0"),
        ({}, "X-None: x", "the PromQL server"),
    ],
)
def test_engines_are_told_apart(wire: Wire, facts: dict[str, str], header: str, name: str) -> None:
    wire.default = send(json.dumps({"status": "success", "data": facts}).encode(), "200 OK", header)
    assert PromQL(wire.address).engine(wait=WAIT).name == name
    assert wire.asked == ["/api/v1/status/buildinfo"]


def test_a_path_before_the_api_is_kept(wire: Wire) -> None:
    PromQL(f"{wire.address}/select/0/prometheus/").query("up", wait=WAIT)
    assert wire.asked == ["/select/0/prometheus/api/v1/query"]


def test_the_token_is_read_anew_and_goes_into_a_header_alone(wire: Wire, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    client = PromQL(wire.address, token_file=str(file))
    client.query("up", wait=WAIT)
    file.write_text("another")
    client.query("up", wait=WAIT)
    assert f"authorization: bearer {TOKEN}".lower() in wire.headers[0]
    assert "authorization: bearer another" in wire.headers[1]
    assert all(TOKEN.lower() not in head.split("\r\n")[0] for head in wire.headers)


@pytest.mark.parametrize("content", ["", "  \n", f"{TOKEN}\n{TOKEN}", f"{TOKEN} x", "tök", "x" * 20_000])
def test_a_file_without_one_token_is_named_and_its_content_is_not(
    wire: Wire, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(AnswerError, match="does not hold one line with a token") as caught:
        ask(wire, token_file=str(file))
    assert str(file) in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert wire.asked == []


def test_a_token_file_that_is_not_there_is_named(wire: Wire, tmp_path: Path) -> None:
    with pytest.raises(AnswerError, match="cannot be read: No such file"):
        ask(wire, token_file=str(tmp_path / "none"))


@pytest.mark.parametrize(
    "address", ["ftp://h", "127.0.0.1:9090", "http://", "http://h:99999", "http://h/?x=1", "http://h/#x"]
)
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(SettingError, match="address"):
        PromQL(address)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(SettingError) as caught:
        PromQL("http://user:hunter2@h:9090")
    assert "hunter2" not in str(caught.value)


def test_a_token_does_not_travel_in_the_clear() -> None:
    with pytest.raises(SettingError, match="https"):
        PromQL("http://prometheus.example:9090", token_file="/etc/token")
    PromQL("https://prometheus.example:9090", token_file="/etc/token")
    PromQL("http://127.0.0.1:9090", token_file="/etc/token")


class Engine:
    """Answers a source's five questions; what it holds can be changed between reads."""

    def __init__(self, wire: Wire) -> None:
        self.pulse = vector((HOST, str(AT - 0.5)))
        self.now = vector(
            ({**HOST, "hotstage_sample": "time"}, str(AT - 0.5)),
            ({**HOST, "hotstage_sample": "up"}, "1"),
            (
                {**HOST, "__name__": "hotstage_endpoint_instance_heat", "endpoint": "/a", "instance_id": "i"},
                "2",
            ),
        )
        self.ticks: list[Any] = [{"metric": {**HOST, "tick": "fast"}, "values": self.moving(AT - 0.5)}]
        self.broken: dict[str, bytes] = {}
        self.more: dict[str, Any] = {}
        self.asked: list[str] = []
        wire.default = self._answer

    @staticmethod
    def moving(last: float, interval: float = 1.0) -> list[Any]:
        return [[last - interval * n, str(100 - n)] for n in (2, 1, 0)]

    def _answer(self, connection: socket.socket, target: str) -> None:
        url = urlsplit(target)
        expression = parse_qs(url.query).get("query", [""])[0]
        kind = self._kind(url.path, expression)
        self.asked.append(kind)
        if kind in self.broken:
            send(self.broken[kind], "500 Internal Server Error")(connection, target)
            return
        rows = {"pulse": self.pulse, "now": self.now, "ticks": self.ticks}.get(kind, [])
        send(success(rows, "matrix" if kind in ("ticks", "windows") else "vector", **self.more))(
            connection, target
        )

    @staticmethod
    def _kind(path: str, expression: str) -> str:
        if path.endswith("buildinfo"):
            return "engine"
        if path.endswith("query_range"):
            return "windows"
        starts = {
            "timestamp": "pulse",
            "{__name__": "now",
            "hotstage_ticks": "ticks",
            "label_replace": "stages",
            "hotstage_window": "windows",
        }
        return next(kind for start, kind in starts.items() if expression.startswith(start))


@pytest.fixture
def engine(wire: Wire) -> Engine:
    return Engine(wire)


@pytest.fixture
def source(wire: Wire, engine: Engine) -> PrometheusSource:
    return PrometheusSource(
        PromQL(wire.address), 'job="hotstage"', timeout_seconds=WAIT, monotonic=lambda: 50.0
    )


def read(source: PrometheusSource, previous: Picture | None = None) -> Picture:
    return source.read(previous or Picture(source.address, source.origin))


def test_one_read_is_one_picture_with_its_age(source: PrometheusSource, engine: Engine) -> None:
    picture = read(source)
    assert picture.link == "live"
    assert [(p.endpoint, p.instance, p.heat) for p in picture.heat.value] == [("/a", "i", 2.0)]
    assert picture.host == "gpu-1:9178"
    assert picture.age_seconds(50.0) == pytest.approx(0.5)
    assert picture.tick_wall_ns == round((AT - 0.5) * 1e9)
    assert engine.asked == ["engine", "pulse", "now", "ticks", "stages", "windows"]


def test_nothing_more_is_asked_until_there_is_a_new_sample(source: PrometheusSource, engine: Engine) -> None:
    first = read(source)
    engine.asked.clear()
    second = source.read(first)
    assert engine.asked == ["pulse"]
    assert (second.version, second.heat) == (first.version + 1, first.heat)
    engine.pulse = vector((HOST, str(AT + 0.5)), at=AT + 1)
    source.read(second)
    assert engine.asked[1:] == ["pulse", "now", "ticks", "stages", "windows"]


def test_a_part_that_fails_keeps_its_last_value_with_the_reason(
    source: PrometheusSource, engine: Engine
) -> None:
    first = read(source)
    engine.pulse = vector((HOST, str(AT + 0.5)))
    engine.broken["stages"] = b'{"status":"error","error":"too many samples"}'
    second = source.read(first)
    assert second.link == "live"
    assert second.stages.problem == "query answered HTTP 500: too many samples"
    assert second.windows.problem is None


def test_a_server_that_refuses_the_question_is_named_and_found_again(
    source: PrometheusSource, engine: Engine
) -> None:
    engine.broken["now"] = b'{"status":"error","error":"no"}'
    lost = read(source)
    assert lost.link == "unreachable"
    assert lost.problem
    assert "does not answer the question: query answered HTTP 500: no" in lost.problem.message
    engine.broken.clear()
    assert source.read(lost).link == "live"


def test_nobody_there_is_unreachable(wire: Wire) -> None:
    wire.listener.shutdown(socket.SHUT_RDWR)
    wire.listener.close()
    picture = read(PrometheusSource(PromQL(wire.address), "", timeout_seconds=WAIT))
    assert picture.problem
    assert picture.problem.title == "Prometheus unreachable"
    assert "connection refused" in picture.problem.message


def test_no_series_is_told_from_no_traffic(source: PrometheusSource, engine: Engine) -> None:
    engine.pulse, engine.now, engine.ticks = [], [], []
    picture = read(source)
    assert picture.problem
    assert picture.problem.title == "No hotstage metrics"
    assert '{job="hotstage"}' in picture.problem.message
    assert "--prometheus-selector" in picture.problem.remedy


def test_a_target_that_is_down_is_old_with_the_age_of_its_last_sample(
    source: PrometheusSource, engine: Engine
) -> None:
    engine.pulse = []
    engine.now = vector(({**HOST, "hotstage_sample": "up"}, "0"))
    engine.ticks = [{"metric": {**HOST, "tick": "fast"}, "values": engine.moving(AT - 40)}]
    answer = read(source)
    (host,) = answer.hosts
    assert host.is_scraped is False
    assert host.is_old(50.0)
    assert host.age_seconds(50.0) == pytest.approx(time.time() - AT + 40, abs=5)
    assert answer.heat.value == ()


def test_an_agent_whose_ticks_stand_still_is_old_however_fresh_its_scrapes_are(
    source: PrometheusSource, engine: Engine
) -> None:
    standing = [[AT - 20 + n, "100"] for n in range(20)]
    engine.ticks = [{"metric": {**HOST, "tick": "fast"}, "values": standing}]
    (host,) = read(source).hosts
    assert host.age_seconds(50.0) == pytest.approx(20)
    assert host.is_old(50.0)


def test_how_old_is_old_follows_the_scrape_interval(source: PrometheusSource, engine: Engine) -> None:
    engine.ticks = [{"metric": {**HOST, "tick": "fast"}, "values": engine.moving(AT - 20, interval=15.0)}]
    (host,) = read(source).hosts
    assert host.stale_after_seconds == 37.5
    assert not host.is_old(50.0)
    assert host.is_old(70.0)


def test_what_the_server_says_against_its_answer_is_kept_once(
    source: PrometheusSource, engine: Engine
) -> None:
    engine.more = {"warnings": ["a store is gone"]}
    assert read(source).caveats == ("a store is gone",)
