# SPDX-License-Identifier: Apache-2.0
"""The other end of the wire: answers with bodies of the agent's HTTP shapes, and misbehaves on command.

`python tests/browser/fake_agent.py --port 9178` serves it by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

import fake_latency
import fake_requests
import fake_snapshots
from fake_requests import stamp

PATHS = (
    *("/v1/heat", "/v1/stages", "/v1/windows", "/v1/breakers", "/v1/coverage"),
    *("/v1/latency", "/v1/components", "/v1/classes"),
)
ENDPOINTS = (
    # endpoint, modality, requests/s, weight, P95 in s
    ("/v1/chat/completions", "text", 21.0, 1.0, 0.42),
    ("/v1/encode", "image", 13.0, 1.6, 0.31),
    ("/v1/audio/transcriptions", "audio", 6.5, 1.3, 0.68),
    ("/v1/video/describe", "video", 2.2, 3.0, 0.93),
)
INSTANCES = (("i-0", 0.58), ("i-1", 0.41))
STAGES = (
    ("gateway", "text", 0.002),
    ("media_fetch", "image", 0.018),
    ("media_decode", "image", 0.009),
    ("media_decode", "video", 0.061),
    ("preprocess", "image", 0.011),
    ("tokenize", "text", 0.0008),
    ("queue", "mixed", 0.014),
    ("vision_encode", "image", 0.048),
    ("audio_encode", "audio", 0.072),
    ("video_encode", "video", 0.16),
    ("cross_modal_align", "mixed", 0.0061),
    ("llm_prefill", "mixed", 0.083),
    ("llm_decode", "mixed", 0.29),
    ("detokenize", "text", 0.0011),
)


@dataclass
class Script:
    """What the agent has to say; tests change it while it runs."""

    count: int = 8
    mode: str = "fault"  # fault | calm | empty | young
    frozen_at: float | None = None  # the tick stands still from here on
    broken: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # path -> status, raw body
    delay_seconds: float = 0.0
    growth: float = 1.0
    rename: str | None = None  # what the first endpoint calls itself
    in_flight: int = 60  # requests
    evil_id: str | None = None  # what requests call themselves
    requests: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    def now(self) -> float:
        return self.frozen_at if self.frozen_at is not None else time.time()

    def body(self, path: str) -> dict[str, Any]:
        return self._joined(getattr(self, path.strip("/").replace("/", "_").split("?")[0])(self.now()))

    def _joined(self, document: dict[str, Any]) -> dict[str, Any]:
        now = self.now()
        at_ns = int(now * 1e9)
        common = {
            "at": stamp(at_ns),
            "at_ns": at_ns,
            "host": "gpu-host-01",
            "stale": False,
            "tick": int(now * 10),
        }
        return {**common, **document}

    def detail(self, path: str, query: dict[str, list[str]]) -> dict[str, Any] | None:
        """A document that has parameters; None for a path, or an item, that is not there."""
        parts = [*path.strip("/").split("/"), ""]
        parts = parts[: parts.index("")]
        if parts == ["v1", "requests"]:
            after, limit = (
                int(query.get(name, [often])[0]) for name, often in (("after", "0"), ("limit", "2000"))
            )
            return self._joined(fake_requests.listing(self.began, self.now(), after, limit, self.evil_id))
        if parts[:2] == ["v1", "requests"] and len(parts) == 3:
            number = parts[2].removeprefix("req-")
            known = number.isdecimal()
            return (
                self._joined(fake_requests.waterfall(int(number), self.began, self.evil_id))
                if known
                else None
            )
        if len(parts) > 1 and parts[1] in ("snapshot", "snapshots"):
            found = self._in_flight(parts[1:])
            return None if found is None else self._joined(found)
        return None

    def _in_flight(self, parts: list[str]) -> dict[str, Any] | None:
        """Snapshots of now, the list of stored ones, one of them, and their plans."""
        now_ns, tick = int(self.now() * 1e9), int(self.now())
        live = fake_snapshots.snapshot(now_ns, self.in_flight, self.began, shift=8 + tick % 1000)
        if parts == ["snapshot"]:
            return live
        if parts == ["snapshot", "plan"]:
            return fake_snapshots.plan(live, None)
        if parts == ["snapshots"]:
            return {"snapshots": []} if self.mode == "empty" else fake_snapshots.stored_list(self.began)
        found = fake_snapshots.stored(parts[1], self.began)
        if found is None or len(parts) == 2:
            return found
        return fake_snapshots.plan(found["snapshot"], parts[1]) if parts[2:] == ["plan"] else None

    def v1_heat(self, now: float) -> dict[str, Any]:
        basis = {
            "heat": "requests/s x weight",
            "load": "mean of CPU and memory load of the instance",
            "heat_weight": "requests",
        }
        if self.mode == "empty":
            return {"basis": basis, "points": []}
        return {"basis": basis, "points": [self._point(n, now - self.began) for n in range(self.count)]}

    def _point(self, n: int, t: float) -> dict[str, Any]:
        endpoint, modality, rate, weight, p95 = ENDPOINTS[n % len(ENDPOINTS)]
        group = n // (len(ENDPOINTS) * len(INSTANCES))
        instance, load = INSTANCES[n // len(ENDPOINTS) % len(INSTANCES)]
        if group:
            endpoint, instance = f"{endpoint}/{group}", f"i-{2 * group + (instance == 'i-1')}"
        if n == 0 and self.rename:
            endpoint = self.rename
        spread = ((n * 2654435761) % 997) / 997
        wave = math.sin(t / 7 + n)
        rate *= (
            (0.75 if instance == "i-1" else 1.0)
            * (1 + 0.06 * wave)
            * self.growth
            * (0.2 + spread if group else 1)
        )
        p95 *= 1 + 0.05 * math.cos(t / 5 + n) + (0.6 * spread if group else 0)
        if self.mode == "fault" and modality == "image" and instance == "i-0":
            p95 *= 4.1
        cpu = min(1.0, load + 0.05 * wave + (0.5 * spread - 0.2 if group else 0) + 0.02 * n % 0.1)
        memory = min(1.0, load * 0.8 + 0.06 * (n % 4))
        young = self.mode == "young" or (modality == "video" and instance == "i-1" and self.mode == "fault")
        return {
            "endpoint": endpoint,
            "instance": instance,
            "modality": modality,
            "heat": rate * weight,
            "request_rate": rate,
            "latency_p95_seconds": None if young else p95,
            "requests": 11 if young else int(rate * 60),
            "token_equivalent_latency_seconds": 0.0004 + 0.0001 * spread,
            "slo_penalty_seconds": None if young else 0.3 * max(0.0, p95 - 0.5),
            "load_ratio": (cpu + memory) / 2,
            "cpu_load_ratio": cpu,
            "memory_load_ratio": memory,
            "deviation": 0.3 * wave,
        }

    def v1_stages(self, now: float) -> dict[str, Any]:
        if self.mode == "empty":
            return {"unattributed_ratio": None, "stages": []}
        t = now - self.began
        return {
            "unattributed_ratio": 0.013 + 0.002 * math.sin(t),
            "stages": [
                self._stage(n, stage, modality, p50, t) for n, (stage, modality, p50) in enumerate(STAGES)
            ],
        }

    def _stage(self, n: int, stage: str, modality: str, p50: float, t: float) -> dict[str, Any]:
        slow = 9.6 if self.mode == "fault" and stage == "vision_encode" else 1.0
        few = stage == "media_decode" and modality == "video"
        inflight = int(2 + 1.5 * math.sin(t + n)) + (9 if slow > 1 else 0)
        return {
            "stage": stage,
            "modality": modality,
            "requests": int((t + 60) * (2 + n % 5)),
            "inflight": inflight,
            "oldest_age_seconds": p50 * slow * 1.7 if inflight else None,
            "rate": 2.0 + n % 5 + 0.3 * math.sin(t),
            "p50_seconds": None if few else p50 * slow,
            "p95_seconds": None if few else p50 * slow * 2.1,
            "p99_seconds": None if few else p50 * slow * 2.9,
            "launch_rate": 900.0,
            "graph_launch_rate": 40.0,
            "graph_kernel_rate": None if few else 12_000.0,
            "cpu_wait_threads": 0.02 * slow,
            "cpu_preempted_threads": 0.005,
            "cpu_wait_p95_seconds": None if few else 0.0002 * slow,
            "call_sleep_threads": 0.6,
            "reclaim_threads": 0.0,
            "page_fault_rate": None,
            "windows_open": [],
        }

    def v1_latency(self, now: float) -> dict[str, Any]:
        return fake_latency.latency(self.mode == "empty")

    def v1_components(self, now: float) -> dict[str, Any]:
        return fake_latency.components(self.mode == "empty")

    def v1_classes(self, now: float) -> dict[str, Any]:
        return fake_latency.classes(self.mode == "empty")

    def v1_windows(self, now: float) -> dict[str, Any]:
        opened, began = int((self.began + 0.4 - 12) * 1e9), int((self.began - 340) * 1e9)
        closed = [
            _window(
                "w-0003",
                "gpu_xid",
                "critical",
                began,
                began + 31_400_000_000,
                {"gpu_uuid": "GPU-5f1c2d3e-90ab-4cde-8f01-23456789abcd", "pci_bus_id": "0000:3b:00.0"},
                "XID 79 on GPU-5f1c2d3e: the GPU has fallen off the bus.",
                0.99,
            ),
            _window(
                "w-0002",
                "alive_but_hung",
                "critical",
                began - 400_000_000_000,
                began - 371_000_000_000,
                {"instance": "i-1", "pid": 4211, "stage": "llm_decode"},
                "i-1 answers /health, but no request moved for 11 s; its oldest sits in cuEventSynchronize.",
                0.91,
            ),
        ]
        stall = _window(
            "w-0004",
            "stage_latency",
            "critical",
            opened,
            None,
            {"stage": "vision_encode", "modality": "image", "instance": "i-0"},
            "vision_encode of image on i-0 takes 9.6 × its baseline; 11 requests wait in it, launches go on.",
            0.87,
        )
        return {
            "windows": closed
            if self.mode in ("calm", "young")
            else []
            if self.mode == "empty"
            else [stall, *closed]
        }

    def v1_breakers(self, now: float) -> dict[str, Any]:
        if self.mode == "empty":
            return {"breakers": []}
        since = int((self.began - 600) * 1e9)
        rows = [
            _breaker("stage:vision_encode:image", "closed", since, ""),
            _breaker("instance:i-0", "closed", since, ""),
            _breaker(
                "instance:i-1",
                "half_open",
                since + 520_000_000_000,
                "cool-down over; 3 of 5 recovery checks passed",
            ),
            _breaker("gpu:GPU-5f1c2d3e-90ab-4cde-8f01-23456789abcd", "closed", since, "", enforced=True),
            _breaker("host", "metrics_only", since, "", override=_override("metrics_only", since)),
        ]
        if self.mode == "fault":
            rows[0] = _breaker(
                "stage:vision_encode:image",
                "open",
                int((self.began - 10) * 1e9),
                "window w-0004: stage latency, score 9.6",
            )
        return {"breakers": rows}

    def v1_coverage(self, now: float) -> dict[str, Any]:
        counted = 0 if self.mode == "empty" else int((now - self.began + 300) * 41_233)
        return {
            "loader": "libbpf",
            "rung": "S",
            "epoch_ns": 0,
            "attached": 74,
            "missed": [],
            "processes": []
            if self.mode == "empty"
            else [{"pid": pid, "name": f"engine-{pid}", "libraries": []} for pid in (4210, 4211)],
            "calls": {"counted": counted, "open": 3, "lost": 0, "by_call": {}},
            "custom": [],
            "driver": _no_driver_events(counted),
            "losses": {},
        }


def _no_driver_events(launches: int) -> dict[str, Any]:
    """A host whose driver has no tracepoints: NVIDIA's."""
    lists = (
        "timelines",
        "fence_waits",
        "fence_wait_seconds_total",
        "memory",
        "oom_kills_total",
        "oom_kills_gpu_total",
        "oom_kills",
        "ioctls",
        "slow_ioctls",
    )
    submit = {"through": "cuLaunch*", "is_derived": True, "count": launches, "reason": "no tracepoint"}
    return {
        "state": "watching",
        "reason": None,
        "remedy": None,
        "queue_submit": submit,
        "events": [],
        "rings": {},
        **dict.fromkeys(lists),
        "lost": 0,
    }


