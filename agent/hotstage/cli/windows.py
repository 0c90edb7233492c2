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
        ("window", "severity", "kind", "opened", "closed", "where", "worst", "cause", "figures of"),
        [_row(window) for window in body["windows"]],
        empty="no anomaly window" if state == "all" else f"no {state} anomaly window",
    )
    if body["windows"]:
        say(
            "figures in a cause are of the time under `figures of`, its newest sign, when closed its last;"
            " `worst` is how many times over its limit it was, and when",
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
        window["cause"]["summary"],
        clock_time(window["figures_at"]),
    )


def _worst(window: dict[str, Any]) -> str | None:
    """A fact by itself has no limit that it is over."""
    score = window["score"]
    return f"{score:.3g} × at {clock_time(window['peak_at'])}" if score is not None and score > 1 else None
