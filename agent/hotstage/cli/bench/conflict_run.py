# SPDX-License-Identifier: Apache-2.0
"""Conflicts on the simulated host, one after the other, and when an outsider saw what of each.

Judges nothing. The agent and its notifier run as ever; the outsider reads the page and receives the webhooks.
All clocks are this host's: CLOCK_MONOTONIC, webhooks and the API by wall clock.
"""

from __future__ import annotations

import os
import threading
import time
import timeit
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec.structs import replace

from hotstage.cli.client import AgentClient
from hotstage.cli.demo.layout import DemoLayout, lay_out
from hotstage.cli.demo.run import unattached
from hotstage.cli.demo.simulated import SimulatedHost
from hotstage.cli.supervisor import Supervisor
from hotstage.cli.up import children
from hotstage.clock import SystemClock
from hotstage.config.render import toml
from hotstage.errors import HotstageError, PeerError
from hotstage.notify.receiver import Receiver
from hotstage.notify.signing import parse_secrets
from hotstage_marks.breakers import BreakerPage

BREAKER = "instance:i-0"
OPENED = "io.hotstage.breaker.opened.v1"
ATTACH_SECONDS = 30.0
WARM_SECONDS = 10.0
"""Until tokens have a price and stages are usual."""
SETTLE_SECONDS = 1.5
LOOK_SECONDS = 0.0001
QUICK_SECONDS = 0.2
_SAME_NS = 50_000_000
_READS = 100_000


@dataclass(frozen=True, slots=True)
class Opening:
    """One move of the breaker to open; ms, None for what was not seen of it."""

    window_ms: float | None
    """From the kernel's verdict to the tick that read it and opened the window."""
    page_ms: float | None
    """From the start of that tick to the page."""
    webhook_ms: float | None
    """From the start of that tick to the webhook's arrival."""

    @property
    def is_whole(self) -> bool:
        return None not in (self.window_ms, self.page_ms, self.webhook_ms)


@dataclass(frozen=True, slots=True)
class ConflictRun:
    openings: tuple[Opening, ...]
    read_ns: float
    own_page_ms: float | None
    """From decision to page by the agent's own clock, p99: without the reading and judging before."""
    load_average: float
    """Of this host in the last minute: who waits for a CPU sees all steps late."""
    loader: str
    rung: str


class _Reader:
    """Looks at the page, as a caller would, and notes when the breaker came to be open; CLOCK_MONOTONIC."""

    def __init__(self, path: str) -> None:
        self._page = BreakerPage(path)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="page-reader", daemon=True)
        self.opened_ns: list[int] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(2)

    def read_ns(self) -> float:
        """What one question costs, least of five rounds."""
        rounds = timeit.repeat(lambda: self._page.allow(BREAKER), number=_READS, repeat=5)
        return 1e9 * min(rounds) / _READS

    def _look(self) -> None:
        before = ""
        while not self._is_over.wait(LOOK_SECONDS):
            breaker = self._page.get(BREAKER)
            now = breaker.state if breaker is not None else ""
            if now == "open" and before != "open":
                self.opened_ns.append(time.monotonic_ns())
            before = now


