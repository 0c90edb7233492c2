# SPDX-License-Identifier: Apache-2.0
"""`hotstage requests`: finished requests, and where the time of one went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import click

from hotstage.cli.client import AgentClient
from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import cell, clock_time, print_json, print_json_line, print_table, say, seconds
from hotstage.cli.waterfall_chart import show_waterfall
from hotstage.stages.stage import Modality, Stage
from hotstage.stages.waterfall import OUTCOMES

FOLLOW_SECONDS = 1.0

_COLUMNS = (
    "number",
    "request",
    "endpoint",
    "modality",
    "outcome",
    "ended",
    "took",
    "TTFT",
    "ITL",
    "tokens",
    "slowest part",
)


_QUANTILES = ("ttft_p50", "ttft_p95", "itl_p50", "itl_p95")


@click.command()
@click.argument("request_id", metavar="[ID]", required=False)
@click.option("--slow", is_flag=True, help="The slowest of those that the agent keeps, not the newest.")
@click.option("--stage", metavar="NAME", help="Those that passed it; with --slow, by their time in it.")
@click.option("--modality", type=click.Choice(list(Modality.__members__)), help="Of this input.")
@click.option("--outcome", type=click.Choice(list(OUTCOMES)), help="Those that ended so.")
@click.option("--limit", type=click.IntRange(1, 4000), default=20, show_default=True)
@click.option("--follow", is_flag=True, help="Those that end from now on, until interrupted.")
@click.option("--first-token", "first_token", is_flag=True, help="What makes first tokens late, by modality.")
@reading
def requests(
    request_id: str | None,
    slow: bool,
    stage: str | None,
    modality: str | None,
    outcome: str | None,
    limit: int,
    follow: bool,
    first_token: bool,
    as_json: bool,
    agent_url: str | None,
) -> None:
    """Finished requests, newest first; with ID (or its number) the stages and waits of one."""
    wanted = {
        name: value
        for name, value in (("stage", stage), ("modality", modality), ("outcome", outcome))
        if value is not None
    }
    if slow + follow + first_token + (request_id is not None) > 1:
        raise click.UsageError("ID, --slow, --follow and --first-token exclude each other")
    if wanted and (first_token or request_id is not None):
        raise click.UsageError(f"--{next(iter(wanted))} chooses among requests; it goes with a list of them")
    client = agent_client(agent_url)
    if follow:
        _follow(client, wanted, as_json=as_json)
        return
    show: Callable[[Any], None] = _show_list
    if request_id is not None:
        path, show = f"/v1/requests/{quote(request_id, safe='')}", show_waterfall
    elif first_token:
        path, show = "/v1/latency", _show_latency
    else:
        order = "slowest" if slow else "newest"
        path = f"/v1/requests?{urlencode({**wanted, 'limit': limit, 'order': order})}"
        show = partial(_show_list, timed_stage=stage if slow else None)
    body = client.get(path)
    if stage is not None and not body["requests"]:
        _refuse_unknown(client, stage)
    (print_json if as_json else show)(body)


def _refuse_unknown(client: AgentClient, stage: str) -> None:
    """Raises UsageError for a stage that is neither one of all servers nor one that this agent has seen."""
    known = list(Stage.__members__)
    if stage in known:
        return
    known += sorted({row["stage"] for row in client.get("/v1/stages")["stages"]} - set(known))
    if stage not in known:
        raise click.UsageError(f"no stage {stage}: known are {', '.join(known)}")


def _show_list(body: dict[str, Any], timed_stage: str | None = None) -> None:
    """`timed_stage`: the one by whose time they are sorted; that time is shown."""
    columns = (*_COLUMNS, *((f"in {timed_stage}",) if timed_stage else ()))
    rows = [(*_row(row), *((_time_in(row, timed_stage),) if timed_stage else ())) for row in body["requests"]]
    print_table(columns, rows, empty="no such request has finished")


def _time_in(row: dict[str, Any], stage: str) -> str:
    return seconds(sum(part["seconds"] for part in row["stages"] if part["stage"] == stage))


def _follow(client: AgentClient, wanted: dict[str, str], *, as_json: bool) -> None:
    """A line each, JSON or tab-separated."""
    if not as_json:
        say("\t".join(_COLUMNS))
    for row in _ended(client, wanted):
        if as_json:
            print_json_line(row)
        else:
            say("\t".join(map(cell, _row(row))))


def _ended(client: AgentClient, wanted: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Requests that end from now on; an agent that was restarted counts from 1 again."""
    after = client.get(f"/v1/requests?{urlencode({'limit': 1, 'order': 'newest'})}")["next"]
    while True:
        time.sleep(FOLLOW_SECONDS)
        body = client.get(f"/v1/requests?{urlencode({**wanted, 'after': after})}")
        yield from body["requests"]
        totals = body["totals"]
        is_new_agent = totals["finished"] + totals["refused"] < after
        after = 0 if is_new_agent else body["next"]


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    slowest = row["slowest"]
    return (
        row["seq"],
        row["id"],
        row["endpoint"] or None,
        row["modality"],
        row["outcome"],
        clock_time(row["ended_at"]),
        seconds(row["duration_seconds"]),
        seconds(row["ttft_seconds"]),
        seconds(row["itl_seconds"]),
        row["output_tokens"],
        None if slowest is None else f"{slowest['name']} {slowest['share']:.0%}",
    )


def _show_latency(body: dict[str, Any]) -> None:
    modalities = [body["total"], *body["modalities"]]
    print_table(
        ("modality", "requests", "TTFT p50", "TTFT p95", "ITL p50", "ITL p95", "mostly"),
        [
            (
                each["modality"],
                each["requests"],
                *(
                    seconds(each[f"{name}_seconds"])
                    for name in ("ttft_p50", "ttft_p95", "itl_p50", "itl_p95")
                ),
                each["slowest"],
            )
            for each in modalities
        ],
        empty="no request has ended yet",
    )
    print_table(
        ("modality", "part of TTFT", "kind", "told by", "requests", "mean", "p95", "share"),
        [
            (
                each["modality"],
                part["name"],
                part["kind"],
                part["source"],
                part["count"],
                seconds(part["mean_seconds"]),
                seconds(part["p95_seconds"]),
                f"{part['share']:.1%}",
            )
            for each in modalities
            for part in each["parts"]
        ],
        empty="no first token is known",
    )
