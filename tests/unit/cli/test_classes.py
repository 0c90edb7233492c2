# SPDX-License-Identifier: Apache-2.0
"""`hotstage classes` against an agent's answers: a table for people, the answer as it is for programs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage

from hotstage.api import documents
from hotstage.cli.classes import classes as command
from hotstage.config.classes import ClassesConfig
from hotstage.config.settings import FrameConfig
from hotstage.frame.class_table import no_classes
from hotstage.frame.request_statistics import RequestStatistics
from hotstage.frame.request_timings import RequestTimings
from hotstage.probes.maps.layout import FINISHED_DTYPE

START = 50 * SECOND


def finished() -> np.ndarray:
    """Twenty images of 100 + 20 tokens, 1 to 20 s."""
    rows = []
    for number in range(1, 21):
        request = KernelRequest(number, at_ns=START)
        request.begin(Stage.vision_encode, START, modality=Modality.image, tokens=100)
        rows.append(request.end(Stage.vision_encode, START + 5 * MS).finished(START + number * SECOND, 0, 20))
    return np.array(rows, FINISHED_DTYPE)


@pytest.fixture
def answers() -> dict[str, object]:
    now_ns = START + 20 * SECOND
    classes, timings = RequestStatistics(ClassesConfig(), FrameConfig()), RequestTimings(FrameConfig())
    classes.keep(now_ns, finished())
    timings.keep(finished())
    return {
        "/v1/classes": documents.classes(classes.classes(now_ns)),
        "/v1/components": msgspec.to_builtins(timings.components(now_ns)),
    }


@pytest.fixture
def run(answers) -> Iterator[Callable[..., str]]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()

    said: list[str] = []

    def invoke(*words: str) -> str:
        address = f"http://127.0.0.1:{server.server_port}"
        done = CliRunner().invoke(command, [*words, "--agent", address], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        said.append(done.stderr)
        return done.stdout

    invoke.said = said
    yield invoke
    server.shutdown()
    serving.join(5)
    server.server_close()


def test_the_table_shows_a_class_as_a_whole_by_size_and_by_endpoint(run):
    header, whole, sized, of_endpoint = (line.split("\t") for line in run().splitlines())
    assert header[:4] == ["class", "size", "endpoint", "requests"]
    assert whole == [
        "vlm", "all", "all", "20", "10", "10.5 s", "10 s", "19 s", "20 s", "800 ms", "0.0%", "87.5",
        "500 ms", "5850",
    ]  # fmt: skip
    assert sized[:4] == ["vlm", "up_to_1K", "all", "20"]
    assert of_endpoint[:4] == ["vlm", "all", "/v1/chat", "20"]
    assert of_endpoint[-1] == "5850"


def test_the_table_says_where_targets_come_from_and_what_a_token_equivalent_is(run, answers):
    run()
    assert "target_seconds and slo_baseline_seconds" in run.said[-1]
    assert "built-in default" in run.said[-1] and "token eq.:" in run.said[-1]
    run("--json")
    assert run.said[-1] == ""


def test_components_are_a_table_with_what_was_not_passed(run):
    lines = [line.split("\t") for line in run("--components").splitlines()]
    assert [line[0] for line in lines[1:]] == [
        "request", "gateway", "model_load", "lora_apply", "vision_encode",
        "queue", "delivery", "unmarked", "run_queue", "sync", "copy", "alloc",
    ]  # fmt: skip
    assert lines[2] == ["gateway", "stage", "mark", "0", "—", "—", "—", "—"]
    assert lines[5][:6] == ["vision_encode", "stage", "mark", "20", "5 ms", "5 ms"]
    assert lines[8][:5] == ["unmarked", "wait", "gap", "20", "10.5 s"]


def test_json_is_the_agents_answer(run, answers):
    assert json.loads(run("--json")) == json.loads(json.dumps(answers["/v1/classes"]))
    assert json.loads(run("--components", "--json"))["request"]["count"] == 20


def test_an_agent_that_served_nothing_says_so(run, answers):
    answers["/v1/classes"] = documents.classes(no_classes(START))
    assert run() == "no request has ended yet\n"
