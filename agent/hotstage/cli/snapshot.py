# SPDX-License-Identifier: Apache-2.0
"""`hotstage snapshot`: requests in flight, their finished and open stages, the call that each sits in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from hotstage.cli.reading import agent_client, reading
from hotstage.cli.snapshot_source import NOW, fetch, find, parse, save
from hotstage.cli.terminal import clock_time, print_json, print_table, say, seconds
from hotstage.errors import HotstageError
from hotstage.stages.snapshot_diff import Moved, Passing, SnapshotDiff, Still, diff, sits_in
from hotstage.stages.snapshot_types import Device, OpenStage, RequestState, Snapshot, ThreadState

BETWEEN_SECONDS = 1.0
"""Between the two looks of `diff now now`."""
_LEGEND = "?: the thread does not name the request; it is in the request's stage and process"
_GPU_LEGEND = (
    "GPU: NVML's index and the beginning of the UUID; CUDA ordinal: the number that its process gives it, "
    "where nobody saw that process ask for the UUID"
)
_UUID_CELLS = len("GPU-1a2b3c4d")

_window = click.option(
    "--window", metavar="ID", help="As it was when this window opened; or a snapshot's id."
)


@click.group(invoke_without_command=True)
@_window
@click.option("--save", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write it as JSON.")
@reading
@click.pass_context
def snapshot(
    ctx: click.Context, window: str | None, file: Path | None, as_json: bool, agent_url: str | None
) -> None:
    """What every request in flight is doing right now."""
    if ctx.invoked_subcommand is not None:
        return
    body = fetch(agent_client(agent_url), window or NOW)
    if file is not None:
        save(body, file)
    if as_json:
        print_json(body)
    elif file is not None:
        say(f"{file}: {parse(body, str(file)).requests_total} requests")
    else:
        _show(parse(body, window or NOW))


@snapshot.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@reading
def list_(limit: int, as_json: bool, agent_url: str | None) -> None:
    """Snapshots that were stored when windows and breakers opened, newest first."""
    body = agent_client(agent_url).get(f"/v1/snapshots?limit={limit}")
    if as_json:
        print_json(body)
        return
    print_table(
        ("snapshot", "taken", "requests", "threads", "because of"),
        [
            (row["id"], clock_time(row["taken_at"]), row["requests"], row["threads"], _causes(row["causes"]))
            for row in body["snapshots"]
        ],
        empty="no snapshot is stored: one is taken when a window or breaker opens",
    )


@snapshot.command("diff")
@click.argument("before")
@click.argument("after")
@reading
def diff_(before: str, after: str, as_json: bool, agent_url: str | None) -> None:
    """Which requests came, went, moved on or stand still between two snapshots.

    BEFORE and AFTER are `now`, files that --save wrote, or ids of stored snapshots or of windows; `now now`
    looks twice, a second apart. Still is what gave no sign for longer than lies between the two.
    """
    client = agent_client(agent_url)
    earlier = find(client, before)
    if before == after == NOW:
        time.sleep(BETWEEN_SECONDS)
    later = find(client, after)
    if earlier.taken_at_ns == later.taken_at_ns:
        raise HotstageError(
            f"{before} and {after} are of the same moment: nothing can have moved",
            remedy="name two moments; `hotstage snapshot diff now now` looks twice, a second apart",
        )
    if earlier.taken_at_ns > later.taken_at_ns:
        raise HotstageError(
            f"{before} was taken after {after}", remedy=f"`hotstage snapshot diff {after} {before}`"
        )
    found = diff(earlier, later, (before, after))
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        _show_diff(found)


@snapshot.command()
@_window
@reading
def plan(window: str | None, as_json: bool, agent_url: str | None) -> None:
    """From where each request can go on, by the policy in [recovery]. Advice: nothing is done."""
    path = f"/v1/snapshots/{quote(window, safe='')}/plan" if window else "/v1/snapshot/plan"
    body = agent_client(agent_url).get(path)
    if as_json:
        print_json(body)
        return
    survives = [name for name, stays in body["policy"].items() if stays]
    say(f"results that survive, as declared: {' '.join(survives) or 'none'}")
    print_table(
        ("request", "instance", "last finished", "open", "decision", "from", "again"),
        [
            (
                row["id"],
                row["instance"],
                row["last_finished_stage"],
                " ".join(row["open_stages"]) or None,
                row["decision"],
                row["resume_at"],
                " ".join(row["redo"]) or None,
            )
            for row in body["requests"]
        ],
        empty="no request was in flight",
    )


def _show(taken: Snapshot) -> None:
    print_table(
        ("request", "endpoint", "instance", "GPU", "open stage", "since", "sits in", "for", "finished"),
        [_request(row) for row in taken.requests],
        empty="no request is in flight",
    )
    if any(sits_in(row)[1] == "stage" for row in taken.requests):
        say(_LEGEND)
    if any(row.devices for row in taken.requests):
        say(_GPU_LEGEND)
    print_table(
        ("pid", "thread", "call", "since", "stage", "modality"),
        [
            (each.pid, each.tid, each.call, seconds(each.age_seconds), each.stage, each.modality)
            for each in taken.threads
            if each.call is not None
        ],
        empty="no thread is inside a CUDA call",
    )
    if taken.unclean:
        say(f"{taken.unclean} entries came or went during the read")
    for name, count in taken.losses.items():
        say(f"{name}: {count} since the probes were loaded; something may be missing here")


def _request(row: RequestState) -> tuple[Any, ...]:
    thread, source = sits_in(row)
    return (
        row.id,
        row.endpoint,
        row.instance,
        ", ".join(_gpu(device) for device in row.devices) if row.devices else None,
        _open(row.open),
        _since(row.open),
        _call(thread, source),
        None if thread is None else seconds(thread.age_seconds),
        " ".join(row.stages_done) or None,
    )


def _gpu(device: Device) -> str:
    """`1 GPU-1a2b3c4d`: the GPU as the host knows it; by its process's count only where that is all."""
    if device.uuid is None:
        return f"CUDA ordinal {device.ordinal}"
    index = "" if device.index is None else f"{device.index} "
    return index + device.uuid[:_UUID_CELLS]


