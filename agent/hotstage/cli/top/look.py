# SPDX-License-Identifier: Apache-2.0
"""One look at a running agent, by routes that others read, too; and what two of them make together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotstage.api.top_types import Top, TopHost, TopLoss, TopProcess, TopStage
from hotstage.cli.client import AgentClient
from hotstage.cli.reading import understood
from hotstage.cli.stages import place_on_way
from hotstage.probes.losses import MEANINGS, UNKNOWN
from hotstage.probes.memory_sample import FOR_GPUS

Document = dict[str, Any]
Values = Mapping[str, float]

_OPEN_CALLS = ("sync_open_seconds", "copy_open_seconds", "alloc_open_seconds")
_COLUMNS = (
    "launch_rate",
    "call_rate",
    "call_error_rate",
    "sync_wait_threads",
    "copy_wait_threads",
    "alloc_wait_threads",
    "longest_call_seconds",
    *_OPEN_CALLS,
    "cpu_wait_threads",
    "open_requests",
    "inflight",
    "unattributed_ratio",
    "stage_rate",
    "oldest_age_seconds",
    "latency_p95_seconds",
    "memory_live_bytes",
)
_IN_FLIGHT = frozenset(
    {"open_requests", "inflight", "oldest_age_seconds", "longest_call_seconds", *_OPEN_CALLS}
)
_FRAMES = f"/v1/frames?seconds=2&columns={','.join(_COLUMNS)}"
_WINDOWS = "/v1/windows?state=open&limit=100"
_OF_GPUS = frozenset(kind.name.lower() for kind in FOR_GPUS)
_TROUBLES = ("off", "denied", "failed", "limited")
"""States of a library that are told before `attached`, the gravest first."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the agent said at `at_seconds` of the monotonic clock; `frame` is None before its first one."""

    at_seconds: float
    coverage: Document
    memory: Document
    windows: list[Document]
    agent: Document
    frame: Document | None

    @classmethod
    def at(cls, client: AgentClient) -> Look:
        """Ask now. Raises PeerError, or HotstageError with the agent's own message."""
        with understood():
            frames = client.get(_FRAMES)["frames"]
            return cls(
                coverage=client.get("/v1/coverage"),
                memory=client.get("/v1/memory"),
                windows=client.get(_WINDOWS)["windows"],
                agent=client.get("/healthz")["checks"]["agent"],
                frame=frames[-1] if frames else None,
                at_seconds=time.monotonic(),
            )


def top_of(before: Look | None, now: Look) -> Top:
    """The figures of `now`, and what changed since `before`. Raises PeerError for a strange answer."""
    with understood():
        if before is not None and before.coverage["epoch_ns"] != now.coverage["epoch_ns"]:
            before = None  # the agent was restarted: its counters began anew
        seconds = None if before is None else now.at_seconds - before.at_seconds
        frame = _trusted(now)
        return Top(
            at=frame["at"],
            at_ns=frame["at_ns"],
            interval_seconds=seconds,
            host=_host(before, now, frame),
            processes=_processes(now, frame),
            stages=_stages(frame, now.windows),
            losses=None if before is None else _losses(before.coverage["losses"], now.coverage["losses"]),
        )


def _trusted(now: Look) -> Document:
    """The frame without what its sources no longer know: all that probes tell once they are off, though
    means of 10 s go on for as long, and requests in flight where nobody hears of them.
    """
    frame = now.frame or {"at": None, "at_ns": None, "entities": [], "stale": []}
    if now.coverage.get("off"):
        return {**frame, "entities": [{**each, "values": {}} for each in frame["entities"]]}
    if "requests" not in frame["stale"]:
        return frame
    return {
        **frame,
        "entities": [
            {
                **each,
                "values": {name: told for name, told in each["values"].items() if name not in _IN_FLIGHT},
            }
            for each in frame["entities"]
        ],
    }


def _host(before: Look | None, now: Look, frame: Document) -> TopHost:
    coverage, governor = now.coverage, now.coverage.get("governor")
    values: Values = next((each["values"] for each in frame["entities"] if each["kind"] == "host"), {})
    return TopHost(
        host=coverage["host"],
        loader=coverage["loader"],
        rung=coverage["rung"],
        probes="off" if coverage.get("off") else "on",
        probes_reason=coverage.get("off"),
        probes_off_since=coverage.get("off_since") if coverage.get("off") else None,
        agent_cpu_ratio=None if before is None else _cpu_ratio(before, now),
        agent_rss_bytes=now.agent.get("rss_bytes"),
        governor=None if governor is None else "on" if governor["enabled"] else "off",
        governor_limit_ratio=None if governor is None else governor["limit_ratio"],
        windows_open=[each["kind"] for each in now.windows],
        processes_watched=len(coverage["processes"]),
        requests_in_flight=_whole(values, "inflight"),
        launches_per_second=values.get("launch_rate"),
        calls_per_second=values.get("call_rate"),
        errors_per_second=values.get("call_error_rate"),
        unattributed_ratio=values.get("unattributed_ratio"),
        stale=list(frame["stale"]),
    )


