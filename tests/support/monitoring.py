# SPDX-License-Identifier: Apache-2.0
"""Real Prometheus, VictoriaMetrics and Alertmanager (Debian's) on loopback, and a demo that they scrape.

Each is a context manager: started in its own directory, on a free port, waited for with a deadline, ended
by its pid. They need the programs named in pyproject's system-packages; the demo needs root.

    with monitored_demo(tmp_path, "--fault", "hang@5-15") as seen:
        seen.prometheus.query('hotstage_up')          # [Series(labels={…}, points=[(unix seconds, value)])]
        seen.victoria.query_range('rate(hotstage_ticks_total[5s])', seconds=30)
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import urllib3
import yaml

READY_SECONDS = 30.0
ATTACHED_SECONDS = 60.0
STOP_SECONDS = 15.0
JOB = "hotstage"

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, seconds: float = READY_SECONDS) -> T:
    """The first true value of `condition`; fails with what it waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)


@dataclass(frozen=True)
class Series:
    """One series of an answer; points are (unix seconds, value), a single one for an instant query."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]

    @property
    def value(self) -> float:
        """The last value."""
        return self.points[-1][1]


class Server:
    """A program that listens on loopback. `url` has no slash at its end."""

    def __init__(self, name: str, command: Sequence[str], url: str, ready: str, directory: Path) -> None:
        self.name, self.url = name, url
        self._ready = ready
        self._http = urllib3.PoolManager(timeout=10, retries=False)
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self) -> None:
        wait_for(self._is_ready, f"{self.name} to be ready")

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON document at a path; fails on any status but 200."""
        answer = self._http.request("GET", self.url + path, fields=parameters)
        assert answer.status == 200, f"{self.name}{path} {parameters}: {answer.status} {answer.data!r}"
        return json.loads(answer.data)

    def stop(self) -> None:
        self._http.clear()
        end(self.process)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, f"{self.name} ended:\n{self.log.read_text()[-3000:]}"
        try:
            return self._http.request("GET", self.url + self._ready).status == 200
        except urllib3.exceptions.HTTPError:
            return False


class Tsdb(Server):
    """Prometheus or VictoriaMetrics: the same query API."""

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        """Instant query, now or at a unix time."""
        parameters = {"query": expression} | ({} if at is None else {"time": at})
        found = self.get("/api/v1/query", **parameters)["data"]
        if found["resultType"] == "scalar":
            return [Series({}, [_point(found["result"])])]
        return [Series(each["metric"], [_point(each["value"])]) for each in found["result"]]

    def query_range(self, expression: str, *, seconds: float = 120.0, step: float = 1.0) -> list[Series]:
        """The last `seconds` up to now."""
        now = time.time()
        found = self.get("/api/v1/query_range", query=expression, start=now - seconds, end=now, step=step)
        return [
            Series(each["metric"], [_point(point) for point in each["values"]])
            for each in found["data"]["result"]
        ]

    def alerts(self) -> list[dict[str, Any]]:
        """Active alerts, pending and firing (Prometheus only)."""
        return list(self.get("/api/v1/alerts")["data"]["alerts"])


@contextmanager
def prometheus(
    directory: Path,
    targets: Sequence[str],
    *,
    rule_files: Sequence[Path] = (),
    alertmanager: str | None = None,
    interval_seconds: float = 1.0,
) -> Iterator[Tsdb]:
    """Scrapes `targets` (host:port) as job `hotstage`; `alertmanager` is a URL."""
    folder, port = _folder(directory, "prometheus"), free_port()
    config = _scrape_config(targets, interval_seconds)
    config["global"]["evaluation_interval"] = config["global"]["scrape_interval"]
    config["rule_files"] = [str(path) for path in rule_files]
    if alertmanager is not None:
        address = alertmanager.removeprefix("http://")
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]}
    command = [
        "prometheus",
        f"--config.file={_written(folder / 'prometheus.yml', config)}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
        "--alertmanager.notification-queue-capacity=1000",
        "--rules.alert.resend-delay=1s",
    ]
    with _running(Tsdb("prometheus", command, f"http://127.0.0.1:{port}", "/-/ready", folder)) as server:
        yield server


@contextmanager
def victoria_metrics(
    directory: Path, targets: Sequence[str], *, interval_seconds: float = 1.0
) -> Iterator[Tsdb]:
    """Scrapes `targets`; shows samples a second after they came, not thirty."""
    folder, port = _folder(directory, "victoria-metrics"), free_port()
    command = [
        "victoria-metrics",
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-promscrape.config={_written(folder / 'scrape.yml', _scrape_config(targets, interval_seconds))}",
        "-search.latencyOffset=1s",
        "-search.disableCache",
        "-retentionPeriod=1",
        "-memory.allowedBytes=256MiB",
        "-loggerLevel=WARN",
    ]
    with _running(Tsdb("victoria-metrics", command, f"http://127.0.0.1:{port}", "/health", folder)) as server:
        yield server


