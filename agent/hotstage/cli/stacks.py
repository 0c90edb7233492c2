# SPDX-License-Identifier: Apache-2.0
"""`hotstage stacks`: from where slow and failing calls were made."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import click

from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import print_json, say, seconds


@click.command()
@reading
def stacks(as_json: bool, agent_url: str | None) -> None:
    """User stacks of slow and failing calls, newest first; the innermost frame made the call."""
    body = agent_client(agent_url).get("/v1/stacks")
    if as_json:
        print_json(body)
        return
    if not body["is_taken"]:
        say("no stacks are taken: [probes] stacks is off")
    elif not body["stacks"]:
        say("no slow or failing call was seen yet")
    for stack in body["stacks"]:
        how = f"failed with {stack['result']}" if stack["kind"] == "failed" else "was slow"
        longest = seconds(stack["longest_seconds"])
        who = f"{stack['call']} of process {stack['pid']}, thread {stack['tid']}, {in_stage(stack)}"
        say(f"{who} {how}, told {stack['told']} times, longest {longest}")
        for frame in stack["frames"]:
            say(f"    {place(frame)}")


def in_stage(stack: dict[str, Any]) -> str:
    """`in vision_encode image`."""
    return f"in {stack['stage']} {stack['modality']}" if stack["stage"] else "in no stage"


def place(frame: dict[str, Any]) -> str:
    """`libengine.so+0x1c2d (wait_for_step+0x12)`; the bare address where its file is not known."""
    if frame["library"] is None:
        return f"{frame['address']:#x}"
    where = f"{PurePath(frame['library']).name}+{frame['offset']:#x}"
    if frame["symbol"] is None:
        return f"{where} (build {frame['build_id']})" if frame["build_id"] else where
    return f"{where} ({frame['symbol']}+{frame['symbol_offset']:#x})"
