# SPDX-License-Identifier: Apache-2.0
"""`hotstage agent`: the privileged process, in the foreground."""

from __future__ import annotations

import os

import click

from hotstage.cli.logs import start_logging
from hotstage.cli.reading import configuration
from hotstage.clock import SystemClock
from hotstage.service import service_manager


@click.command()
@click.option("--loader", type=click.Choice(["auto", "libbpf", "bcc"]), help="Compiler of the call counters.")
@click.option("--listen", metavar="ADDRESS:PORT", help="Where to serve the API.")
def agent(loader: str | None, listen: str | None) -> None:
    """Attach the probes, judge, serve the API; ends on SIGTERM, reloads on SIGHUP."""
    from hotstage.daemon.process import Daemon

    flags = {("probes", "loader"): loader, ("http", "listen"): listen}
    config = configuration(flags)
    start_logging(config.log, "agent")
    service = service_manager(os.environ)
    Daemon(config, SystemClock(), reload=lambda: configuration(flags), service=service).run()
