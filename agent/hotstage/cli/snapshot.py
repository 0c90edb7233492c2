# SPDX-License-Identifier: Apache-2.0
"""`hotstage snapshot`: requests in flight, their finished and open stages, the call a thread sits in."""

from __future__ import annotations

from typing import Any

import click

from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import print_json, print_table, seconds


@click.command()
@reading
def snapshot(as_json: bool, agent_url: str | None) -> None:
    """What every request in flight is doing right now."""
    body = agent_client(agent_url).get("/v1/snapshot")
    if as_json:
        print_json(body)
        return
    print_table(
        ("request", "endpoint", "instance", "open stage", "since", "finished stages"),
        [_request(row) for row in body["requests"]],
        empty="no request is in flight",
    )
    calls = [row for row in body["threads"] if row["call"]]
    print_table(
        ("pid", "thread", "call", "since", "stage", "modality"),
        [
            (t["pid"], t["tid"], t["call"], seconds(t["age_seconds"]), t["stage"], t["modality"])
            for t in calls
        ],
        empty="no thread is inside a CUDA call",
    )
    if body["unclean"]:
        click.echo(f"{body['unclean']} entries came or went during the read")


def _request(row: dict[str, Any]) -> tuple[Any, ...]:
    stages = ", ".join(f"{part['stage']}/{part['modality']}" for part in row["open"])
    oldest = max((part["age_seconds"] for part in row["open"]), default=None)
    return (
        row["id"],
        row["endpoint"],
        row["instance"],
        stages or None,
        seconds(oldest),
        " ".join(row["stages_done"]) or None,
    )
