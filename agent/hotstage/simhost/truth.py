# SPDX-License-Identifier: Apache-2.0
"""What really happened: calls made, requests, stages, faults, kept apart from everything that watches.

The calls are counted by the stub libcuda's own bodies into a mapped file a process; the rest by the servers.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from hotstage.simhost.faults import Fault
from hotstage.stages.stage import Modality, Stage

_HEADER = struct.Struct("<8sIIQQ32x")
_ENTRY = struct.Struct("<48sQ8x")
_MAGIC = b"HSTRUTH2"

LAUNCHES = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch")
"""As `enum truth_launch`; a `_ptsz` twin is counted as the same."""
_DEVICES, _STAGES, _MODALITIES = 8, 65, 6
_TABLE = len(LAUNCHES) * _DEVICES * _STAGES * _MODALITIES


@dataclass(frozen=True, slots=True)
class StageSpan:
    """One stage of one request, as its worker saw it; CLOCK_MONOTONIC."""

    request: str
    stage: str
    modality: str
    instance: str
    began_ns: int
    ended_ns: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of one process by one function on one device (an ordinal of that process), for one stage.

    `stage` and `modality` are None where the thread worked for none.
    """

    pid: int
    function: str
    device: int
    stage: str | None
    modality: str | None
    made: int


def calls_made(path: Path) -> dict[str, int]:
    """Calls by function name that the process of this file has made so far; never called ones are absent.

    Raises ValueError if the file is not one of truth.
    """
    data, _pid, count = _read(path)
    made = {}
    for name, calls in _ENTRY.iter_unpack(data[_HEADER.size : _HEADER.size + count * _ENTRY.size]):
        if calls:
            made[name.rstrip(b"\0").decode()] = calls
    return made


def launches_made(path: Path) -> list[Launches]:
    """Launches of the process of this file by function, device, stage and modality, those that were made.

    Raises ValueError as `calls_made`.
    """
    data, pid, count = _read(path)
    table = struct.unpack_from(f"<{_TABLE}Q", data, _HEADER.size + count * _ENTRY.size)
    places = product(LAUNCHES, range(_DEVICES), range(_STAGES), range(_MODALITIES))
    return [
        Launches(
            pid,
            function,
            device,
            Stage(stage).name if stage < len(Stage) else None,
            Modality(modality).name if stage < len(Stage) else None,
            made,
        )
        for (function, device, stage, modality), made in zip(places, table, strict=True)
        if made
    ]


def kernels_run(path: Path) -> int:
    """Kernels that the process of this file has run so far: launched ones that were not captured, and those
    of graphs.

    Raises ValueError as `calls_made`.
    """
    data, _pid, _count = _read(path)
    kernels: int = _HEADER.unpack_from(data)[-1]
    return kernels


def _read(path: Path) -> tuple[bytes, int, int]:
    """The file, the process it is of, and how many functions it counts."""
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        raise ValueError(f"{path} is too short for a file of truth")
    magic, pid, count, _started_ns, _kernels = _HEADER.unpack_from(data)
    if magic != _MAGIC or len(data) < _HEADER.size + count * _ENTRY.size + 8 * _TABLE:
        raise ValueError(f"{path} is no file of truth")
    return data, pid, count


def fault_record(
    fault: Fault, *, start_ns: int, traffic_end_ns: int, entities: dict[str, dict[str, str]]
) -> dict[str, Any] | None:
    """The fault as the truth file says it, None if it had not begun when traffic ended.

    `entities` is by instance: what NVML calls its GPU. `start_ns` is the start of traffic.
    """
    began_ns = start_ns + int(fault.start_seconds * 1e9)
    if began_ns >= traffic_end_ns:
        return None
    return {
        "name": fault.name,
        "kind": fault.kind,
        "stage": fault.stage,
        "modality": fault.modality,
        "entity": _entity(fault, entities),
        "start_ns": began_ns,
        "end_ns": min(start_ns + int(fault.end_seconds * 1e9), traffic_end_ns),
        "severity": fault.severity,
        "shape": fault.shape,
    }


def _entity(fault: Fault, entities: dict[str, dict[str, str]]) -> dict[str, str]:
    if fault.kind == "gpu_xid":
        gpu = entities[fault.instance or "i-0"]
        return {"gpu_uuid": gpu["gpu_uuid"], "pci_bus_id": gpu["pci_bus_id"]}
    named = {"stage": fault.stage, "modality": fault.modality, "instance": fault.instance}
    return {key: value for key, value in named.items() if value is not None}


def write(
    path: Path,
    *,
    seed: int,
    calls_by_pid: dict[int, dict[str, int]],
    launches: Sequence[Launches] = (),
    kernels: int | None = None,
    servers: Sequence[dict[str, Any]],
    faults: Sequence[dict[str, Any]],
) -> None:
    """The truth file of a run. `servers` are the instances' own reports (`requests`, `stages`, `dropped`,
    `scenes`).
    """
    calls: Counter[str] = Counter()
    for made in calls_by_pid.values():
        calls.update(made)
    document = {
        "seed": seed,
        "calls": dict(sorted(calls.items())),
        "calls_by_pid": {str(pid): made for pid, made in calls_by_pid.items()},
        "launches": [asdict(row) for row in launches],
        "kernels": kernels,
        "requests": {
            key: sum(server["requests"][key] for server in servers)
            for key in ("started", "finished", "open", "refused")
        },
        "stages": [span for server in servers for span in server["stages"]],
        "stages_dropped": sum(server["dropped"] for server in servers),
        "scenes": [happened for server in servers for happened in server["scenes"]],
        "faults": list(faults),
    }
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(document))
    scratch.rename(path)
