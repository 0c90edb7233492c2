# SPDX-License-Identifier: Apache-2.0
"""`hotstage notify`: the webhook process, in the foreground."""

from __future__ import annotations

import click

from hotstage.cli.logs import start_logging
from hotstage.cli.reading import configuration


@click.command()
def notify() -> None:
    """Deliver the agent's events to the configured webhooks; ends on SIGTERM."""
    from hotstage.notify.process import run

    config = configuration()
    start_logging(config.log, "notify")
    run(config.notify)
