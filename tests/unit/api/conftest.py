# SPDX-License-Identifier: Apache-2.0
"""A served API over real sockets, on fixed sources; raw bytes and plain requests to it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hotstage.api.access import Access
from hotstage.api.bell import Bell
from hotstage.api.overrides import OverrideDesk
from hotstage.api.routes import Api, Router
from hotstage.api.server import ApiServer
from hotstage.api.stream import EventStream
from hotstage.api.view import Health, Sources, ViewCell
from hotstage.clock import SystemClock
from hotstage.config.settings import HttpConfig
from hotstage.stages.snapshot_types import Snapshot
from hotstage.stages.waterfall_types import Requests
from hotstage.store.deliveries import Deliveries
from hotstage.store.store import Store


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(10)
        self.sock.connect(self.path)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


@dataclass
class Served:
    api: Api
    server: ApiServer
    socket_path: str

    def tcp(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)

    def ask(
        self, path: str, method: str = "GET", body: Any = None, unix: bool = False, **headers: str
    ) -> Answer:
        """One request on a connection of its own; `if_none_match="x"` becomes a header."""
        connection = UnixConnection(self.socket_path) if unix else self.tcp()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, payload, named)
        response = connection.getresponse()
        answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return answer

    def raw(self, data: bytes, timeout: float = 10.0) -> bytes:
        """Send bytes, read to the end."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=timeout) as connection:
            connection.sendall(data)
            received = b""
            while chunk := connection.recv(65536):
                received += chunk
            return received


NOTHING_IN_FLIGHT = Snapshot(
    taken_at="1970-01-01T00:00:05.000Z",
    taken_at_ns=5_000_000_000,
    wall_offset_ns=0,
    requests=[],
    requests_total=0,
    threads=[],
    threads_total=0,
    unclean=0,
    losses={},
)


def fixed_sources() -> Sources:
    return Sources(
        coverage=lambda: {"loader": "libbpf", "attached": 3},
        snapshot=lambda: NOTHING_IN_FLIGHT,
        requests=lambda after, limit, wanted: Requests([], after, {"limit": limit}),
        frames=lambda columns, seconds: {"columns": list(columns), "seconds": seconds},
        metrics=lambda accept: (b"hotstage_up 1.0\n", "text/plain; version=0.0.4"),
        health=lambda: Health("ok", {"tick": "alive"}),
        is_ready=lambda: (True, {}),
    )


@pytest.fixture
def sources() -> Any:
    """`sources(coverage=…)` → fixed sources with these replaced."""
    return lambda **changed: replace(fixed_sources(), **changed)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """`serve(sources=…, max_connections=…)` → Served; all are stopped at the end."""
    started: list[Served] = []

    def start(sources: Sources | None = None, directory: str = "a", **settings: Any) -> Served:
        clock = SystemClock()
        socket_path = str(tmp_path / directory / "agent.sock")
        config = HttpConfig(**{"listen": "127.0.0.1:0", "socket": socket_path, **settings})
        api = Api(
            cell=ViewCell("host-1", clock),
            sources=sources or fixed_sources(),
            store=Store(tmp_path / directory / "state", clock, "boot"),
            access=Access.of(config),
            clock=clock,
            events=EventStream(),
            outbox_bell=Bell(),
            overrides=OverrideDesk(),
            deliveries=Deliveries(),
        )
        server = ApiServer(config, Router(api))
        server.start()
        started.append(Served(api, server, socket_path))
        return started[-1]

    yield start
    for served in started:
        served.api.events.close()
        served.api.outbox_bell.close()
        served.server.stop()
        served.api.store.close()


@pytest.fixture
def served(serve: Any) -> Served:
    return serve()