def _window(
    identity: str,
    kind: str,
    severity: str,
    opened: int,
    closed: int | None,
    entity: dict[str, Any],
    summary: str,
    sure: float,
) -> dict[str, Any]:
    return {
        "id": identity,
        "kind": kind,
        "severity": severity,
        "state": "open" if closed is None else "closed",
        "opened_at": stamp(opened),
        "opened_at_ns": opened,
        "closed_at": None if closed is None else stamp(closed),
        "closed_at_ns": closed,
        "figures_at": stamp(closed or opened),
        "figures_at_ns": closed or opened,
        "peak_at": stamp(opened),
        "peak_at_ns": opened,
        "entity": entity,
        "score": 9.6,
        "cause": {
            "kind": kind,
            "summary": summary,
            "confidence": sure,
            "candidates": [
                {"kind": kind, "confidence": sure, "why": "open stage age and finished latency agree"},
                {"kind": "gpu_contention", "confidence": 1 - sure, "why": "another stage shares the stream"},
            ],
        },
        "evidence": [
            {
                "column": "stage_open_age_seconds",
                "value": 0.78,
                "limit": 0.19,
                "unit": "seconds",
                "since_ns": opened,
                "note": "k of n: 4 of 4",
            },
            {
                "column": "stage_p95_seconds",
                "value": 0.97,
                "limit": 0.21,
                "unit": "seconds",
                "since_ns": opened,
                "note": "",
            },
        ],
    }