def run_conflicts(count: int, seed: int) -> ConflictRun:
    """One volley a second, `count` of them. Raises HotstageError when a part cannot start."""
    clock = SystemClock()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="hotstage-bench-")))
        fault = f"token-conflict@{WARM_SECONDS:g}-{WARM_SECONDS + count:g}"
        host = SimulatedHost.start(folder / "host", seed=seed, faults=(fault,), clock=clock)
        stack.callback(host.end)
        layout = _quick(lay_out(folder, loader="auto", nvml_directory=host.nvml_directory))
        receiver = Receiver(
            parse_secrets(layout.secret_file.read_text(), str(layout.secret_file)), port=layout.receiver_port
        )
        receiver.start()
        stack.callback(receiver.stop)
        supervisor = Supervisor(clock)
        stack.callback(supervisor.stop)
        for child in children(layout.config, layout.config_file, None):
            if child.name != "explore":
                supervisor.start(child)
        client = AgentClient(socket_path=layout.config.http.socket)
        coverage = _wait_attached(supervisor, client, host.pids)
        reader = _Reader(layout.config.page.path)
        reader.start()
        stack.callback(reader.stop)
        host.go()
        _let_run(host, WARM_SECONDS + count + SETTLE_SECONDS)
        reader.stop()
        offset_ns = clock.wall_ns_of(0)
        moves = client.get(f"/v1/transitions?limit=1000&breaker={BREAKER}")["transitions"]
        windows = client.get("/v1/windows?state=all&limit=1000")["windows"]
        arrived = [each.received_ns for each in receiver.deliveries if each.type == OPENED and each.verified]
        openings = tuple(
            _opening(move["at_ns"], windows, [ns + offset_ns for ns in reader.opened_ns], arrived)
            for move in moves
            if move["to"] == "open"
        )
        own_seconds = client.get("/healthz")["checks"]["agent"]["decision_to_page_p99_seconds"]
        return ConflictRun(
            openings,
            reader.read_ns(),
            None if own_seconds is None else 1e3 * own_seconds,
            os.getloadavg()[0],
            coverage["loader"],
            coverage["rung"],
        )


def _quick(layout: DemoLayout) -> DemoLayout:
    """Windows and cool-downs so short that each volley opens the breaker anew."""
    config = layout.config
    quick = replace(
        config,
        conflict=replace(config.conflict, active_seconds=QUICK_SECONDS, gap_seconds=QUICK_SECONDS),
        windows=replace(config.windows, close_after_seconds=QUICK_SECONDS),
        breakers=replace(
            config.breakers, cool_down_seconds=QUICK_SECONDS, cool_down_max_seconds=QUICK_SECONDS
        ),
    )
    layout.config_file.write_text(toml(msgspec.to_builtins(quick)), encoding="utf-8")
    return DemoLayout(layout.directory, quick, layout.config_file, layout.secret_file, layout.receiver_port)


def _wait_attached(supervisor: Supervisor, client: AgentClient, pids: Sequence[int]) -> dict[str, Any]:
    """What covers the instances, once all of them are. Raises PeerError after the deadline."""
    deadline = time.monotonic() + ATTACH_SECONDS
    missing = "the agent's API"
    while time.monotonic() < deadline:
        if supervisor.watch() is not None:
            raise HotstageError("the agent cannot run on this host; it says why above")
        try:
            coverage: dict[str, Any] = client.get("/v1/coverage")
            missing = unattached(coverage, pids)
        except HotstageError:
            missing = "the agent's API"
        else:
            if not missing:
                return coverage
        time.sleep(0.1)
    raise PeerError(f"waited {ATTACH_SECONDS:.0f} s for {missing}", remedy="`hotstage doctor` says why")


def _let_run(host: SimulatedHost, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        host.news()
        time.sleep(0.1)


def _opening(
    at_ns: int, windows: Sequence[dict[str, Any]], pages_ns: Sequence[int], arrived_ns: Sequence[int]
) -> Opening:
    """All times by wall clock; what belongs to this opening is the first of its kind after it."""
    near = [each for each in windows if abs(each["opened_at_ns"] - at_ns) < _SAME_NS]
    since = [
        part["since_ns"]
        for each in near
        if each["kind"] == "token_conflict"
        for part in each["evidence"]
        if part["since_ns"] is not None
    ]
    return Opening(
        window_ms=(at_ns - min(since)) / 1e6 if since else None,
        page_ms=_first_after(at_ns, pages_ns),
        webhook_ms=_first_after(at_ns, arrived_ns),
    )


def _first_after(at_ns: int, times_ns: Sequence[int]) -> float | None:
    """ms from `at_ns` to the next of the times, None where a second passes without one."""
    ordered = sorted(times_ns)
    place = bisect_left(ordered, at_ns)
    if place == len(ordered) or ordered[place] - at_ns > 1_000_000_000:
        return None
    return (ordered[place] - at_ns) / 1e6
