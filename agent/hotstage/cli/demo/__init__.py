# SPDX-License-Identifier: Apache-2.0
"""`hotstage demo`: a simulated GPU host watched by the real thing, with a fault on command."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import click

from hotstage import __version__
from hotstage.cli.demo import report
from hotstage.cli.demo.live import LiveView
from hotstage.cli.demo.run import Demo, DemoOptions, Gathered
from hotstage.cli.demo.simulated import planned_faults
from hotstage.cli.durations import Duration
from hotstage.cli.logs import start_logging
from hotstage.cli.terminal import print_json
from hotstage.cli.up import require_root
from hotstage.clock import SystemClock
from hotstage.config.log import LogConfig

DEFAULT_SEED = 1
PORT = click.IntRange(1, 65535)


@click.command()
@click.option("--seconds", type=Duration(least=1), help="End by itself and print the report; 45, 45s, 2m.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="SPEC",
    help="NAME[@START[-END]][:SEVERITY], repeatable; START is 15 unless given.",
)
@click.option(
    "--faults",
    "faults_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of [[fault]] tables: slow any stage.",
)
@click.option("--seed", type=click.IntRange(min=0), default=DEFAULT_SEED, show_default=True)
@click.option("--loader", type=click.Choice(["auto", "libbpf", "bcc"]), default="auto", show_default=True)
@click.option("--agent-port", type=PORT, help="Of the API and /metrics, for a scraper; else a free one.")
@click.option("--explorer-port", type=PORT, help="Of the web page; else a free one.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def demo(
    seconds: float | None,
    faults: tuple[str, ...],
    faults_file: Path | None,
    seed: int,
    loader: str,
    agent_port: int | None,
    explorer_port: int | None,
    as_json: bool,
) -> None:
    """Watch a simulated GPU host, with a fault on command.

    Faults: encoder-stall, hang, xid, token-conflict, shared-stream, cpu-starve; hard negatives, which open
    no window: load-ramp, idle, tokens-with-room, tokens-in-one-piece, cut-memory. A SPEC is
    NAME[@START[-END]][:SEVERITY] in seconds from the start of traffic: START 15, and 15 s long, unless given;
    SEVERITY is the factor by which a stage, the load or a burst grows. `kind named` in the report: the worst
    window of that time is of the fault's kind.

    \b
    hotstage demo                                          until Ctrl-C, explorer on the printed address
    hotstage demo --seconds 45 --fault encoder-stall@15    ends with a report
    hotstage demo --seconds 45 --fault hang@15 --json
    """
    planned = planned_faults(faults, faults_file)
    start_logging(LogConfig(level="warning"), "demo")
    require_root()
    asked: list[int] = []

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ask)
    options = DemoOptions(seconds, seed, loader, faults, faults_file, agent_port, explorer_port)
    view = LiveView(seconds)
    for fault in planned:
        when = f"{fault['start_seconds']:g} to {fault['end_seconds']:g} s after traffic starts"
        view.announce(f"fault planned   {fault['name']}, {when}")
    runner = Demo(
        options, SystemClock(), announce=view.announce, show=view.show, asked_to_stop=lambda: bool(asked)
    )
    gathered = runner.run()
    view.close()
    if not gathered.truth:
        sys.exit(130)
    document = whole_report(options, gathered)
    if as_json:
        print_json(document)
    else:
        view.report(document)


def whole_report(options: DemoOptions, found: Gathered) -> dict[str, Any]:
    """The document of `schemas/demo.json`, and beside it what else a reader may want to check."""
    coverage, health = found.coverage, found.health
    pids = {int(pid) for pid in found.truth["calls_by_pid"]}
    records = [record for record in found.records.values() if record["pid"] in pids]
    verified = {line["id"] for line in found.deliveries if line["verified"]}
    return {
        "version": __version__,
        "seed": options.seed,
        "loader": coverage["loader"],
        "rung": coverage["rung"],
        "calls": report.calls(coverage, found.truth),
        "unobserved": report.unobserved(
            found.switch_moves,
            found.run_start_ns + found.wall_offset_ns,
            found.run_end_ns + found.wall_offset_ns,
        ),
        "kernels": report.kernels(coverage, found.truth),
        "coverage": {"attached": coverage["attached"], "missed": coverage["missed"]},
        "conflicts": coverage["conflicts"],
        "scenes": [{**each, "at_ns": each["at_ns"] + found.wall_offset_ns} for each in found.truth["scenes"]],
        "stages": report.stages(records, found.truth["stages"]),
        "unattributed_ratio": found.stages["unattributed_ratio"],
        "requests": report.requests(records, found.truth["requests"]),
        "windows": found.windows,
        "faults": report.faults(found.truth, found.windows, found.run_end_ns, found.wall_offset_ns),
        "foreign_processes": len(set(map(int, coverage["calls"]["by_pid"])) - pids),
        "hard_negatives": [fault["name"] for fault in found.truth["faults"] if fault["kind"] is None],
        "breakers": found.breakers,
        "webhooks": {
            "enqueued": health["checks"]["outbox"]["enqueued"],
            "delivered": len({line["id"] for line in found.deliveries}),
            "verified": len(verified),
            "dead": health["checks"]["outbox"]["dead"] or 0,
        },
        "agent": health["checks"]["agent"],
    }
