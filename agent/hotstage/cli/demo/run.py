# SPDX-License-Identifier: Apache-2.0
"""One demo from start to end: simulated host, receiver, agent, notifier, explorer; what they said, gathered.

Everything is started here and ended here, in one temporary directory that goes with it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hotstage.cli.client import AgentClient
from hotstage.cli.demo.layout import DemoLayout, lay_out
from hotstage.cli.demo.simulated import SimulatedHost
from hotstage.cli.reading import AGENT_VARIABLE, SOCKET_VARIABLE
from hotstage.cli.supervisor import Child, Supervisor
from hotstage.cli.up import children
from hotstage.clock import Clock
from hotstage.config.settings import HttpConfig
from hotstage.errors import HotstageError, PeerError

log = logging.getLogger(__name__)

ATTACH_SECONDS = 30.0
SETTLE_SECONDS = 2.5
DELIVERY_SECONDS = 5.0
POLL_SECONDS = 0.1
GATHER_SECONDS = 2.0
_REQUESTS_PAGE = 2000
_HANG = "alive_but_hung"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line asked for. `seconds` None: until it is told to stop; a port None: a free one."""

    seconds: float | None
    seed: int
    loader: str
    faults: tuple[str, ...]
    faults_file: Path | None
    agent_port: int | None = None
    explorer_port: int | None = None


@dataclass(slots=True)
class Gathered:
    """What a demo leaves behind for its report."""

    truth: Document = field(default_factory=dict)
    coverage: Document = field(default_factory=dict)
    stages: Document = field(default_factory=dict)
    windows: list[Document] = field(default_factory=list)
    breakers: list[Document] = field(default_factory=list)
    records: dict[str, Document] = field(default_factory=dict)
    health: Document = field(default_factory=dict)
    deliveries: list[Document] = field(default_factory=list)
    switch_moves: list[Document] | None = None
    """Of the kill switch, newest first; None: they could not be asked for."""
    run_start_ns: int = 0
    run_end_ns: int = 0
    wall_offset_ns: int = 0


@dataclass(frozen=True, slots=True)
class Live:
    """What a watcher of the running demo is shown, about once a second."""

    elapsed_seconds: float
    layout: DemoLayout
    coverage: Document
    windows: list[Document]
    breakers: list[Document]
    deliveries: list[Document]


