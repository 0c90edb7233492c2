# SPDX-License-Identifier: Apache-2.0
"""`python -m hotstage_explorer --listen 127.0.0.1:9179 --agent http://127.0.0.1:9178`"""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import click

from hotstage_explorer.app import serve


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--listen",
    default="127.0.0.1:9179",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve; port 0 picks a free one.",
)
@click.option(
    "--agent", default="http://127.0.0.1:9178", show_default=True, metavar="URL", help="The agent's HTTP API."
)
def main(listen: str, agent: str) -> None:
    """Serve the hotstage explorer. Needs no privilege."""
    try:
        place = urlsplit(f"//{listen}")
        host, port = place.hostname, place.port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise click.BadParameter(
            f"{listen!r} is not HOST:PORT, for example 127.0.0.1:9179", param_hint="--listen"
        )
    sys.exit(serve(host, port, agent))


if __name__ == "__main__":
    main()
