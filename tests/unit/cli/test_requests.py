# SPDX-License-Identifier: Apache-2.0
"""`hotstage requests` against an agent's answers: lists, a waterfall, first tokens, what ends from now on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage

from hotstage.api.requests import Filter, RequestLog
from hotstage.cli import requests as module
from hotstage.cli.waterfall_chart import BAR_CELLS, bar
from hotstage.config.settings import FrameConfig
from hotstage.frame.request_timings import RequestTimings
from hotstage.probes.maps.layout import FINISHED_DTYPE

START = 50 * SECOND


def finished(number: int, took_ms: int = 200) -> np.ndarray:
    request = KernelRequest(number, at_ns=START)
    request.begin(Stage.vision_encode, START + 10 * MS, modality=Modality.image, tokens=64)
    request.end(Stage.vision_encode, START + 70 * MS)
    request.begin(Stage.llm_prefill, START + 70 * MS).end(Stage.llm_prefill, START + 90 * MS)
    request.begin(Stage.llm_decode, START + 100 * MS).end(Stage.llm_decode, START + took_ms * MS)
    return np.array([request.finished(START + took_ms * MS, 0, 11)], FINISHED_DTYPE)


class Agent:
    """Answers as the API does, of a log that tests add to; remembers what it was asked."""

    def __init__(self, clock: object) -> None:
        self.log = RequestLog(clock)
        self.timings = RequestTimings(FrameConfig())
        self.asked: list[str] = []

    def add(self, *rows: np.ndarray) -> None:
        for each in rows:
            self.log.add(each, 0)
            self.timings.keep(each)

    def answer(self, path: str) -> tuple[int, object]:
        self.asked.append(path)
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/v1/stages":
            return 200, {"stages": [{"stage": "vision_encode"}, {"stage": "rerank"}]}
        if parts.path == "/v1/latency":
            return 200, self.timings.latency(START + SECOND)
        if parts.path == "/v1/requests":
            after, limit = int(query.pop("after", 0)), int(query.pop("limit", 2000))
            return 200, self.log.document(after, limit, Filter(**query))
        found = self.log.waterfall(unquote(parts.path.removeprefix("/v1/requests/")))
        missing = {"error": {"code": "no_such_request", "message": "no such request", "remedy": "list them"}}
        return (404, missing) if found is None else (200, found)


@pytest.fixture
def agent(clock) -> Agent:
    return Agent(clock)


@pytest.fixture
def run(agent) -> Iterator[Callable[..., str]]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = agent.answer(self.path)
            data = msgspec.json.encode(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()

    def invoke(*words: str, code: int = 0) -> str:
        address = f"http://127.0.0.1:{server.server_port}"
        done = CliRunner().invoke(module.requests, [*words, "--agent", address])
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    yield invoke
    server.shutdown()
    serving.join(5)
    server.server_close()


def cells(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_the_list_is_newest_first_with_first_token_and_what_was_slowest(run, agent):
    agent.add(finished(1), finished(2, took_ms=400))
    header, newest, oldest = cells(run())
    assert header[:3] == ["number", "request", "endpoint"]
    assert newest == [
        "2", "r-2", "/v1/chat", "image", "ok", "2023-11-14 22:14:10Z",
        "400 ms", "100 ms", "30 ms", "11", "llm_decode 75%",
    ]  # fmt: skip
    assert oldest[0] == "1"


def test_the_slowest_and_filters_are_asked_for_by_the_agents_own_words(run, agent):
    agent.add(finished(1, took_ms=900), finished(2))
    assert cells(run("--slow"))[1][0] == "1"
    out = run("--slow", "--stage", "vision_encode", "--modality", "audio", "--outcome", "ok", "--limit", "5")
    assert out == "no such request has finished\n"
    assert agent.asked[-1] == (
        "/v1/requests?stage=vision_encode&modality=audio&outcome=ok&limit=5&order=slowest"
    )


def test_one_request_is_its_stages_and_waits(run, agent):
    agent.add(finished(1))
    told, header, *parts, (legend,) = cells(run("r-1"))
    assert legend.startswith("decided:") and "run queue" in legend
    assert told == [
        "r-1: ok after 200 ms, image at /v1/chat, "
        "first token after 100 ms (by decode begin), then 10 ms a token"
    ]
    assert header == ["part", "kind", "from", "took", "decided", "place", "runs", "waited for"]
    assert [part[:5] for part in parts] == [
        ["queue", "wait", "0 ms", "10 ms", "10 ms"],
        ["vision_encode/image", "stage", "10 ms", "60 ms", "60 ms"],
        ["llm_prefill/text", "stage", "70 ms", "20 ms", "20 ms"],
        ["delivery", "wait", "90 ms", "10 ms", "10 ms"],
        ["llm_decode/text", "stage", "100 ms", "100 ms", "100 ms"],
    ]
    assert {part[5] for part in parts} == {"exact", "gap"}


def test_what_a_stage_waited_for_and_that_places_are_unknown_is_said(run, agent):
    rows = finished(1)
    prefill = rows["stages"][0][Stage.llm_prefill]
    prefill["count"], prefill["run_queue_us"], prefill["sync_us"] = 2, 1500, 12_000
    prefill["copy_us"] = prefill["alloc_us"] = 0
    agent.add(rows)
    *parts, last = run("1").splitlines()
    row = next(part for part in parts if part.startswith("llm_prefill")).split("\t")
    assert (row[5], row[6], row[7]) == ("first_begin", "2", "run queue 1.5 ms, sync 12 ms")
    assert row[2:4] == ["≈ 70 ms to 90 ms", "20 ms"]
    assert "their places are not known" in last


def test_an_id_with_odd_characters_arrives_whole(run, agent):
    rows = finished(1)
    rows["id"] = b"chat/1 ?#"
    agent.add(rows)
    assert run("chat/1 ?#").startswith("chat/1 ?#: ok")


def test_json_is_the_agents_answer(run, agent):
    agent.add(finished(1))
    assert json.loads(run("--json"))["requests"][0]["id"] == "r-1"
    assert json.loads(run("r-1", "--json"))["segments"][0]["name"] == "queue"
    assert json.loads(run("--first-token", "--json"))["total"]["ttft_samples"] == 1


def test_first_tokens_show_what_makes_them_late(run, agent):
    agent.add(*(finished(number) for number in range(20)))
    lines = cells(run("--first-token"))
    assert lines[1] == ["all", "20", "100 ms", "100 ms", "10 ms", "10 ms", "vision_encode"]
    assert ["image", "vision_encode", "stage", "mark", "20", "60 ms", "60 ms", "60.0%"] in lines


def test_words_that_exclude_each_other_are_a_usage_error(run):
    for words in (("r-1", "--slow"), ("--follow", "--first-token"), ("r-1", "--stage", "queue")):
        run(*words, code=2)


def test_an_unknown_id_is_told_in_the_agents_words(run):
    run("r-9", code=1)


def test_followers_see_what_ends_from_now_on_once_and_go_on_after_a_restart(agent, clock, monkeypatch):
    agent.add(finished(1))

    class Client:
        def get(self, path: str) -> object:
            status, body = agent.answer(path)
            assert status == 200
            return msgspec.to_builtins(body)

    def restart() -> None:
        agent.log = RequestLog(clock)
        agent.add(finished(4))

    happens = iter([lambda: agent.add(finished(2), finished(3)), lambda: None, restart, lambda: None])
    monkeypatch.setattr(module.time, "sleep", lambda _: next(happens)())
    ended = module._ended(Client(), {})
    assert [next(ended)["id"] for _ in range(3)] == ["r-2", "r-3", "r-4"]


@pytest.mark.parametrize(
    ("offset", "took", "critical", "kind", "expected"),
    [
        (0.0, 1.0, 1.0, "stage", "█" * BAR_CELLS),
        (0.5, 0.5, 0.5, "wait", " " * 20 + "░" * 20),
        (0.5, 0.25, 0.0, "stage", " " * 20 + "░" * 10),
        (1.0, 0.0, 0.0, "stage", " " * 39 + "░"),
        (0.9, 5.0, 0.1, "stage", " " * 36 + "█" * 4),
    ],
)
def test_a_bar_stands_where_its_segment_does(offset, took, critical, kind, expected):
    part = {"offset_seconds": offset, "duration_seconds": took, "critical_seconds": critical, "kind": kind}
    part |= {"until_seconds": offset + took, "placement": "exact"}
    assert bar(part, 1.0) == expected
    assert bar(part, 0.0) == ""


def test_several_runs_are_drawn_over_all_that_holds_them_and_not_past_the_end():
    part = {"offset_seconds": 0.5, "duration_seconds": 0.3, "critical_seconds": 0.3, "kind": "stage"}
    part |= {"until_seconds": 1.0, "last_begin_seconds": 0.9, "placement": "earliest"}
    assert bar(part, 1.0) == " " * (BAR_CELLS // 2) + "▒" * (BAR_CELLS // 2)


def test_a_stage_that_nobody_knows_is_refused_with_those_that_are_known(run, agent):
    agent.add(finished(1))
    said = run("--stage", "nosuch", code=2)
    assert "no stage nosuch" in said
    assert "vision_encode" in said
    assert "rerank" in said
    assert run("--stage", "rerank") == run("--stage", "tokenize") == "no such request has finished\n"


def test_the_slowest_in_a_stage_show_their_time_in_it(run, agent):
    agent.add(finished(1), finished(2))
    header, first, _ = cells(run("--slow", "--stage", "vision_encode"))
    assert (header[-1], first[-1]) == ("in vision_encode", "60 ms")
    assert "in vision_encode" not in run("--stage", "vision_encode")
