# SPDX-License-Identifier: Apache-2.0
"""Processes of ours to start, talk to and kill; nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.whole_agent import WholeAgent

from hotstage.config.notify import Destination, NotifyConfig
from hotstage.notify.receiver import Receiver
from hotstage.notify.signing import Secret

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[2]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DEADLINE_SECONDS = 20.0


def wait_until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """The first true value of `condition`; fails with what it waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


class EdgeAgent:
    """`programs/edge_agent.py` and its dialogue."""

    def __init__(self, directory: Path, point: str | None = None) -> None:
        command = [sys.executable, str(PROGRAMS / "edge_agent.py"), str(directory)]
        self.process = subprocess.Popen(
            [*command, *(["--die", point] if point else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = self.answer("ready")
        self.socket_path = str(directory / "agent.sock")

    def order(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, event: str) -> dict[str, Any] | None:
        """The next line, which must tell of `event`; None if the process has died."""
        line = self.process.stdout.readline()
        if not line:
            return None
        said = json.loads(line)
        assert said["event"] == event
        return said

    def trip(self, name: object) -> dict[str, Any] | None:
        """Move a breaker and wait until it is on disk; None if the agent died of it."""
        self.order(f"trip {name}")
        return self.answer("page") and self.answer("committed")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def end(self) -> int:
        self.order("end")
        return self.process.wait(10)


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., EdgeAgent]]:
    """`start_agent(point=…)`: the edge of an agent on this test's directory."""
    started: list[EdgeAgent] = []

    def start(point: str | None = None) -> EdgeAgent:
        started.append(EdgeAgent(tmp_path / "agent", point))
        return started[-1]

    yield start
    for agent in started:
        agent.kill()
        with contextlib.suppress(BrokenPipeError):
            agent.process.stdin.close()
        agent.process.stdout.close()


@pytest.fixture
def start_notifier_on() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start_notifier_on(config, die=…, environment=…)`: the notifier with a configuration of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(
        config: NotifyConfig, die: str | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAMS / "mortal_notifier.py"), msgspec.json.encode(config).decode()]
        started.append(
            subprocess.Popen(
                [*command, *(["--die", die] if die else [])],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        )
        assert started[-1].stdout.readline() == "ready\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(10)
        process.stdout.close()


@pytest.fixture
def start_notifier(tmp_path: Path, start_notifier_on: Callable[..., Any]) -> Callable[..., Any]:
    """`start_notifier(ports, die=…)`: the notifier with one destination for each port."""

    def start(ports: dict[str, int], die: str | None = None, **settings: Any) -> subprocess.Popen[str]:
        secret = tmp_path / "secret"
        secret.write_text(SECRET)
        destinations = [
            Destination(name=name, url=f"http://127.0.0.1:{port}/", secret_file=str(secret))
            for name, port in ports.items()
        ]
        fields = {"retry_base_seconds": 0.05, "retry_max_seconds": 0.2} | settings
        config = NotifyConfig(
            agent_socket=str(tmp_path / "agent" / "agent.sock"),
            directory=str(tmp_path / "notify"),
            destinations=destinations,
            **fields,
        )
        return start_notifier_on(config, die)

    return start


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """`receive(answer=…)`: a running, verifying receiver."""
    started: list[Receiver] = []

    def start(**options: Any) -> Receiver:
        started.append(Receiver([Secret.parse(SECRET, "test")], **options))
        started[-1].start()
        return started[-1]

    yield start
    for receiver in started:
        receiver.stop()


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    return wait_until


class Installation:
    """A real installation below a folder that every account may read; it is made while other tests run."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hotstage-root-")
        self.destdir = Path(self._folder.name) / "root"
        self.destdir.mkdir()
        for path in (self.destdir.parent, self.destdir):
            path.chmod(0o755)
        self._log = self.destdir.with_name("log").open("w+")
        command = ["/usr/bin/python3", ROOT / "deploy/install.py", "install", "--destdir", self.destdir]
        self._process = subprocess.Popen(
            ["nice", "-n", "19", *command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait(self) -> Path:
        code = self._process.wait(180)
        self._log.seek(0)
        assert code == 0, self._log.read()[-3000:]
        return self.destdir

    def remove(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        self._log.close()
        self._folder.cleanup()


INSTALLATION = pytest.StashKey[Installation]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Half a minute of installing needs nobody's attention: it begins before the first test."""
    needs_one = any("installed" in getattr(item, "fixturenames", ()) for item in session.items)
    if needs_one and not session.config.option.collectonly:
        begun = session.config.stash[INSTALLATION] = Installation()
        session.config.add_cleanup(begun.remove)


@pytest.fixture(scope="session")
def installed(request: pytest.FixtureRequest) -> Path:
    """A root that holds a real installation, made once."""
    return request.config.stash[INSTALLATION].wait()


def free_tcp_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def free_port():
    return free_tcp_port()


@pytest.fixture
def start(tmp_path, free_port, until):
    started = []

    def begin(ready=True, **settings):
        agent = WholeAgent(tmp_path / "agent", free_port, **settings)
        started.append(agent)
        if ready:
            until(agent.is_ready, "the agent's readiness")
        return agent

    yield begin
    for agent in started:
        agent.process.kill()
        agent.process.wait(10)
        agent.process.stderr.close()
