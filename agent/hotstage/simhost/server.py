# SPDX-License-Identifier: Apache-2.0
"""One instance of the simulated multimodal server: a process, a GPU, a health port, a line of stages.

Started by the host as `python -m hotstage.simhost.server CONFIG`. It maps its libraries, says "ready", makes
no CUDA call before it reads "go START_NS", stops taking requests at "stop", and lives until its input closes.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hotstage.simhost import faults, workload
from hotstage.simhost.annotations import Mode, annotations_of
from hotstage.simhost.gpu import Gpu
from hotstage.simhost.pipeline import Pipeline
from hotstage.simhost.scenes import Scenes
from hotstage.stages.stage import Modality, Stage

DRAIN_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What the host tells an instance, as one JSON file."""

    instance: str
    index: int
    instances: int
    model: str
    seed: int
    library: str
    report: str
    host_pid: int
    tag: str
    calls_scale: float
    seconds: float | None
    faults: tuple[faults.Fault, ...]
    mode: Mode = Mode.marks
    gpus: int = 1
    """How many GPUs the process sees; of two, the encoders are on the first."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> ServerConfig:
        raw: dict[str, Any] = json.loads(path.read_text())
        raw["faults"] = tuple(faults.Fault(**fault) for fault in raw["faults"])
        raw["mode"] = Mode(raw["mode"])
        return cls(**raw)


class Server:
    """The instance: its line and its arrivals."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._start_ns = 0
        self._is_over = threading.Event()
        self._gpu = Gpu(Path(config.library), config.gpus)
        self.pipeline = Pipeline(
            instance=config.instance,
            model=config.model,
            seed=config.seed,
            calls_scale=config.calls_scale,
            gpu=self._gpu,
            slowdown=self._slowdown,
            annotations=annotations_of(config.mode),
            has_pool=config.mode is Mode.fingerprints,
            is_eager=config.mode is Mode.eager,
        )
        self._scenes = Scenes(
            config.faults, config.instance, config.index, config.tag, self._gpu, self.pipeline.take
        )
        self._arrivals = threading.Thread(target=self._arrive, name="arrivals", daemon=True)

    def go(self, start_ns: int) -> None:
        """Traffic starts at `start_ns` (CLOCK_MONOTONIC)."""
        self._start_ns = start_ns
        self.pipeline.start()
        self._arrivals.start()
        self._scenes.start(start_ns, self._is_over)

    def stop(self) -> None:
        """No more arrivals; waits until all is answered or the time is up, then nothing moves any more."""
        self._is_over.set()
        if self._arrivals.is_alive():
            self._arrivals.join()
        deadline = time.monotonic() + DRAIN_SECONDS
        while self.pipeline.ledger.open and time.monotonic() < deadline:
            time.sleep(0.02)
        self.pipeline.halt()

    def report(self) -> dict[str, Any]:
        """Requests, and spans of the stages that have ended."""
        ledger = self.pipeline.ledger
        with ledger.lock:
            return {
                "requests": {
                    "started": ledger.started,
                    "finished": ledger.finished,
                    "open": ledger.open,
                    "refused": ledger.refused,
                    "failed": ledger.failed,
                },
                "stages": [asdict(span) for span in ledger.spans],
                "dropped": ledger.dropped,
                "scenes": self._scenes.happened(ledger.spans),
            }

    def _seconds(self) -> float:
        return (time.monotonic_ns() - self._start_ns) / 1e9

    def _slowdown(self, stage: Stage, modality: Modality) -> float:
        return faults.slowdown(
            self._config.faults, self._seconds(), stage.name, modality.name, self._config.instance
        )

    def _arrive(self) -> None:
        config = self._config
        for arrival in workload.arrivals(
            seed=config.seed,
            instances=config.instances,
            profile=workload.Profile.load(),
            load=lambda seconds: faults.load_factor(config.faults, seconds),
        ):
            if config.seconds is not None and arrival.at_seconds >= config.seconds:
                return
            if arrival.instance != config.index:
                continue
            if self._is_over.wait(max(0.0, arrival.at_seconds - self._seconds())):
                return
            self.pipeline.take(replace(arrival, id=f"{arrival.id}-{config.tag}"))


class HealthHandler(BaseHTTPRequestHandler):
    """Says 200 as long as the process lives, which is exactly what such ports say in a hang."""

    def do_GET(self) -> None:
        body = b'{"status":"ok"}\n'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the host's output is a protocol."""


def die_with(parent_pid: int) -> None:
    """The kernel kills this process when its parent ends, however that ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the line above
        os._exit(1)


def _say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def main() -> None:
    config = ServerConfig.read(Path(sys.argv[1]))
    die_with(config.host_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host says when it is over
    sys.setswitchinterval(0.001)
    server = Server(config)
    health = ThreadingHTTPServer(("127.0.0.1", 0), HealthHandler)
    threading.Thread(target=health.serve_forever, name="health", daemon=True).start()
    _say("ready", pid=os.getpid(), health_port=health.server_address[1])
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["go"]:
            server.go(int(words[1]))
        elif words[:1] == ["stop"]:
            server.stop()
            Path(config.report).write_text(json.dumps(server.report()))
            _say("stopped")
    os._exit(0)  # worker threads may sit in a hung wait


if __name__ == "__main__":
    main()
