# SPDX-License-Identifier: Apache-2.0
"""`hotstage explore`: becomes the explorer, which knows nothing of the agent but its HTTP API."""

from __future__ import annotations

import os
import sys

import click

from hotstage.cli.reading import configuration


@click.command()
@click.option("--listen", metavar="ADDRESS:PORT", help="Where to serve the page.")
@click.option("--agent", metavar="URL", help="The agent to look at.")
def explore(listen: str | None, agent: str | None) -> None:
    """Serve the 3D explorer of heat, latency and load."""
    config = configuration({("explore", "listen"): listen, ("explore", "agent"): agent}).explore
    command = [sys.executable, "-m", "hotstage_explorer", "--listen", config.listen, "--agent", config.agent]
    os.execv(sys.executable, command)  # noqa: S606 - fixed program, no shell
