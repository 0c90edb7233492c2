# SPDX-License-Identifier: Apache-2.0
"""What the reading verbs make of a peer that is no agent: slow, endless, of another shape."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time

import pytest
from click.testing import CliRunner
from support.certificates import self_signed
from support.receivers import RawReceiver, Reply

from hotstage.cli.client import AgentClient
from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.peers import agent_coverage, check_agent
from hotstage.cli.main import cli
from hotstage.config.settings import Config, HttpConfig
from hotstage.errors import ConfigError, HotstageError, PeerError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
VERBS = ["coverage", "windows", "breakers", "snapshot", "classes", "snapshot list", "breakers history"]
SHAPES = [
    {"processes": {"a": 3}, "windows": {"a": 1}, "breakers": 7, "requests": "x", "snapshots": {"a": 1}},
    {"windows": [1], "breakers": [[]], "calls": None, "fingerprints": 1, "snapshots": [1], "transitions": 1},
    {"processes": [{"libraries": 3}], "attached": [], "windows": [{"id": {}}], "transitions": [{}]},
    {"processes": [{"libraries": [{"state": "attached", "build_id": {}}]}], "loader": "x"},
]


class Peer:
    """Answers every connection by `behave(connection)`; `url` is where."""

    def __init__(self, behave) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._behave = behave
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                self._behave(connection)
            except OSError:
                return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(2)


@pytest.fixture
def peer():
    started = []

    def start(behave) -> Peer:
        started.append(Peer(behave))
        return started[-1]

    yield start
    for each in started:
        each.close()


def dripping(head: bytes):
    def behave(connection: socket.socket) -> None:
        connection.sendall(head)
        ended = threading.Event()
        while not ended.wait(0.05):
            connection.sendall(b" ")

    return behave


def saying(body: bytes):
    return lambda connection: connection.sendall(HEAD + body)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX: ", HEAD], ids=["in its head", "in its body"])
def test_a_peer_that_drips_bytes_is_given_up_at_the_deadline(peer, head):
    client = AgentClient(url=peer(dripping(head)).url, timeout_seconds=0.4)
    began = time.monotonic()
    with pytest.raises(PeerError, match="time") as caught:
        client.get("/v1/coverage")
    assert time.monotonic() - began < 1.5
    assert caught.value.remedy


def test_an_answer_in_parts_is_read_whole(peer):
    def behave(connection: socket.socket) -> None:
        for part in (HEAD[:20], HEAD[20:], b'{"a": ', b"1}"):
            connection.sendall(part)
            threading.Event().wait(0.02)

    assert AgentClient(url=peer(behave).url).get("/v1/coverage") == {"a": 1}


@pytest.mark.parametrize("body", [b"[1, 2]", b"3", b"[" * 100_000, b"\xff", b"<html>", b"9" * 5_000])
def test_what_is_no_json_object_is_a_peer_error_with_a_remedy(peer, body):
    with pytest.raises(PeerError, match=r"/v1/coverage: the answer") as caught:
        AgentClient(url=peer(saying(body)).url).get("/v1/coverage")
    assert caught.value.remedy


@pytest.mark.parametrize("error", [7, [], {"message": ["\x1b[31m"], "remedy": {"a": "\x9b"}}, None])
def test_an_error_of_any_shape_is_said_plainly(peer, error):
    head = b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n"
    url = peer(lambda connection: connection.sendall(head + json.dumps({"error": error}).encode())).url
    with pytest.raises(HotstageError) as caught:
        AgentClient(url=url).get("/v1/coverage")
    assert caught.value.message.isprintable()
    assert (caught.value.remedy or "").isprintable()


@pytest.mark.parametrize(
    "url",
    [
        "http://[",
        "http://127.0.0.1:99999",
        "ftp://x",
        "127.0.0.1",
        "http://",
        "http://exa mple",
        f"http://{'a' * 99}",
    ],
)
def test_an_address_that_is_none_is_named(url):
    with pytest.raises(HotstageError, match=r"not an http\(s\) URL"):
        AgentClient(url=url).get("/v1/coverage")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_every_reading_verb_names_an_answer_of_another_shape(peer, verb, shape):
    url = peer(saying(json.dumps(SHAPES[shape]).encode())).url
    done = CliRunner().invoke(cli, [*verb.split(), "--agent", url])
    assert isinstance(done.exception, HotstageError), done.output
    assert done.exception.remedy
    as_json = CliRunner().invoke(cli, [*verb.split(), "--agent", url, "--json"])
    assert as_json.exit_code == 0, "it is shown as it came"


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_doctor_says_that_another_program_answers(peer, shape, tmp_path):
    listen = peer(saying(json.dumps(SHAPES[shape]).encode())).url.removeprefix("http://")
    http = HttpConfig(listen=listen, socket=str(tmp_path / "none.sock"))
    (tmp_path / "proc").mkdir()
    host = Host(root=tmp_path, config=Config(http=http))
    assert agent_coverage(host) in (None, frozenset())
    (finding,) = check_agent(host)
    assert finding.status in (Status.ABSENT, Status.WARN)


@pytest.fixture
def behind_tls(tmp_path):
    """An agent's coverage behind TLS; its certificate is its own, and its name is localhost."""
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    body = {"version": 1, "processes": [], "attached": 0, "emulated": 0, "loader": "libbpf", "rung": "S"}
    with RawReceiver(lambda request, before: Reply(200, body=json.dumps(body).encode()), context) as receiver:
        yield receiver, certificate, tmp_path


def verb(receiver, *words):
    return CliRunner().invoke(cli, ["coverage", "--json", "--agent", receiver.url, *words])


def test_an_agent_behind_tls_is_read_with_its_certificate_and_a_token(behind_tls):
    receiver, certificate, folder = behind_tls
    (folder / "token").write_text("not-a-secret\n")
    done = verb(receiver, "--ca-file", certificate, "--token-file", str(folder / "token"))
    assert (done.exit_code, json.loads(done.stdout)["rung"]) == (0, "S")
    assert receiver.requests[0].headers["authorization"] == "Bearer not-a-secret"


def test_a_certificate_that_nobody_trusts_is_told_with_the_remedy(behind_tls):
    receiver, _, folder = behind_tls
    done = verb(receiver)
    assert done.exit_code != 0
    assert isinstance(done.exception, PeerError)
    assert "certificate is not trusted: self-signed certificate" in done.exception.message
    assert "--ca-file" in done.exception.remedy
    (folder / "empty.pem").write_text("")
    for name in ("empty.pem", "missing.pem"):
        refused = verb(receiver, "--ca-file", str(folder / name))
        assert name in refused.exception.message
    assert receiver.requests == []


def test_a_token_is_never_sent_in_the_clear(tmp_path):
    (tmp_path / "token").write_text("not-a-secret")
    with RawReceiver(lambda request, before: Reply(200, body=b"{}")) as receiver:
        verb(receiver, "--token-file", str(tmp_path / "token"))
        assert "authorization" not in receiver.requests[0].headers


@pytest.mark.parametrize("content", ["", "tell-nobody\nthis", "tell nobody", "tell-nobody\u20ac", "a\x00b"])
def test_what_no_header_can_carry_is_no_token_and_is_never_shown(behind_tls, content):
    receiver, certificate, folder = behind_tls
    (folder / "token").write_text(content)
    done = verb(receiver, "--ca-file", certificate, "--token-file", str(folder / "token"))
    assert isinstance(done.exception, ConfigError)
    assert str(folder / "token") in done.exception.message
    assert "nobody" not in done.output + done.exception.message + (done.exception.remedy or "")
    assert receiver.requests == []
