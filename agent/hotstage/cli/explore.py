# SPDX-License-Identifier: Apache-2.0
"""`hotstage explore`: becomes the explorer, which knows agents by their HTTP API or by their metrics only."""

from __future__ import annotations

import os
import sys

import click

from hotstage.cli.reading import configuration


@click.command()
@click.option("--listen", metavar="ADDRESS:PORT", help="Where to serve the page.")
@click.option("--agent", metavar="URL", help="The agent to look at.")
@click.option(
    "--prometheus", metavar="URL", help="Look at this Prometheus or VictoriaMetrics instead of an agent."
)
@click.option("--prometheus-token-file", metavar="FILE", help="File with the bearer token for it.")
@click.option(
    "--prometheus-selector", metavar="MATCHERS", help="Label matchers that name the series to read."
)
def explore(**flags: str | None) -> None:
    """Serve the 3D explorer of heat, latency and load.

    --agent on the command line wins over a Prometheus in the configuration.
    """
    config = configuration({("explore", name): value for name, value in flags.items()}).explore
    command = [sys.executable, "-m", "hotstage_explorer", "--listen", config.listen, "--agent", config.agent]
    if config.prometheus is not None and (flags["prometheus"] or not flags["agent"]):
        command += ["--prometheus", config.prometheus, "--prometheus-selector", config.prometheus_selector]
        if config.prometheus_token_file is not None:
            command += ["--prometheus-token-file", config.prometheus_token_file]
    os.execv(sys.executable, command)  # noqa: S606 - fixed program, no shell