def _cpu_ratio(before: Look, now: Look) -> float | None:
    seconds, used = now.at_seconds - before.at_seconds, now.agent.get("cpu_seconds")
    if used is None or before.agent.get("cpu_seconds") is None or seconds <= 0:
        return None
    return float(used - before.agent["cpu_seconds"]) / seconds


def _processes(now: Look, frame: Document) -> list[TopProcess]:
    """All that coverage, the frame or the ledger of memory names, by pid."""
    covered = {each["pid"]: each for each in now.coverage["processes"]}
    values = {each["pid"]: each["values"] for each in frame["entities"] if each["kind"] == "process"}
    governed = {
        each["pid"]: each for each in (now.coverage.get("governor") or {"processes": ()})["processes"]
    }
    if now.coverage.get("off"):
        governed = {}
        covered = {
            pid: {**each, "libraries": [{**library, "state": "off"} for library in each["libraries"]]}
            for pid, each in covered.items()
        }
    memory: dict[int, list[Document]] = {}
    # Without probes nobody hears of what is allocated and freed.
    for part in () if now.coverage.get("off") else now.memory["processes"]:
        memory.setdefault(part["pid"], []).append(part)
    return [
        _process(pid, covered.get(pid), values.get(pid, {}), governed.get(pid, {}), memory.get(pid, []))
        for pid in sorted({*covered, *values, *memory})
    ]


def _process(
    pid: int, covered: Document | None, values: Values, governed: Document, memory: list[Document]
) -> TopProcess:
    return TopProcess(
        pid=pid,
        name=covered["name"] if covered else next((part["name"] or None for part in memory), None),
        launches_per_second=values.get("launch_rate"),
        calls_per_second=values.get("call_rate"),
        sync_wait_threads=values.get("sync_wait_threads"),
        copy_wait_threads=values.get("copy_wait_threads"),
        alloc_wait_threads=values.get("alloc_wait_threads"),
        sync_open_seconds=values.get("sync_open_seconds"),
        copy_open_seconds=values.get("copy_open_seconds"),
        alloc_open_seconds=values.get("alloc_open_seconds"),
        errors_per_second=values.get("call_error_rate"),
        longest_call_seconds=values.get("longest_call_seconds"),
        gpu_memory_bytes=sum(map(_held, memory)) if memory else None,
        gpu_memory_is_complete=all(part["is_complete"] for part in memory) if memory else None,
        cpu_wait_threads=values.get("cpu_wait_threads"),
        requests_in_flight=_whole(values, "open_requests"),
        unattributed_ratio=values.get("unattributed_ratio"),
        probe_cost_ratio=governed.get("cost_ratio"),
        probe_level=governed.get("level"),
        state=None if covered is None else _state(lib["state"] for lib in covered["libraries"]),
    )


def _held(memory: Document) -> int:
    if memory["live_bytes"] is not None:
        return int(memory["live_bytes"])
    return sum(each["live_bytes"] or 0 for each in memory["kinds"] if each["kind"] in _OF_GPUS)


def _state(states: Iterable[str]) -> str:
    found = set(states)
    return next((state for state in _TROUBLES if state in found), "attached")


def _stages(frame: Document, windows: Sequence[Document]) -> list[TopStage]:
    """In the order of a request's way, those with any figure."""
    rows = (each for each in frame["entities"] if each["kind"] == "stage" and any(each["values"].values()))
    return [
        _stage(each["stage"], each["modality"], each["values"], windows)
        for each in sorted(rows, key=place_on_way)
    ]


def _stage(stage: str, modality: str, values: Values, windows: Sequence[Document]) -> TopStage:
    return TopStage(
        stage=stage,
        modality=modality,
        runs_per_second=values.get("stage_rate"),
        runs_in_flight=_whole(values, "inflight"),
        oldest_seconds=values.get("oldest_age_seconds"),
        p95_seconds=values.get("latency_p95_seconds"),
        launches_per_second=values.get("launch_rate"),
        calls_per_second=values.get("call_rate"),
        sync_wait_threads=values.get("sync_wait_threads"),
        copy_wait_threads=values.get("copy_wait_threads"),
        alloc_wait_threads=values.get("alloc_wait_threads"),
        sync_open_seconds=values.get("sync_open_seconds"),
        copy_open_seconds=values.get("copy_open_seconds"),
        alloc_open_seconds=values.get("alloc_open_seconds"),
        gpu_memory_bytes=_whole(values, "memory_live_bytes"),
        cpu_wait_threads=values.get("cpu_wait_threads"),
        windows_open=[
            each["kind"]
            for each in windows
            if (each["entity"].get("stage"), each["entity"].get("modality", modality)) == (stage, modality)
        ],
    )


def _whole(values: Values, name: str) -> int | None:
    return int(values[name]) if name in values else None


def _losses(before: Mapping[str, int], now: Mapping[str, int]) -> list[TopLoss]:
    grew = {name: count - before.get(name, 0) for name, count in now.items()}
    told = [(name, count, MEANINGS.get(name, UNKNOWN)) for name, count in grew.items() if count > 0]
    return [TopLoss(name, count, each.means, each.falsifies, each.helps) for name, count, each in told]
