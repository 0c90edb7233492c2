# SPDX-License-Identifier: Apache-2.0
"""`hotstage probes`: the kill switch, told and moved."""

from __future__ import annotations

from typing import Any

import click

from hotstage.cli.breakers import operating_client
from hotstage.cli.reading import agent_client, reading
from hotstage.cli.synonyms import ITSELF, SynonymGroup
from hotstage.cli.terminal import clock_time, print_json, print_table, say
from hotstage.errors import HotstageError


@click.group(
    cls=SynonymGroup, invoke_without_command=True, synonyms=dict.fromkeys(("list", "status", "show"), ITSELF)
)
@reading
@click.pass_context
def probes(ctx: click.Context, as_json: bool, agent_url: str | None) -> None:
    """Whether the probes are attached; `off` takes all of them away, `on` brings them back."""
    if ctx.invoked_subcommand is None:
        _tell(agent_client(agent_url).get("/v1/probes"), as_json)


_reason = click.option("--reason", default="", help="Kept with the switch and in the log.")


@probes.command()
@_reason
@reading
def off(reason: str, as_json: bool, agent_url: str | None) -> None:
    """Detach everything now and attach nothing, across restarts, until `hotstage probes on`.

    The same by hand: SIGUSR1 to the agent, or a file `probes.off` in its state directory.
    """
    _order("off", reason, as_json, agent_url)


@probes.command()
@_reason
@reading
def on(reason: str, as_json: bool, agent_url: str | None) -> None:
    """Attach again; what happened meanwhile is unobserved.

    The same by hand: SIGUSR2 to the agent, or take the file `probes.off` away.
    """
    _order("on", reason, as_json, agent_url)


def _order(state: str, reason: str, as_json: bool, url: str | None) -> None:
    client = operating_client(url, "the probes are switched")
    _tell(client.request("POST", "/v1/probes", {"state": state, "reason": reason}), as_json)


def _tell(body: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(body)
    elif body["state"] == "on":
        say("probes are on")
    else:
        since = clock_time(body["since"])
        say(f"probes are off since {since}, by {body['actor']}: {body['reason'] or 'no reason given'}")


@probes.command()
@reading
def history(as_json: bool, agent_url: str | None) -> None:
    """Who switched them off and on, the newest first."""
    body = agent_client(agent_url).get("/v1/probes")
    if as_json:
        print_json({"moves": body["moves"]})
        return
    if body["moves"] is None:
        raise HotstageError("the agent's database does not answer", remedy="see `hotstage doctor`")
    print_table(
        ("at", "probes", "by", "reason"),
        [(clock_time(each["at"]), each["state"], each["actor"], each["reason"]) for each in body["moves"]],
        empty="nobody has switched them",
    )
