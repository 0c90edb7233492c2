# SPDX-License-Identifier: Apache-2.0
"""A simulated host with an agent, a notifier, an engine, a collector and receivers: each can be made to fail.

Everything is its own process or its own server, so that a test breaks one and sees what is told of it. Needs
root; the state directory is a file system of 3 MB.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from hotstage.cli.client import AgentClient
from hotstage.cli.demo.layout import DemoLayout, lay_out
from hotstage.cli.demo.run import unattached
from hotstage.cli.demo.simulated import SimulatedHost
from hotstage.clock import SystemClock
from hotstage.config.engines import EngineEndpoint, EnginesConfig
from hotstage.config.notify import Destination
from hotstage.config.render import toml
from hotstage.config.settings import Config, OtlpConfig, ProbesConfig
from hotstage.errors import HotstageError
from hotstage.simhost.gpus import GPUS
from hotstage.simhost.page import PAGE_FILE, Device, Page
from support.alarms import Alarms, faster_rules, told_receiver
from support.children import do, said, started
from support.monitoring import Tsdb, prometheus, wait_for
from support.otlp import Received
from support.otlp import receiver as otlp_receiver
from support.receivers import RawReceiver

FAILING = ("gone", "refusing", "down")
"""Destinations that answer as told; beside them `unsafe`, an address that no webhook may go to."""
PROGRAM = Path(__file__).resolve().parents[1] / "integration/programs/troublesome_server.py"
PENDING_MAX = 20
SCRAPE_SECONDS = 0.5
"""Some troubles must last for minutes of the shipped rules: half a second is the least that shows a change of
the agent's bodies, which it makes anew that often.
"""


@dataclass
class Troubled:
    """The host and all that watches it. `lonely` is a second Prometheus, whose target can be taken away."""

    alarms: Alarms
    lonely: Tsdb
    lonely_config: Path
    layout: DemoLayout
    host: SimulatedHost
    engine: subprocess.Popen[str]
    notifier: subprocess.Popen[str]
    server: subprocess.Popen[str]
    collector: Received
    receivers: dict[str, RawReceiver] = field(default_factory=dict)

    @property
    def client(self) -> AgentClient:
        return AgentClient(socket_path=self.layout.config.http.socket)

    def override(self, action: str, breaker: str) -> None:
        """As `hotstage breakers trip` or `reset`, by the command itself."""
        ttl = ["--ttl", "10m"] if action == "trip" else []
        command = [sys.executable, "-m", "hotstage", "--config", str(self.layout.config_file), "breakers"]
        subprocess.run([*command, action, breaker, *ttl], check=True, stdout=subprocess.DEVNULL, timeout=20)

    def do(self, word: str) -> None:
        """Have the troublesome server do something."""
        do(self.server, word)

    def slow_down(self, gpu: int, reasons: int) -> None:
        """NVML gives these reasons for lower clocks from now on."""
        offset = Page.devices.offset + gpu * ctypes.sizeof(Device) + Device.clock_reasons.offset
        with (self.host.nvml_directory / PAGE_FILE).open("r+b") as page:
            page.seek(offset)
            page.write(reasons.to_bytes(4, sys.byteorder))

    def forget_target(self) -> None:
        """Take the lonely Prometheus its target, as service discovery may."""
        document = yaml.safe_load(self.lonely_config.read_text(encoding="utf-8"))
        document["scrape_configs"][0]["static_configs"] = []
        self.lonely_config.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.lonely.process.send_signal(signal.SIGHUP)

    def fill_disk(self) -> None:
        """Somebody else's file takes what is left of the state directory's file system."""
        path = Path(self.layout.config.store.directory) / "others"
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)


@contextmanager
def troubled_host(directory: Path, *faults: str, seed: int) -> Iterator[Troubled]:
    """Entered when probes are attached and Prometheus has its first samples; traffic has not begun."""
    with ExitStack() as stack:
        host = SimulatedHost.start(
            directory / "host", seed=seed, faults=faults, faults_file=None, clock=SystemClock()
        )
        stack.callback(host.end)
        engine = started(stack, directory, "engine", [sys.executable, "-m", "hotstage.simhost.engine"])
        server = started(
            stack,
            directory,
            "server",
            [sys.executable, str(PROGRAM), str(host.nvml_directory / "libsimserver.so")],
            CUDA_VISIBLE_DEVICES=GPUS[1].uuid,
        )
        collector = stack.enter_context(otlp_receiver())
        receivers = {name: stack.enter_context(RawReceiver()) for name in ("receiver", *FAILING)}
        layout = lay_out(directory, loader="auto", nvml_directory=host.nvml_directory)
        config = _config(layout.config, said(engine, "url"), collector.url, receivers)
        layout.config_file.write_text(toml(msgspec.to_builtins(config)), encoding="utf-8")
        _mount(stack, config.store.directory)
        hotstage = [sys.executable, "-m", "hotstage", "--config", str(layout.config_file)]
        started(stack, directory, "agent", [*hotstage, "agent"])
        client = AgentClient(socket_path=config.http.socket)
        assert server.stdout and server.stdout.readline() == "ready\n"
        wait_for(lambda: is_attached(client, (*host.pids, server.pid)), "the probes to be attached", 60)
        notifier = started(stack, directory, "notifier", [*hotstage, "notify"])
        router, told = stack.enter_context(told_receiver(directory, SCRAPE_SECONDS))
        first, lonely = (
            stack.enter_context(
                prometheus(
                    directory / name,
                    [config.http.listen],
                    rule_files=faster_rules(directory, SCRAPE_SECONDS),
                    alertmanager=router.url,
                    interval_seconds=SCRAPE_SECONDS,
                )
            )
            for name in ("first", "lonely")
        )
        for each in (first, lonely):
            wait_for(lambda each=each: each.query("hotstage_up"), "Prometheus to have scraped")
        yield Troubled(
            Alarms(first, told),
            lonely,
            directory / "lonely/prometheus/prometheus.yml",
            layout,
            host,
            engine,
            notifier,
            server,
            collector,
            receivers,
        )


def _config(config: Config, engine_url: str, collector_url: str, receivers: dict[str, RawReceiver]) -> Config:
    replace = msgspec.structs.replace
    (whole,) = config.notify.destinations
    destinations = [
        replace(whole, name=name, url=receiver.url + "/events") for name, receiver in receivers.items()
    ]
    destinations.append(Destination(name="unsafe", url="https://169.254.169.254/events", format="plain"))
    return replace(
        config,
        probes=ProbesConfig(events_ring_bytes=16_384),
        engines=EnginesConfig(period_seconds=1.0, endpoints=[EngineEndpoint(name="vllm-0", url=engine_url)]),
        store=replace(config.store, pending_max=PENDING_MAX),
        notify=replace(config.notify, destinations=destinations, retry_max_seconds=2.0),
        otlp=OtlpConfig(endpoint=collector_url, period_seconds=1.0, baseline_ratio=1.0, timeout_seconds=2.0),
    )


def _mount(stack: ExitStack, place: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", place], check=True)
    stack.callback(subprocess.run, ["umount", "-l", place], check=True)


def is_attached(client: AgentClient, pids: tuple[int, ...]) -> bool:
    try:
        return not unattached(client.get("/v1/coverage"), pids)
    except HotstageError:
        return False
