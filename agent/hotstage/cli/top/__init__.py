# SPDX-License-Identifier: Apache-2.0
"""`hotstage top`: processes and stages live, with what probing costs and what was lost."""

from __future__ import annotations

import shutil
import sys
import time

import click
import msgspec

from hotstage.cli.durations import Duration
from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import print_json, say
from hotstage.cli.top.live import watch
from hotstage.cli.top.look import Look, top_of
from hotstage.cli.top.screen import Choice, Line, heading, table
from hotstage.cli.top.terminal import Terminal
from hotstage.cli.top.views import PROCESSES, SORTS, STAGES, VIEWS

_FILE_CELLS = 200
"""Width of what goes into a file or a pipe: nobody reads it column by column there."""


class SortName(click.ParamType[str]):
    """A column of a view by its name or the beginning of it: `launch` is `launch/s`, `runq` the run queue."""

    name = "column"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        said = str(value).replace(" ", "")
        found = [name for name in SORTS if name.replace(" ", "").startswith(said)] if said else []
        if said in SORTS:
            return said
        if len(found) != 1:
            what = "may be any of" if found else "is none of"
            self.fail(f"{value!r} {what} {', '.join(found or SORTS)}", param, ctx)
        return found[0]


@click.command()
@click.option(
    "--interval",
    type=Duration(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@click.option("--once", is_flag=True, help="One table of each kind after one interval, then end.")
@click.option("--sort", type=SortName(), help="Column to sort by, or how it begins; the largest first.")
@click.option("--stages", is_flag=True, help="Begin with the stages.")
@reading
def top(
    interval: float, once: bool, sort: str | None, stages: bool, as_json: bool, agent_url: str | None
) -> None:
    """Processes and stages of this host, live: launches, waits in calls, errors, memory, what probes cost.

    \b
    Keys: q quit, p processes, t stages, s sort by the next column, j k and arrows move.
    sync, copy, alloc, run queue (waits for a CPU): waiting threads as a share of one thread's time. A call
    counts once it has returned; `+ 61 s in flight` is the age of the longest one that has not, from 1 s on.
    in call: the age of the longest call of any kind that a thread sits in.
    GPU mem ≥: some was allocated before the probes came, so it is at least that.
    Rates and waits are means of the last 10 s; what is too old, or not seen since the probes are off, is —.
    Without a terminal, and with --once, the tables are printed once; --json says all of it.
    """
    sorts = {view.name: sort for view in VIEWS if sort in view.sorts}
    choice = Choice(STAGES if stages else PROCESSES, dict(sorts))
    client = agent_client(agent_url)
    if not (as_json or once) and Terminal.is_here():
        watch(client, interval, choice)
        return
    before = Look.at(client)
    time.sleep(interval)
    found = top_of(before, Look.at(client))
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _FILE_CELLS
    _print(heading(found, width))
    for view in VIEWS:
        say("")
        _print(table(found, Choice(view, choice.sort), width))
        if view is PROCESSES and any(each.gpu_memory_is_complete is False for each in found.processes):
            say("GPU mem ≥: some was not seen, as a rule allocated before the probes came")


def _print(lines: list[Line]) -> None:
    for line in lines:
        say("".join(text for text, _ in line).rstrip())