def _breaker(
    name: str,
    state: str,
    since: int,
    reason: str,
    *,
    enforced: bool = False,
    override: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "scope": {},
        "state": state,
        "enforced": enforced,
        "override": override,
        "since": stamp(since),
        "since_ns": since,
        "stale": False,
        "reason": reason,
        "transitions": [],
    }


def _override(action: str, since: int) -> dict[str, Any]:
    until = since + 3_600_000_000_000
    return {
        "action": action,
        "actor": "uid 0",
        "reason": "maintenance",
        "since": stamp(since),
        "since_ns": since,
        "until": stamp(until),
        "until_ns": until,
    }


class FakeAgent:
    """Serves a Script on a loopback port; `with FakeAgent() as agent:`, `agent.address`."""

    def __init__(self, script: Script | None = None, port: int = 0) -> None:
        self.script = script or Script()
        self._port = port
        self._server: ThreadingHTTPServer | None = None
        self._connections: list[socket.socket] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen (again), on the same port as before."""
        script = self.script

        connections = self._connections

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with contextlib.suppress(ConnectionResetError):  # a killed explorer's
                    super().handle()

            def setup(self) -> None:
                super().setup()
                connections.append(self.connection)

            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                script.requests.append(path)
                if script.delay_seconds:
                    time.sleep(script.delay_seconds)
                if path in script.broken:
                    status, raw = script.broken[path]
                elif path in PATHS:
                    status, raw = 200, json.dumps(script.body(path)).encode()
                elif (found := script.detail(unquote(path), parse_qs(query))) is not None:
                    status, raw = 200, json.dumps(found).encode()
                else:
                    status, raw = 404, b'{"error":{"code":"not_found","message":"no such path","remedy":""}}'
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Close the port and all that came through it: connections are refused until the next start."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._connections.clear()
            self._server = None

    def __enter__(self) -> FakeAgent:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, default=9178)
    options.add_argument("--count", type=int, default=8)
    options.add_argument("--mode", default="fault")
    chosen = options.parse_args()
    with FakeAgent(Script(count=chosen.count, mode=chosen.mode), chosen.port) as served:
        print(served.address, flush=True)
        threading.Event().wait()
