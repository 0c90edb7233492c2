# SPDX-License-Identifier: Apache-2.0
"""`hotstage breakers`: states, history, and overrides with a time limit and an actor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from hotstage.cli.client import AgentClient
from hotstage.cli.durations import Duration
from hotstage.cli.reading import agent_client, asking, configuration, reading, understood
from hotstage.cli.synonyms import ITSELF, SynonymGroup
from hotstage.cli.terminal import clock_time, print_json, print_table, say
from hotstage.errors import PrivilegeError


@click.group(
    cls=SynonymGroup, invoke_without_command=True, synonyms=dict.fromkeys(("list", "status", "show"), ITSELF)
)
@reading
@click.pass_context
def breakers(ctx: click.Context, as_json: bool, agent_url: str | None) -> None:
    """Breaker states, history and overrides."""
    if ctx.invoked_subcommand is not None:
        return
    body = agent_client(agent_url).get("/v1/breakers")
    if as_json:
        print_json(body)
        return
    print_table(
        ("breaker", "state", "callers", "since", "stale", "override", "reason"),
        [_row(b, body["at_ns"]) for b in body["breakers"]],
        empty="no breaker exists yet: one appears with the first window of its scope, or when it is tripped",
    )
    if body["breakers"]:
        say("figures in a reason are of the time under since; `hotstage windows` has the newest", err=True)


@breakers.command()
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@reading
def history(name: str | None, limit: int, as_json: bool, agent_url: str | None) -> None:
    """Transitions of one breaker, or of all, newest first."""
    chosen = f"&breaker={quote(name, safe='')}" if name else ""
    body = agent_client(agent_url).get(f"/v1/transitions?limit={limit}{chosen}")
    if as_json:
        print_json(body)
        return
    print_table(
        ("at", "breaker", "from", "to", "reason", "window"),
        [
            (clock_time(r["at"]), r["breaker"], r["from"], r["to"], r["reason"], r["window_id"])
            for r in body["transitions"]
        ],
        empty=f"breaker {name} has not moved" if name else "no breaker has moved",
    )
    if body["transitions"]:
        say("figures in a reason are as of that move; `hotstage windows` has when it was worst", err=True)


def _row(b: dict[str, Any], now_ns: int) -> tuple[Any, ...]:
    """The state that callers see; under a person's override that comes first, the breaker's own after it."""
    override = b["override"]
    if override is None:
        callers = "heed it" if b["enforced"] else "dry run"
        return (b["name"], b["state"], callers, clock_time(b["since"]), b["stale"], None, b["reason"])
    callers = "heed it" if b["enforced"] else "admit"
    left = time_left(max(0.0, (override["until_ns"] - now_ns) / 1e9))
    said = f"{override['reason'] or 'no reason given'}; by itself {b['own_state']}: {b['reason']}"
    person = f"{override['actor']}, {left} left"
    return (b["name"], b["state"], callers, clock_time(override["since"]), b["stale"], person, said)


def time_left(seconds: float) -> str:
    """`45 s`, `9 min`, `2 h`, `3 d`: rounded down, as of a time that runs out."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def operating_client(url: str | None, what: str) -> AgentClient:
    """A client that may be an operator's. Raises PrivilegeError, which says `what` needs one."""
    client = agent_client(url)
    if not client.may_operate:
        path = configuration().http.socket
        raise PrivilegeError(
            f"{what} through the agent's socket, or with a token over TLS; {client.address} is neither,"
            f" and the socket {path} {_why_not(Path(path))}",
            remedy="name the agent's socket with --socket PATH or HOTSTAGE_SOCKET (a running demo prints"
            " its own), or its address with --agent https://HOST:PORT --token-file FILE",
        )
    return client


def _override(action: str, name: str, ttl_seconds: float | None, reason: str, url: str | None) -> None:
    client = operating_client(url, "overrides go")
    body = {"action": action, "reason": reason, "ttl_seconds": ttl_seconds}
    answer = client.request("POST", f"/v1/breakers/{quote(name, safe='')}/override", body)
    with understood():
        say(f"{name}: {answer['breaker']['state']}" if "breaker" in answer else f"{name}: done")


def _why_not(path: Path) -> str:
    if not path.exists():
        return "does not exist: no agent of this host uses it"
    if not os.access(path, os.R_OK | os.W_OK):
        return "is closed to this user: run as root or join its group"
    return "was not asked for"


_ttl = click.option("--ttl", type=Duration(), required=True, help="How long the override holds, e.g. 10m.")
_reason = click.option("--reason", default="", help="Kept in the audit trail.")


@breakers.command()
@click.argument("name")
@_ttl
@_reason
@asking
def trip(name: str, ttl: float, reason: str, agent_url: str | None) -> None:
    """Force a breaker open: callers shed at once, in dry run, too.

    NAME is one that `hotstage breakers` lists, or a scope that has had no window yet: host,
    stage:STAGE:MODALITY, modality:MODALITY, endpoint:PATH, instance:NAME, gpu:UUID.
    """
    _override("force_open", name, ttl, reason, agent_url)


@breakers.command()
@click.argument("name")
@_ttl
@_reason
@asking
def disable(name: str, ttl: float, reason: str, agent_url: str | None) -> None:
    """Keep a breaker closed whatever happens."""
    _override("disable", name, ttl, reason, agent_url)


@breakers.command()
@click.argument("name")
@_reason
@asking
def reset(name: str, reason: str, agent_url: str | None) -> None:
    """Take an override back; of a GPU's breaker also say that the GPU is well again."""
    _override("reset", name, None, reason, agent_url)
