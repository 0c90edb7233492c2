# SPDX-License-Identifier: Apache-2.0
"""What an agent with two busy processes and two stages answers to `hotstage top`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GIB = 1 << 30
HOST_VALUES = {
    "launch_rate": 1500.0,
    "call_rate": 4000.0,
    "call_error_rate": 0.0,
    "inflight": 7.0,
    "unattributed_ratio": 0.125,
}


@dataclass
class TopAgent:
    """Each look finds it a second older, having used 0.05 s of CPU; `losses` as they are set."""

    losses: dict[str, int] = field(default_factory=dict)
    off: str | None = None
    epoch_ns: int = 5
    processes: int = 2
    kinds: tuple[str, ...] = ()
    has_frame: bool = True
    is_stuck: bool = False
    """All processes but the first have been in one wait for a minute."""
    stale: list[str] = field(default_factory=list)
    places: dict[str, dict[str, str]] = field(default_factory=dict)
    """Kind of window → what it names."""
    asked: int = 0

    def answer(self, path: str) -> Any:
        route = path.partition("?")[0]
        body = {
            "/v1/coverage": self._coverage,
            "/v1/frames": self._frames,
            "/v1/memory": self._memory,
            "/v1/windows": lambda: {
                "windows": [
                    {"id": str(n), "kind": kind, "entity": self.places.get(kind, {})}
                    for n, kind in enumerate(self.kinds)
                ]
            },
            "/healthz": self._health,
        }.get(route)
        return None if body is None else body()

    def pids(self) -> range:
        return range(100, 100 + self.processes)

    def _health(self) -> Any:
        self.asked += 1
        agent = {"cpu_seconds": 0.05 * self.asked, "rss_bytes": 90 << 20}
        return {"status": "ok", "checks": {"agent": agent}}

    def _coverage(self) -> Any:
        libraries = [{"state": "attached"}]
        governed = [
            {"pid": 100, "level": "counts_only", "cost_ratio": 0.031},
            {"pid": 101, "level": "full", "cost_ratio": None},
        ]
        return {
            "host": "gpu-7",
            "loader": "libbpf",
            "rung": "S",
            "epoch_ns": self.epoch_ns,
            "off": self.off,
            "processes": [
                {"pid": pid, "name": f"server-{pid}", "libraries": libraries} for pid in self.pids()
            ],
            "governor": {"enabled": True, "limit_ratio": 0.02, "processes": governed},
            "losses": dict(self.losses),
        }

    def _frames(self) -> Any:
        if not self.has_frame:
            return {"frames": []}
        entities: list[dict[str, Any]] = [{"kind": "host", "values": HOST_VALUES}]
        for place, pid in enumerate(self.pids()):
            values = {
                "launch_rate": 1000.0 - 100 * place,
                "call_rate": 2000.0,
                "sync_wait_threads": 0.25 + place,
                "call_error_rate": 0.5,
                "open_requests": 3.0,
                "longest_call_seconds": 9.0,
            }
            if place and self.is_stuck:
                values |= {"sync_wait_threads": 0.0, "sync_open_seconds": 61.2, "alloc_open_seconds": 0.02}
            entities.append({"kind": "process", "pid": pid, "values": values})
        for stage, p95 in (("llm_prefill", 0.5), ("vision_encode", 0.25)):
            values = {"stage_rate": 2.0, "inflight": 1.0, "latency_p95_seconds": p95}
            entities.append({"kind": "stage", "stage": stage, "modality": "image", "values": values})
        entities.append({"kind": "stage", "stage": "queue", "modality": "text", "values": {"inflight": 0.0}})
        at = {"at": "2030-01-01T00:00:00Z", "at_ns": 1_893_456_000_000_000_000}
        return {"frames": [{**at, "stale": self.stale, "entities": entities}]}

    def _memory(self) -> Any:
        part = {"name": "x", "is_complete": True, "live_bytes": 2 * GIB, "kinds": []}
        kinds = [{"kind": "device", "live_bytes": GIB}, {"kind": "host", "live_bytes": 5 * GIB}]
        partial = {"name": "x", "is_complete": False, "live_bytes": None, "kinds": kinds}
        return {"processes": [{"pid": 100, **part}, {"pid": 101, **partial}]}
