# SPDX-License-Identifier: Apache-2.0
"""`python -m hotstage_explorer --listen 127.0.0.1:9179 --agent http://127.0.0.1:9178`"""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import click

from hotstage_explorer.app import serve
from hotstage_explorer.sources.agent import AgentSource
from hotstage_explorer.sources.base import SettingError, Source
from hotstage_explorer.sources.prometheus import PrometheusSource
from hotstage_explorer.sources.promql import PromQL
from hotstage_explorer.sources.selector import DEFAULT_SELECTOR, matchers


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
@click.option(
    "--prometheus", metavar="URL", help="Read this Prometheus or VictoriaMetrics instead of an agent."
)
@click.option("--prometheus-token-file", metavar="FILE", help="File with the bearer token for it.")
@click.option(
    "--prometheus-selector",
    default=DEFAULT_SELECTOR,
    show_default=True,
    metavar="MATCHERS",
    help="Label matchers that name the series to read.",
)
def main(
    listen: str,
    agent: str,
    prometheus: str | None,
    prometheus_token_file: str | None,
    prometheus_selector: str,
) -> None:
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
    try:
        source: Source = AgentSource(agent)
        if prometheus:
            client = PromQL(prometheus, token_file=prometheus_token_file)
            source = PrometheusSource(client, matchers(prometheus_selector))
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    sys.exit(serve(host, port, source))


if __name__ == "__main__":
    main()
