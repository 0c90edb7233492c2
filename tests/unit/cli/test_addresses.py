# SPDX-License-Identifier: Apache-2.0
"""Where the verbs look for an agent, and what they say when it is not there or may not be asked for this."""

from __future__ import annotations

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

import pytest
from click.testing import CliRunner
from support.receivers import RawReceiver, Reply

from hotstage.cli.main import cli
from hotstage.errors import PeerError, PrivilegeError

WINDOWS = json.dumps({"windows": []}).encode()


@pytest.fixture
def tcp_agent():
    with RawReceiver(lambda request, before: Reply(200, body=WINDOWS)) as receiver:
        yield receiver


@pytest.fixture
def socket_agent(tmp_path):
    """(path of the socket, requests as (method, path, body))."""
    asked: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def address_string(self) -> str:
            return "socket"

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            asked.append((self.command, self.path, self.rfile.read(length)))
            body = WINDOWS if self.command == "GET" else b'{"breaker": {"state": "open"}}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer

        def log_message(self, *_: object) -> None:
            pass

    path = str(tmp_path / "agent.sock")
    server = socketserver.ThreadingUnixStreamServer(path, Handler)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    yield path, asked
    server.shutdown()
    serving.join(5)
    server.server_close()


def run(*words, **environment):
    return CliRunner().invoke(cli, list(words), env=environment)


def test_the_environment_names_the_agent_and_an_option_comes_first(tcp_agent, socket_agent):
    path, asked = socket_agent
    assert run("windows", HOTSTAGE_AGENT=tcp_agent.url).exit_code == 0
    assert (len(tcp_agent.requests), len(asked)) == (1, 0)
    assert run("windows", HOTSTAGE_AGENT=tcp_agent.url, HOTSTAGE_SOCKET=path).exit_code == 0
    assert (len(tcp_agent.requests), len(asked)) == (1, 1)
    assert run("windows", "--agent", tcp_agent.url, HOTSTAGE_SOCKET=path).exit_code == 0
    assert (len(tcp_agent.requests), len(asked)) == (2, 1)
    assert run("windows", "--socket", path, HOTSTAGE_AGENT=tcp_agent.url).exit_code == 0
    assert (len(tcp_agent.requests), len(asked)) == (2, 2)


def test_a_socket_that_is_gone_is_no_way_where_an_address_is_known(tcp_agent, tmp_path):
    gone = str(tmp_path / "gone.sock")
    assert run("windows", HOTSTAGE_AGENT=tcp_agent.url, HOTSTAGE_SOCKET=gone).exit_code == 0
    alone = run("windows", HOTSTAGE_SOCKET=gone)
    assert isinstance(alone.exception, PeerError)
    assert gone in alone.exception.message
    assert "demo" in alone.exception.remedy


@pytest.mark.parametrize("words", [("trip", "host", "--ttl", "1m"), ("disable", "host", "--ttl", "1m")])
def test_overrides_go_to_the_socket_that_is_named(socket_agent, words):
    path, asked = socket_agent
    done = run("breakers", *words, "--reason", "a try", "--socket", path)
    assert (done.exit_code, done.output) == (0, "host: open\n")
    assert run("breakers", "reset", "host", HOTSTAGE_SOCKET=path).exit_code == 0
    (method, where, body), (_, _, reset) = asked
    assert (method, where) == ("POST", "/v1/breakers/host/override")
    assert json.loads(body)["ttl_seconds"] == 60.0
    assert json.loads(reset)["action"] == "reset"


def test_an_override_over_plain_http_is_refused_here_and_says_how_else(tcp_agent, tmp_path):
    (tmp_path / "token").write_text("not-a-secret")
    for more in ((), ("--token-file", str(tmp_path / "token"))):
        done = run("breakers", "trip", "host", "--ttl", "1m", "--agent", tcp_agent.url, *more)
        assert isinstance(done.exception, PrivilegeError)
        assert tcp_agent.url in done.exception.message
        assert "--socket" in done.exception.remedy
        assert "--token-file" in done.exception.remedy
    assert tcp_agent.requests == []


@pytest.mark.parametrize(
    ("remedy", "said"),
    [
        ("list them with /v1/windows", "list them with `hotstage windows`"),
        (
            "list them with /v1/requests; those in flight with /v1/snapshot",
            "list them with `hotstage requests`; those in flight with `hotstage snapshot`",
        ),
        ("ask /v1/stages/explain?pid=PID", "ask `hotstage stages explain PID`"),
        ("see /v1/openapi.json", "see /v1/openapi.json"),
    ],
)
def test_a_remedy_names_commands(remedy, said):
    error = {"error": {"code": "x", "message": "no such thing", "remedy": remedy}}
    with RawReceiver(lambda request, before: Reply(404, body=json.dumps(error).encode())) as receiver:
        done = run("windows", "--agent", receiver.url)
    assert (done.exception.message, done.exception.remedy) == ("no such thing", said)