class Demo:
    """Runs once. `show` gets a `Live` about once a second; `asked_to_stop` ends it early."""

    def __init__(
        self,
        options: DemoOptions,
        clock: Clock,
        *,
        announce: Callable[[str], None],
        show: Callable[[Live], None],
        asked_to_stop: Callable[[], bool],
    ) -> None:
        self._options = options
        self._clock = clock
        self._announce = announce
        self._show = show
        self._asked_to_stop = asked_to_stop
        self._after = 0
        self._asked_health: set[str] = set()
        self.gathered = Gathered()

    def run(self) -> Gathered:
        """Start all, let traffic run, stop in order. Empty when told to stop before there was traffic.

        Raises HotstageError when a part cannot start.
        """
        with ExitStack() as stack:
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="hotstage-demo-")))
            self._announce("building the simulated CUDA libraries and starting the server")
            host = SimulatedHost.start(
                directory / "host",
                seed=self._options.seed,
                faults=self._options.faults,
                faults_file=self._options.faults_file,
                clock=self._clock,
            )
            stack.callback(host.end)
            if self._asked_to_stop():
                return self.gathered
            layout = lay_out(
                directory,
                loader=self._options.loader,
                nvml_directory=host.nvml_directory,
                agent_port=self._options.agent_port,
                explorer_port=self._options.explorer_port,
            )
            supervisor = Supervisor(self._clock)
            stack.callback(supervisor.stop)
            self._start(supervisor, layout)
            client = AgentClient(socket_path=layout.config.http.socket)
            self._announce(f"attaching probes (loader {self._options.loader})")
            if not self._wait_attached(supervisor, client, host.pids):
                return self.gathered
            self._announce(
                f"explorer: http://{layout.config.explore.listen}/   "
                f"agent: http://{layout.config.http.listen}/metrics"
            )
            for line in elsewhere(layout.config.http, layout.config_file):
                self._announce(line)
            host.go()
            self._watch(supervisor, client, layout, host)
            self._announce("stopping traffic, comparing with the truth")
            self._gather_end(client, layout, host)
        return self.gathered

    def _start(self, supervisor: Supervisor, layout: DemoLayout) -> None:
        receiver = [sys.executable, "-m", "hotstage.notify.receiver", "--port", str(layout.receiver_port)]
        receiver += ["--secret-file", str(layout.secret_file), "--log", str(_deliveries(layout))]
        supervisor.start(Child("receiver", receiver, {}))
        loader = None if self._options.loader == "auto" else self._options.loader
        for child in children(layout.config, layout.config_file, loader):
            supervisor.start(child)

    def _wait_attached(self, supervisor: Supervisor, client: AgentClient, pids: Sequence[int]) -> bool:
        """Every instance has its libcuda and its marks attached; False when asked to stop before.

        Raises PeerError after the deadline.
        """
        deadline_ns = self._clock.monotonic_ns() + round(ATTACH_SECONDS * 1e9)
        missing = "the agent's API"
        while self._clock.monotonic_ns() < deadline_ns:
            code = supervisor.watch()
            if code is not None:
                error = HotstageError("the agent cannot run on this host; it says why above")
                error.exit_code = code
                raise error
            if self._asked_to_stop():
                return False
            try:
                missing = unattached(client.get("/v1/coverage"), pids)
            except (PeerError, HotstageError):
                missing = "the agent's API"
            if not missing:
                return True
            time.sleep(POLL_SECONDS)
        raise PeerError(
            f"waited {ATTACH_SECONDS:.0f} s for {missing}", remedy="`hotstage doctor` says what is in the way"
        )

    def _watch(
        self, supervisor: Supervisor, client: AgentClient, layout: DemoLayout, host: SimulatedHost
    ) -> None:
        began_ns = self.gathered.run_start_ns = self._clock.monotonic_ns()
        next_gather_ns = 0
        while not self._asked_to_stop():
            elapsed = (self._clock.monotonic_ns() - began_ns) / 1e9
            if self._options.seconds is not None and elapsed >= self._options.seconds:
                return
            supervisor.watch()
            for event in host.news():
                self._tell(event)
            if self._clock.monotonic_ns() >= next_gather_ns:
                next_gather_ns = self._clock.monotonic_ns() + round(GATHER_SECONDS / 2 * 1e9)
                self._look(client, layout, elapsed, host)
            time.sleep(POLL_SECONDS)

    def _tell(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "fault":
            self._announce(f"fault {event['state']:<9} {event['name']}")
        elif event["event"] in {"warning", "died"}:
            self._announce(f"simulated host: {event.get('message', event)}")

    def _look(self, client: AgentClient, layout: DemoLayout, elapsed: float, host: SimulatedHost) -> None:
        """Show the state; an agent that does not answer just now is tried again a second later."""
        try:
            self._gather_requests(client)
            windows = client.get("/v1/windows?state=all&limit=100")["windows"]
            self._show(
                Live(
                    elapsed_seconds=elapsed,
                    layout=layout,
                    coverage=client.get("/v1/coverage"),
                    windows=windows,
                    breakers=client.get("/v1/breakers")["breakers"],
                    deliveries=_read_lines(_deliveries(layout)),
                )
            )
            self._ask_health(windows, host)
        except HotstageError as error:
            log.warning("the agent did not answer", extra={"error": error.message})

    def _ask_health(self, windows: Sequence[Document], host: SimulatedHost) -> None:
        """What a hung server says of itself meanwhile, once a window."""
        for window in windows:
            instance = window["entity"].get("instance")
            is_hang = (
                window["kind"] == _HANG and window["closed_at"] is None and instance in host.health_ports
            )
            if is_hang and window["id"] not in self._asked_health:
                self._asked_health.add(window["id"])
                self._announce(f"health          {instance} says {host.health(instance)} of itself")

    def _gather_requests(self, client: AgentClient) -> None:
        """Finished requests by page, so that a long run loses none."""
        while True:
            page = client.get(f"/v1/requests?after={self._after}&limit={_REQUESTS_PAGE}")
            self._after = page["next"]
            self.gathered.records.update((row["id"], row) for row in page["requests"])
            if len(page["requests"]) < _REQUESTS_PAGE:
                return

    def _gather_end(self, client: AgentClient, layout: DemoLayout, host: SimulatedHost) -> None:
        found = self.gathered
        found.run_end_ns = self._clock.monotonic_ns()
        found.wall_offset_ns = self._clock.wall_ns_of(0)
        found.truth = host.stop()
        time.sleep(SETTLE_SECONDS)  # two slow ticks: the last counters are read
        self._gather_requests(client)
        for row in client.get("/v1/snapshot")["requests"]:
            found.records.setdefault(row["id"], row)
        found.coverage = client.get("/v1/coverage")
        found.stages = client.get("/v1/stages")
        found.windows = client.get("/v1/windows?state=all&limit=1000")["windows"]
        found.breakers = client.get("/v1/breakers")["breakers"]
        found.switch_moves = client.get("/v1/probes")["moves"]
        found.health = client.get("/healthz")
        found.deliveries = self._wait_deliveries(layout, int(found.health["checks"]["outbox"]["enqueued"]))

    def _wait_deliveries(self, layout: DemoLayout, expected: int) -> list[Document]:
        deadline_ns = self._clock.monotonic_ns() + round(DELIVERY_SECONDS * 1e9)
        while True:
            lines = _read_lines(_deliveries(layout))
            done = len({line["id"] for line in lines}) >= expected
            if done or self._clock.monotonic_ns() > deadline_ns:
                return lines
            time.sleep(POLL_SECONDS)


def elsewhere(http: HttpConfig, config_file: Path) -> tuple[str, ...]:
    """How to ask this demo from another terminal, overrides of breakers included."""
    return (
        "ask it from another terminal, for example `hotstage windows`, `hotstage breakers`, after:",
        f"  export {AGENT_VARIABLE}=http://{http.listen} {SOCKET_VARIABLE}={http.socket}",
        f"trip a breaker: hotstage breakers trip host --ttl 1m --socket {http.socket}",
        f"try its webhooks: hotstage --config {config_file} webhook test --all",
    )


def unattached(coverage: Document, pids: Sequence[int]) -> str:
    """Which instance still lacks which library; empty when all are attached."""
    attached = {
        (process["pid"], library["kind"])
        for process in coverage["processes"]
        for library in process["libraries"]
        if library["state"] == "attached"
    }
    missing = [
        f"{kind} in {pid}" for pid in pids for kind in ("libcuda", "marks") if (pid, kind) not in attached
    ]
    return f"probes on {', '.join(missing)}" if missing else ""


def _deliveries(layout: DemoLayout) -> Path:
    return layout.directory / "deliveries.jsonl"


def _read_lines(path: Path) -> list[Document]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]
