# SPDX-License-Identifier: Apache-2.0
"""The explorer asks itself before it says that it is well; a server of the standard library stands for it."""

from __future__ import annotations

import http.server
import queue
import threading

import pytest

from hotstage_explorer import lifeline
from hotstage_explorer.lifeline import Lifeline


class Manager:
    """Puts down what it hears."""

    watchdog_seconds = 0.3

    def __init__(self) -> None:
        self.heard: queue.Queue[str] = queue.Queue()

    def ready(self, status):
        self.heard.put(f"ready: {status}")

    def status(self, text): ...

    def beat(self):
        self.heard.put("beat")

    def reloading(self): ...

    def stopping(self):
        self.heard.put("stopping")


@pytest.fixture
def server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/healthz" and self.server.is_well else 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_): ...

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.is_well = True
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join(5)
    made.server_close()


def test_it_is_ready_when_the_page_answers_and_beats_while_it_does(server):
    manager = Manager()
    line = Lifeline(manager, "0.0.0.0", server.server_port, "http://here/")
    line.start()
    said = [manager.heard.get(timeout=5) for _ in range(4)]
    line.stop()
    assert said == ["ready: http://here/", "beat", "beat", "beat"]
    assert manager.heard.get(timeout=5) == "stopping"


def test_a_page_that_answers_with_an_error_is_not_well(server):
    server.is_well = False
    assert not Lifeline(Manager(), "127.0.0.1", server.server_port, "").answers()


def test_a_page_that_does_not_answer_is_not_well(monkeypatch):
    import socket

    monkeypatch.setattr(lifeline, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        assert not Lifeline(Manager(), "127.0.0.1", deaf.getsockname()[1], "").answers()
