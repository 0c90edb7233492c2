# SPDX-License-Identifier: Apache-2.0
"""`hotstage stacks`: from where slow and failing calls were made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import click

from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import clock_time, print_json, say, seconds
from hotstage.clock import rfc3339


@click.command()
@reading
def stacks(as_json: bool, agent_url: str | None) -> None:
    """User stacks of slow and failing calls, newest first; the innermost frame made the call.

    Only calls that have returned are told; a call that hangs is under `in call` of `hotstage top`. `?` stands
    for callers that lie in no file: code made at run time, or none, where code keeps no frame pointers.
    """
    client = agent_client(agent_url)
    body = client.get("/v1/stacks")
    if as_json:
        print_json(body)
        return
    if not body["is_taken"]:
        say("no stacks are taken: [probes] stacks is off")
    elif not body["stacks"]:
        say("no slow or failing call was seen yet")
    if not body["stacks"]:
        return
    offset = client.get("/v1/coverage").get("wall_offset_ns")
    for stack in body["stacks"]:
        how = f"failed with {stack['result']}" if stack["kind"] == "failed" else "was slow"
        longest = seconds(stack["longest_seconds"])
        who = f"{stack['call']} of process {stack['pid']}, thread {stack['tid']}, {in_stage(stack)}"
        last = "" if offset is None else f", last at {clock_time(rfc3339(stack['last_ns'] + offset))}"
        say(f"{who} {how}, told {stack['told']} times, longest {longest}{last}")
        for line in places(stack["frames"]):
            say(f"    {line}")
    say("only calls that have returned are told; what hangs is under `in call` of `hotstage top`")


def in_stage(stack: dict[str, Any]) -> str:
    """`in vision_encode image`."""
    return f"in {stack['stage']} {stack['modality']}" if stack["stage"] else "in no stage"


def places(frames: Sequence[dict[str, Any]]) -> list[str]:
    """Who made the call as far as it is known; callers in no file are one `?` together."""
    told = [place(frame) for frame in frames[:1]]
    for frame in frames[1:]:
        line = "?" if frame["library"] is None else place(frame)
        if line != "?" or told[-1] != "?":
            told.append(line)
    return told


def place(frame: dict[str, Any]) -> str:
    """`libengine.so+0x1c2d (wait_for_step+0x12)`; the bare address where its file is not known."""
    if frame["library"] is None:
        return f"{frame['address']:#x}"
    where = f"{PurePath(frame['library']).name}+{frame['offset']:#x}"
    if frame["symbol"] is None:
        return f"{where} (build {frame['build_id']})" if frame["build_id"] else where
    return f"{where} ({frame['symbol']}+{frame['symbol_offset']:#x})"
