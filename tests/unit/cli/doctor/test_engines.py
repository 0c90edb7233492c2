# SPDX-License-Identifier: Apache-2.0
"""Configured engines as doctor sees them: asked once, told with what mends them."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from support.wire import listening, send

from hotstage.cli.doctor.configuration import secret_files
from hotstage.cli.doctor.engines import check_engines
from hotstage.cli.doctor.finding import Status
from hotstage.config.engines import EngineEndpoint, EnginesConfig
from hotstage.config.render import redacted_url
from hotstage.config.settings import Config
from hotstage.simhost.engine import EngineServer
from hotstage.simhost.engine_model import EngineModel
from hotstage.simhost.engine_page import Dialect


def endpoint(url, name="vllm-0", **changed):
    return EngineEndpoint(name=name, url=url, **changed)


def checked(host, *endpoints):
    host.config = Config(engines=EnginesConfig(endpoints=list(endpoints), timeout_seconds=0.5))
    return list(check_engines(host))


@pytest.fixture
def fake():
    server = EngineServer(EngineModel(3), Dialect.vllm)
    server.advance(20.0)
    yield server
    server.close()


def test_no_engine_is_no_trouble(host):
    (finding,) = checked(host)
    assert finding.status is Status.ABSENT and "none is configured" in finding.detail


def test_an_engine_that_answers_is_told_with_its_state(host, fake):
    (finding,) = checked(host, endpoint(fake.url))
    engine = fake.engine
    assert finding.status is Status.OK
    assert finding.detail == (
        f"{redacted_url(fake.url)} is vllm: 1 model, {engine.waiting} waiting, {engine.running} running, "
        f"KV cache {engine.kv_used_ratio:.0%} full"
    )
    assert finding.data["models"] == ["sim/vlm-7b"]


def test_each_engine_is_asked_although_another_is_dead(host, fake):
    with socket.create_server(("127.0.0.1", 0)) as server:
        dead = f"http://127.0.0.1:{server.getsockname()[1]}"
    gone, well = checked(host, endpoint(dead, "gone"), endpoint(fake.url))
    assert (gone.status, well.status) == (Status.WARN, Status.OK)
    assert gone.detail == f"{dead}/…: Connection refused" and "--enable-metrics" in (gone.remedy or "")


@pytest.mark.parametrize(
    ("answer", "said", "remedy"),
    [
        (send(b"", "404 Not Found"), "answers 404", "path"),
        (send(b"go_goroutines 1\n"), "no name of vLLM, SGLang or Triton", "kind"),
        (
            send(
                b'vllm:num_requests_running{model_name="m"} 1\nvllm:num_requests_waiting{model_name="m"} -1\n'
            ),
            "is -1, not 0 or more",
            "left out",
        ),
    ],
)
def test_what_is_wrong_with_a_page_is_said_with_what_mends_it(host, answer, said, remedy):
    with listening() as wire:
        wire.default = answer
        (finding,) = checked(host, endpoint(wire.address))
    assert finding.status is Status.WARN
    assert said in finding.detail and remedy in (finding.remedy or "")


def test_an_engine_that_answers_byte_by_byte_is_given_up(host):
    def drip(connection, _path):
        with contextlib.suppress(OSError):
            for _ in range(100):
                connection.sendall(b"H")
                threading.Event().wait(0.05)

    with listening() as wire:
        wire.default = drip
        (finding,) = checked(host, endpoint(wire.address))
    assert finding.status is Status.WARN and "no whole answer within 0.5 s" in finding.detail


def test_a_configuration_that_mixes_engines_is_in_the_way(host):
    (finding,) = checked(host, endpoint("http://127.0.0.1:1"), endpoint("http://127.0.0.1:2"))
    assert finding.status is Status.FAIL and "two have the name vllm-0" in finding.detail


def test_a_token_file_is_among_the_secrets(host):
    checked(host, endpoint("http://127.0.0.1:1", token_file="/etc/hotstage/engine.token"))
    assert ("engines.endpoints vllm-0.token_file", "/etc/hotstage/engine.token") in secret_files(host.config)


def test_a_token_is_never_shown(host, tmp_path):
    (tmp_path / "token").write_text("geheim")
    with listening() as wire:
        wire.default = send(b"", "401 Unauthorized")
        (finding,) = checked(host, endpoint(wire.address, token_file=str(tmp_path / "token")))
        assert "bearer geheim" in wire.headers[0]
    assert "geheim" not in repr(finding)
