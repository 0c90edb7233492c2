# SPDX-License-Identifier: Apache-2.0
"""`hotstage notify`: the webhook process, in the foreground."""

from __future__ import annotations

import logging
import os
import sys

import click

from hotstage.cli.logs import start_logging
from hotstage.cli.reading import configuration
from hotstage.service import service_manager

log = logging.getLogger(__name__)


@click.command()
def notify() -> None:
    """Deliver the agent's events to the configured webhooks; ends on SIGTERM, begins anew on SIGHUP."""
    from hotstage.notify.process import run

    config = configuration()
    start_logging(config.log, "notify")
    if not config.notify.destinations:
        log.warning("no destination is configured: nothing will be delivered; add [[notify.destinations]]")
    if run(config.notify, service_manager(os.environ), lambda: configuration().notify):
        # The same process from its beginning: no part can keep an old setting. What was under way is sent
        # again with its own id, and signals stay blocked until they are waited for.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line
