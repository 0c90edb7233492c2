# SPDX-License-Identifier: Apache-2.0
"""`hotstage kernels`: which kernels each process launches most."""

from __future__ import annotations

from typing import Any

import click

from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import DASH, print_json, print_table, say


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Rows of a process."
)
@reading
def kernels(limit: int, as_json: bool, agent_url: str | None) -> None:
    """Launches of each process by kernel, most first; shortened names, a rest, and what has no name.

    error: one standard error, as kernels are told by a sample of the launches. Kernels inside of graphs are
    not told apart: launches of graphs are under (graphs).
    """
    body = agent_client(agent_url).get(f"/v1/kernels?limit={limit}")
    if as_json:
        print_json(body)
        return
    print_table(
        ("pid", "process", "kernel", "launches", "share", "error", "variants"),
        [row for process in body["processes"] for row in _rows(process)],
        empty="no process that is watched has launched anything",
    )
    say(f"launches by kernel: {body['basis']}")
    say("error: one standard error; kernels inside of graphs are not told apart, their launches are (graphs)")


def _rows(process: dict[str, Any]) -> list[tuple[Any, ...]]:
    head = process["pid"], process["name"] or DASH
    total = process["launches"]
    found = [
        (
            *head,
            row["kernel"],
            row["launches"],
            _share(row["launches"], total),
            f"±{row['error_ratio']:.1%}" if row["error_ratio"] else DASH,
            row["variants"],
        )
        for row in process["kernels"]
    ]
    if process["other_launches"]:
        launches, count = process["other_launches"], process["other_kernels"]
        found.append((*head, f"({count} others)", launches, _share(launches, total), DASH, DASH))
    if process["unnamed_launches"]:
        launches = process["unnamed_launches"]
        found.append((*head, "(no name)", launches, _share(launches, total), DASH, DASH))
    if not process["samples"]:
        found.append((*head, "(not looked at yet)", total, DASH, DASH, DASH))
    return found


def _share(launches: int, total: int) -> str:
    return f"{launches / total:.1%}" if total else DASH
