# SPDX-License-Identifier: Apache-2.0
"""`hotstage windows`: anomaly windows, newest first, with the cause that ranks highest."""

from __future__ import annotations

from typing import Any

import click

from hotstage.cli.reading import agent_client, reading
from hotstage.cli.synonyms import ITSELF, SynonymCommand
from hotstage.cli.terminal import clock_time, entity, print_json, print_table, say


@click.command(cls=SynonymCommand, synonyms=dict.fromkeys(("list", "status", "show"), ITSELF))
@click.option("--state", type=click.Choice(["open", "closed", "all"]), default="all", show_default=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@reading
def windows(state: str, limit: int, as_json: bool, agent_url: str | None) -> None:
    """Anomaly windows with their ranked cause."""
    body = agent_client(agent_url).get(f"/v1/windows?state={state}&limit={limit}")
    if as_json:
        print_json(body)
        return
    print_table(
        ("window", "severity", "kind", "opened", "closed", "where", "worst ÷ limit", "cause", "figures of"),
        [_row(window) for window in body["windows"]],
        empty="no anomaly window" if state == "all" else f"no {state} anomaly window",
    )
    if body["windows"]:
        say(
            "worst ÷ limit: its highest value over the limit of its detector, and when; times its usual, in a"
            " cause, is over what was learned as usual (a slow stage's limit is 2.5 times that, unless"
            " [detect] stage_latency_factor says else)\n"
            "figures in a cause are of the time under `figures of`: its newest sign, when closed its last;"
            " the last word on a hang or an XID tells of all of it",
            err=True,
        )


def _row(window: dict[str, Any]) -> tuple[Any, ...]:
    return (
        window["id"],
        window["severity"],
        window["kind"],
        clock_time(window["opened_at"]),
        clock_time(window["closed_at"]) if window["closed_at"] else "open",
        entity(window["entity"]),
        _worst(window),
        _cause(window),
        clock_time(window["figures_at"]),
    )


def _worst(window: dict[str, Any]) -> str | None:
    """A fact by itself has no limit that it is over."""
    score = window["score"]
    if score is None or score <= 1:
        return None
    return f"{score:.3g} × its limit at {clock_time(window['peak_at'])}"


def _cause(window: dict[str, Any]) -> str:
    caused_by = window.get("caused_by")
    summary: str = window["cause"]["summary"]
    return f"{summary}; explained by window {caused_by}" if caused_by else summary
