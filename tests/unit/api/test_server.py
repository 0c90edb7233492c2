# SPDX-License-Identifier: Apache-2.0
"""Listening and letting go."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time

import pytest
from support.certificates import self_signed

from hotstage.api import handshakes
from hotstage.api.message import Response
from hotstage.api.server import ApiServer
from hotstage.config.settings import HttpConfig
from hotstage.errors import ConfigError, PreflightError


def config(tmp_path, **changed):
    return HttpConfig(**{"listen": "127.0.0.1:0", "socket": str(tmp_path / "agent.sock"), **changed})


def answer(request):
    return Response(200, b"{}")


def test_a_port_in_use_is_said_before_anything_runs(served, tmp_path):
    with pytest.raises(PreflightError) as caught:
        ApiServer(config(tmp_path, listen=f"127.0.0.1:{served.server.port}"), answer)
    assert "another agent" in caught.value.remedy
    assert caught.value.exit_code == 4


def test_a_socket_that_is_served_is_not_taken_over(served, tmp_path):
    with pytest.raises(PreflightError, match=r"agent\.sock"):
        ApiServer(config(tmp_path, socket=served.socket_path), answer)
    assert served.ask("/healthz", unix=True).status == 200


def test_the_socket_of_a_killed_agent_is_replaced(tmp_path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "agent.sock"))
    dead.close()
    server = ApiServer(config(tmp_path), answer)
    server.start()
    server.stop()
    assert not (tmp_path / "agent.sock").exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    (tmp_path / "agent.sock").write_text("precious")
    with pytest.raises(PreflightError):
        ApiServer(config(tmp_path), answer)
    assert (tmp_path / "agent.sock").read_text() == "precious"


def test_the_socket_is_closed_to_others_and_open_to_its_group(tmp_path):
    server = ApiServer(config(tmp_path), answer)
    assert (tmp_path / "agent.sock").stat().st_mode & 0o777 == 0o600
    server.stop()
    server = ApiServer(config(tmp_path, socket_group="root"), answer)
    assert (tmp_path / "agent.sock").stat().st_mode & 0o777 == 0o660
    server.stop()


def test_an_unknown_group_is_a_config_error_and_frees_the_port(tmp_path):
    with pytest.raises(ConfigError, match="no group"):
        ApiServer(config(tmp_path, socket_group="no-such-group"), answer)


def test_stop_ends_open_connections_and_frees_the_port(served, tmp_path):
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=5) as held:
        held.sendall(b"GET")
        assert served.ask("/healthz").status == 200
        served.server.stop()
        assert held.recv(10) == b""
    again = ApiServer(config(tmp_path, listen=f"127.0.0.1:{served.server.port}"), answer)
    again.stop()


@pytest.fixture
def secured(serve, tmp_path):
    certificate, key = self_signed(tmp_path)
    served = serve(tls_certificate_file=certificate, tls_key_file=key, timeout_seconds=0.5)
    return served, ssl.create_default_context(cafile=certificate)


def status_of(served, context):
    connection = http.client.HTTPSConnection("localhost", served.server.port, timeout=10, context=context)
    connection.request("GET", "/healthz")
    status = connection.getresponse().status
    connection.close()
    return status


def test_with_a_certificate_the_port_speaks_tls_and_the_socket_does_not(secured):
    served, context = secured
    assert status_of(served, context) == 200
    assert served.ask("/healthz", unix=True).status == 200


def test_whoever_speaks_no_tls_loses_the_connection_and_disturbs_nobody(secured):
    served, context = secured
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=5) as silent:
        with pytest.raises(ConnectionResetError):
            served.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status_of(served, context) == 200
        assert silent.recv(10) == b"", "a peer that never begins its handshake is dropped in time"


def test_a_large_answer_crosses_tls_whole(sources, serve, tmp_path):
    certificate, key = self_signed(tmp_path)
    body = bytes(range(256)) * 8192
    served = serve(
        sources(metrics=lambda accept: (body, "text/plain")), "b",
        tls_certificate_file=certificate, tls_key_file=key,
    )  # fmt: skip
    context = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection("localhost", served.server.port, timeout=10, context=context)
    connection.request("GET", "/metrics")
    assert connection.getresponse().read() == body
    connection.close()


def test_a_listener_outlives_a_time_without_threads(serve, monkeypatch):
    served = serve(max_connections=4)
    assert served.ask("/healthz").status == 200

    def none_to_be_had(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", none_to_be_had)
        for _ in range(6):
            assert b"too_many_connections" in served.raw(b"")
            with socket.socket(socket.AF_UNIX) as unix:
                unix.settimeout(5)
                unix.connect(served.socket_path)
                assert unix.recv(1 << 16).startswith(b"HTTP/1.1 503")
    for is_unix in (False, True):
        assert served.ask("/healthz", unix=is_unix).status == 200, "every place was given back"
    assert served.server.threadless == 12, "of both listeners"


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"])
def test_peers_that_begin_a_handshake_and_stop_keep_no_client_out(serve, tmp_path, begun):
    certificate, key = self_signed(tmp_path)
    served = serve(tls_certificate_file=certificate, tls_key_file=key)
    context = ssl.create_default_context(cafile=certificate)
    stopped = [socket.create_connection(("127.0.0.1", served.server.port), timeout=5) for _ in range(60)]
    for peer in stopped:
        peer.sendall(begun)
    began = time.monotonic()
    for _ in range(3):
        assert status_of(served, context) == 200
    assert time.monotonic() - began < handshakes.SECONDS, "not by waiting until they are dropped"
    for peer in stopped:
        peer.close()


def test_a_handshake_has_a_short_time_of_its_own(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(handshakes, "SECONDS", 0.2)
    certificate, key = self_signed(tmp_path)
    served = serve(tls_certificate_file=certificate, tls_key_file=key, timeout_seconds=30.0)
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=5) as silent:
        assert silent.recv(10) == b""


def test_the_time_of_a_handshake_is_not_that_of_a_request(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(handshakes, "SECONDS", 0.3)
    certificate, key = self_signed(tmp_path)
    served = serve(tls_certificate_file=certificate, tls_key_file=key)
    context = ssl.create_default_context(cafile=certificate)
    with (
        socket.create_connection(("127.0.0.1", served.server.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as slow,
    ):
        slow.settimeout(0.6)
        with pytest.raises(TimeoutError):
            slow.recv(1)
        slow.settimeout(5)
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"