def _show_diff(found: SnapshotDiff) -> None:
    say(
        f"{clock_time(found.before.taken_at)} ({found.before.requests} requests) → "
        f"{clock_time(found.after.taken_at)} ({found.after.requests}), {seconds(found.seconds)}: "
        f"{len(found.came)} came, {len(found.went)} went, {len(found.moved)} moved, {len(found.still)} still"
    )
    rows = [
        *(_still(each) for each in found.still),
        *(_moved(each) for each in found.moved),
        *(_passing("came", each) for each in found.came),
        *(_passing("went", each) for each in found.went),
    ]
    print_table(
        ("request", "what", "instance", "open stage", "for", "sits in", "how"),
        rows,
        empty="no request in either",
    )
    if any(each.call_is_of == "stage" for each in found.still):
        say(_LEGEND)


def _still(each: Still) -> tuple[Any, ...]:
    how = f"no sign since {clock_time(each.last_sign_at)}"
    call = _call(each.call, each.call_is_of)
    return each.id, "still", each.instance, _open(each.open), seconds(each.still_seconds), call, how


def _moved(each: Moved) -> tuple[Any, ...]:
    parts = [f"{step.stage}/{step.modality} {step.change.replace('_', ' ')}" for step in each.steps]
    parts += [f"{each.output_tokens} tokens"] if each.output_tokens else []
    parts += [f"{each.launches} launches"] if each.launches else []
    how = ", ".join(parts) or "a mark"
    return each.id, "moved", each.instance, _open(each.open), _since(each.open), None, how


def _passing(what: str, each: Passing) -> tuple[Any, ...]:
    how = f"finished: {' '.join(each.stages_done) or 'nothing'}"
    return each.id, what, each.instance, _open(each.open), _since(each.open), None, how


def _open(stages: list[OpenStage]) -> str | None:
    return ", ".join(f"{part.stage}/{part.modality}" for part in stages) or None


def _since(stages: list[OpenStage]) -> str:
    """The age of the stage that is open longest."""
    return seconds(max((part.age_seconds for part in stages), default=None))


def _call(thread: ThreadState | None, source: str | None) -> str | None:
    """`?`: the thread does not name the request, it is in its stage."""
    return None if thread is None else f"{thread.call}{'?' if source == 'stage' else ''} ({thread.tid})"


def _causes(causes: list[dict[str, Any]]) -> str:
    return ", ".join(f"{cause['kind']} {cause['name']}" for cause in causes)
