# SPDX-License-Identifier: Apache-2.0
"""`hotstage doctor`: what this host can do for hotstage, what is in the way, and the remedy for each."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from hotstage.cli.doctor.finding import Area
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.report import all_findings, exit_code, report, summary
from hotstage.cli.doctor.run import DEADLINE_SECONDS, run_checks
from hotstage.cli.doctor.show import progress, recall, show
from hotstage.cli.doctor.table import CHECKS
from hotstage.cli.reading import configuration
from hotstage.cli.terminal import print_json
from hotstage.config.settings import Config
from hotstage.errors import ConfigError

START_SECONDS_MAX = 0.6
"""What a slow start may take from the checks' time."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--strict", is_flag=True, help="Exit 3 when anything is less than fine, or not known.")
@click.option(
    "--only",
    "areas",
    type=click.Choice([area.value for area in Area]),
    multiple=True,
    help="This group of checks only; repeatable.",
)
def doctor(as_json: bool, strict: bool, areas: tuple[str, ...]) -> int:
    """Look, try, and say what to do; six seconds at most, some three on a quiet host.

    Everything is tried as the user who runs it: with sudo it tells what the agent could do as root, without
    it what this user may. Programs are loaded and linked to a scratch file, tracepoints attached for a
    moment, NVML asked in a process of its own. No running process is probed, no webhook is sent, nothing
    stays.

    \b
    ok    as it should be            warn  something is missing or worse; hotstage runs
    –     absent, and not missed     FAIL  in the way
    ?     could not be looked at

    Exit 0 fine, 3 less than fine (--strict), 4 cannot run, 5 a permission is missing.

    \b
    sudo hotstage doctor                                what the agent can do here
    sudo hotstage doctor --only libraries --only gpu    what would be probed, which GPUs are seen
    sudo hotstage doctor --strict && sudo systemctl start hotstage-agent
    sudo hotstage doctor --json | jq '.findings[] | select(.status == "warn")'
    setpriv --bounding-set=-all,+bpf,+perfmon hotstage doctor --only privileges
    """
    began = time.monotonic()
    chosen = [check for check in CHECKS if not areas or check.area.value in areas]
    with progress(len(chosen), is_wanted=not as_json) as tell:
        left = DEADLINE_SECONDS - min(_start_seconds(), START_SECONDS_MAX)
        outcomes = run_checks(chosen, this_host(), deadline_seconds=left, on_done=tell)
    seconds = time.monotonic() - began
    findings = all_findings(outcomes)
    code = exit_code(findings, strict=strict)
    if as_json:
        print_json(report(outcomes, code, seconds))
    else:
        show(findings)
        recall(findings)
        click.echo(summary(findings, seconds))
    return code


def _start_seconds() -> float:
    """Since this process was started: whoever waits counts that, too. 0 where procfs is silent."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK"))


def this_host() -> Host:
    """The host that this runs on, with the configuration in force; the defaults where that cannot be read."""
    error: ConfigError | None = None
    try:
        config = configuration()
    except ConfigError as refused:
        config, error = Config(), refused
    root = click.get_current_context().find_root()
    file: Path | None = getattr(root.obj, "config_file", None)
    return Host(config=config, config_file=file, config_error=error, environment=dict(os.environ))