@contextmanager
def alertmanager(directory: Path, config: Mapping[str, Any]) -> Iterator[Server]:
    """Alertmanager with this configuration, alone (no cluster)."""
    folder, port = _folder(directory, "alertmanager"), free_port()
    command = [
        "prometheus-alertmanager",
        f"--config.file={_written(folder / 'alertmanager.yml', config)}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with _running(Server("alertmanager", command, f"http://127.0.0.1:{port}", "/-/ready", folder)) as server:
        yield server


_ADDRESSES = re.compile(r"explorer: (?P<explorer>http://\S+)/ +agent: (?P<agent>http://\S+)/metrics")


@dataclass
class RunningDemo:
    """A `hotstage demo` with traffic. `said` are its lines on standard error so far."""

    process: subprocess.Popen[str]
    agent_url: str
    explorer_url: str
    directory: Path
    started: float
    """Unix seconds when its traffic began, within a fraction of a second: faults count from here."""
    said: list[str] = field(default_factory=list)

    @property
    def target(self) -> str:
        """host:port of `/metrics`."""
        return self.agent_url.removeprefix("http://")

    @property
    def seconds(self) -> float:
        """How long its traffic has been running."""
        return time.time() - self.started

    def wait_until(self, second: float) -> None:
        """Until its traffic has been running for so long."""
        wait_for(lambda: self.seconds >= second, f"second {second:g} of the demo", second + 1)

    def pid_of(self, word: str) -> int:
        """The pid of its process with this word in its command line: `agent`, `notify`, `config-i-0.json`."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            is_ours = any(str(self.directory) in each for each in words)
            if is_ours and any(Path(each).name == word for each in words):
                return int(entry.name)
        raise AssertionError(f"the demo has no process `{word}`")


@contextmanager
def running_demo(directory: Path, *arguments: str, seed: int = 4711) -> Iterator[RunningDemo]:
    """`hotstage demo` until the block ends; entered when its traffic has begun."""
    folder = _folder(directory, "demo")
    command = [sys.executable, "-m", "hotstage", "demo", "--seed", str(seed), *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    said: list[str] = []
    reader = threading.Thread(target=_collect, args=(process, said), daemon=True)
    reader.start()
    try:
        addresses = wait_for(
            lambda: _addresses(process, said), "the demo to have its probes attached", ATTACHED_SECONDS
        )
        yield RunningDemo(
            process, addresses["agent"], addresses["explorer"], folder, started=time.time(), said=said
        )
    finally:
        end(process, signal.SIGINT, seconds=60.0)
        reader.join(STOP_SECONDS)
        if process.stderr is not None:
            process.stderr.close()


@dataclass(frozen=True)
class Monitored:
    """A demo and the two engines that scrape it once a second."""

    demo: RunningDemo
    prometheus: Tsdb
    victoria: Tsdb

    @property
    def engines(self) -> tuple[Tsdb, Tsdb]:
        return self.prometheus, self.victoria


@contextmanager
def monitored_demo(
    directory: Path,
    *arguments: str,
    seed: int = 4711,
    rule_files: Sequence[Path] = (),
    alertmanager: str | None = None,
) -> Iterator[Monitored]:
    """A running demo, scraped by both engines; entered when both have its first samples."""
    with ExitStack() as stack:
        demo = stack.enter_context(running_demo(directory, *arguments, seed=seed))
        engines = (
            stack.enter_context(
                prometheus(directory, [demo.target], rule_files=rule_files, alertmanager=alertmanager)
            ),
            stack.enter_context(victoria_metrics(directory, [demo.target])),
        )
        for engine in engines:
            wait_for(lambda engine=engine: engine.query("hotstage_up"), f"{engine.name} to have scraped")
        yield Monitored(demo, *engines)


def free_port() -> int:
    """A loopback TCP port that was free a moment ago."""
    with socket.socket() as entry:
        entry.bind(("127.0.0.1", 0))
        return int(entry.getsockname()[1])


def end(
    process: subprocess.Popen[Any], how: signal.Signals = signal.SIGTERM, seconds: float = STOP_SECONDS
) -> None:
    """End one process by its pid, gently first."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(seconds)


S = TypeVar("S", bound=Server)


@contextmanager
def _running(server: S) -> Iterator[S]:
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def _scrape_config(targets: Sequence[str], interval_seconds: float) -> dict[str, Any]:
    interval = f"{round(interval_seconds * 1000)}ms"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": list(targets)}]}],
    }


def _written(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False), encoding="utf-8")
    return path


def _folder(directory: Path, name: str) -> Path:
    path = directory / name
    path.mkdir(parents=True)
    return path


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def _collect(process: subprocess.Popen[str], said: list[str]) -> None:
    if process.stderr is not None:
        for line in process.stderr:
            said.append(line.rstrip("\n"))


def _addresses(process: subprocess.Popen[str], said: Sequence[str]) -> dict[str, str] | None:
    assert process.poll() is None, "the demo ended:\n" + "\n".join(said[-20:])
    for line in list(said):
        match = _ADDRESSES.search(line)
        if match:
            return match.groupdict()
    return None
