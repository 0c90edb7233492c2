# SPDX-License-Identifier: Apache-2.0
"""`hotstage memory`: what is allocated on each GPU, by whom, for which stage, and how fragmented it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from hotstage.cli.memory_gap import gap_line
from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import DASH, clock_time, print_json, print_table, say, seconds, size

_SHORT_CELLS = len("GPU-1a2b3c4d")
_LEGEND = (
    "by: what the fragmentation is known from (ledger: the allocations that were seen; --help tells all); "
    "failed though free: allocations of the last minute that failed though as much was free"
)


@click.command()
@reading
def memory(as_json: bool, agent_url: str | None) -> None:
    """Memory of GPUs by process, kind and stage, as the calls asked for it; fragmentation with its basis.

    A process's GPU is told by the beginning of its UUID; the ordinal is the process's own. A line for each
    GPU tells what lies between used (by NVML) and allocated (by calls), as far as it is known.

    \b
    by: what the fragmentation is known from, the best there is:
      torch     what PyTorch's allocator says of itself
      pool      used and reserved of CUDA's memory pools
      ledger    the allocations that were seen, page by page
      inferred  allocations that failed: a lower bound
      unknown   nothing tells it
    failed though free: allocations of the last minute that failed though as much was free.
    """
    body = agent_client(agent_url).get("/v1/memory")
    if as_json:
        print_json(body)
        return
    if body.get("unobserved"):
        since = f" since {clock_time(body['off_since'])}" if body.get("off_since") else ""
        say(f"the probes are off{since}, {body['unobserved']}: what processes have is not known")
    print_table(
        ("gpu", "used", "allocated", "free", "fragmentation", "by", "failed though free"),
        [_gpu(row) for row in body["gpus"]],
        empty="no GPU is known of",
    )
    if body["gpus"]:
        say(_LEGEND)
    names = short_names(row["gpu_uuid"] for row in (*body["gpus"], *body["processes"]))
    if not body.get("unobserved"):
        for row in body["gpus"]:
            say(gap_line(row, body["processes"], names[row["gpu_uuid"]]))
    print_table(
        (
            "pid",
            "process",
            "GPU",
            "ordinal",
            "kind",
            "live",
            "count",
            "highest",
            "oldest",
            "median",
            "failed",
        ),
        [row for process in body["processes"] for row in _kinds(process, names)],
        empty="nothing is allocated by a process that is watched",
    )
    print_table(
        ("stage", "modality", "live", "count", "highest", "oldest"),
        [_stage(row) for row in body["stages"]],
        empty="no memory of a GPU was allocated yet",
    )
    incomplete = {each["pid"]: _why(each) for each in body["processes"] if not each["is_complete"]}
    for pid, why in incomplete.items():
        say(f"process {pid}: {why}; it has no less than is shown")
    if body["ended_processes"]:
        ended = size(body["ended_bytes"])
        say(f"{body['ended_processes']} processes had {ended} when they ended; it was freed with them")


def _gpu(row: dict[str, Any]) -> tuple[Any, ...]:
    figure = row["fragmentation"]
    ratio = DASH if figure["ratio"] is None else f"{figure['ratio']:.1%}"
    if figure["basis"] == "inferred" and figure["ratio"] is not None:
        ratio = f"at least {ratio}"
    if figure.get("false_oom_risk"):
        ratio += ", false OOM risk"
    used, live, free = size(row["used_bytes"]), size(row["live_bytes"]), size(row["free_bytes"])
    return row["gpu_uuid"], used, live, free, ratio, figure["basis"], row["failed_fitting"]


def short_names(uuids: Iterable[str | None]) -> dict[str, str]:
    """UUID → its beginning, as long as no two begin alike: `GPU-1a2b3c4d`."""
    known = {uuid for uuid in uuids if uuid}
    short = {uuid: uuid[:_SHORT_CELLS] for uuid in known}
    return short if len(set(short.values())) == len(known) else {uuid: uuid for uuid in known}


def _kinds(process: dict[str, Any], names: Mapping[str, str]) -> list[tuple[Any, ...]]:
    return [
        (
            process["pid"],
            process["name"] or DASH,
            names.get(process["gpu_uuid"], DASH),
            DASH if process["device"] is None else process["device"],
            row["kind"],
            size(row["live_bytes"]),
            row["live_count"],
            size(row["high_bytes"]),
            seconds(row["oldest_age_seconds"]),
            seconds(row["median_age_seconds"]),
            row["failed_count"],
        )
        for row in process["kinds"]
        if row["allocated_bytes"] or row["live_count"] or row["failed_count"]
    ]


def _stage(row: dict[str, Any]) -> tuple[Any, ...]:
    oldest = seconds(row["oldest_age_seconds"])
    live, highest = size(row["live_bytes"]), size(row["high_bytes"])
    return row["stage"], row["modality"], live, row["live_count"], highest, oldest


def _why(process: dict[str, Any]) -> str:
    if any(row["untracked_bytes"] for row in process["kinds"]):
        return "more was allocated than the ledger has room for"
    if any(row["unsized_count"] for row in process["kinds"] if row["kind"] == "array"):
        return "the format of some of its arrays does not say how large they are"
    return "it allocated before it was watched"
