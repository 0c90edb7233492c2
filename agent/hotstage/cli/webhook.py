# SPDX-License-Identifier: Apache-2.0
"""`hotstage webhook list|test|replay`: how destinations stand, one event past the queue, events once more.

Read from the notifier's own database, whether it runs or not; nothing here asks the agent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from hotstage.cli.reading import config_file, configuration
from hotstage.cli.terminal import clock_time, print_json, print_table, say, seconds
from hotstage.clock import SystemClock, rfc3339
from hotstage.config.load import DEFAULT_FILE, files_of
from hotstage.config.notify import NotifyConfig
from hotstage.errors import ConfigError, HotstageError, PreflightError
from hotstage.notify.attempt import Outcome
from hotstage.notify.db import Counts, HeldEvent, counts
from hotstage.notify.destinations import RefusedTarget, Target, read_targets
from hotstage.notify.replay import Replayed, Selection, beside, replay

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIMES = "write for example 90s, 2h, 1d or 2026-11-29T18:00:00Z"
_END_OF_TIME_NS = 1 << 63
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


class PastTime(click.ParamType[int]):
    """`90s`, `2h`, `1d` (that long ago) or an RFC 3339 time → wall ns."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            wall_ns = _wall_ns(str(value).strip())
        except (ValueError, OverflowError):
            self.fail(f"{_shown(value)} is not a time; {_TIMES}", param, ctx)
        if not 0 <= wall_ns < _END_OF_TIME_NS:
            self.fail(f"{_shown(value)} is not between 1970 and 2262; {_TIMES}", param, ctx)
        return wall_ns


class EventId(click.ParamType[str]):
    """A webhook-id."""

    name = "webhook-id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if not text or not (text.isascii() and text.isprintable()):
            self.fail(
                f"{_shown(value)} is not a webhook-id; receivers get it as the header of that name",
                param,
                ctx,
            )
        return text


def _wall_ns(text: str) -> int:
    """Raises ValueError or OverflowError."""
    if ago := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text):
        return SystemClock().wall_ns() - round(float(ago[1]) * _UNITS[ago[2]] * 1e9)
    moment = datetime.fromisoformat(text)
    # A time without a zone is meant as all other times are: UTC.
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9)


def _shown(value: object) -> str:
    """As it was given, in ASCII, with its middle left out if it is long."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:40]}…{text[-10:]}"


_ADD_DESTINATION = "add [[notify.destinations]] to the configuration"
_OTHER_CONFIGURATION = (
    f"{_ADD_DESTINATION}, or name the agent's own: hotstage --config FILE webhook … (a running demo prints"
    " its own); no agent is asked, so HOTSTAGE_AGENT and HOTSTAGE_SOCKET change nothing here"
)
_NO_DESTINATION = f"no destination is configured: {_ADD_DESTINATION}"


@click.group()
def webhook() -> None:
    """Destinations of webhooks: how they stand, try one, send events again."""


@webhook.command("list")
@_json
def list_destinations(as_json: bool) -> None:
    """How each configured destination stands."""
    config = configuration().notify
    targets, refused = _known(config)
    rows = [_standing(each, each_counts) for each, each_counts in _counted(config, [*targets, *refused])]
    if as_json:
        print_json({"destinations": rows})
        return
    _print_standings(rows)


@webhook.command()
@click.argument("name", required=False)
@click.option("--all", "all_of_them", is_flag=True, help="Try every destination.")
@_json
def test(name: str | None, all_of_them: bool, as_json: bool) -> None:
    """Send one signed test event now, past the queue; exit 1 if it did not arrive.

    Without NAME and --all: list the destinations.
    """
    config = configuration().notify
    targets, refused = _known(config)
    if name is None and not all_of_them:
        rows = [_standing(each, each_counts) for each, each_counts in _counted(config, [*targets, *refused])]
        if as_json:
            print_json({"destinations": rows})
        else:
            _print_standings(rows)
        return
    chosen = _chosen(config, [*targets, *refused], name)
    if not chosen:
        raise ConfigError(f"no destination is configured in {_looked_at()}", remedy=_OTHER_CONFIGURATION)
    results = [_tried(config, each) for each in chosen]
    if as_json:
        print_json({"tests": results})
    else:
        for result in results:
            _print_result(result)
    if not all(result["delivered"] for result in results):
        raise SystemExit(1)


@webhook.command("replay")
@click.argument("name", required=False)
@click.option("--dead", is_flag=True, help="Dead letters (this is what is done without an option).")
@click.option("--since", type=PastTime(), help="Events made since then, e.g. 2h or 2026-11-29T18:00:00Z.")
@click.option("--id", "event_id", type=EventId(), help="One event, by its webhook-id.")
@_json
def replay_events(
    name: str | None, dead: bool, since: int | None, event_id: str | None, as_json: bool
) -> None:
    """Queue ended deliveries again, to NAME or to all, each with its own webhook-id.

    What came later in the same subject is queued with them, so that a receiver ends with the newest state;
    what waits for a retry is tried at once; a destination that had been disabled is used again.
    """
    if dead + (since is not None) + (event_id is not None) > 1:
        raise click.UsageError("choose one of --dead, --since and --id")
    config = configuration().notify
    targets, refused = _known(config)
    names = [each.name for each in _chosen(config, [*targets, *refused], name)]
    selection = Selection("dead")
    if since is not None:
        selection = Selection("since", since_wall_ns=since)
    elif event_id is not None:
        selection = Selection("id", event_id=event_id)
    with beside(Path(config.directory)) as database:
        found = replay(database, names, selection, SystemClock().wall_ns())
    if event_id is not None and not any(each.chosen for each in found):
        raise HotstageError(
            f"no ended delivery of {event_id} to {', '.join(names)}",
            remedy="events are kept for 7 days once delivered, for 30 once dead; what waits is not ended",
        )
    if as_json:
        print_json({"replayed": [_replayed(each) for each in found]})
        return
    print_table(
        ("destination", "queued", "after them", "tried at once", "enabled again"),
        [(each.name, each.chosen, each.followers, each.hurried, each.is_enabled_again) for each in found],
        empty="no destination is configured",
    )


def _looked_at() -> str:
    """The files that the configuration was read from."""
    files = files_of(config_file())
    return ", ".join(map(str, files)) if files else f"{DEFAULT_FILE}, which does not exist"


def _known(config: NotifyConfig) -> tuple[list[Target], list[RefusedTarget]]:
    return read_targets(config.destinations, os.environ)


def _chosen(
    config: NotifyConfig, known: Sequence[Target | RefusedTarget], name: str | None
) -> list[Target | RefusedTarget]:
    """In the order of the configuration. Raises ConfigError for a name that is not there."""
    by_name = {each.name: each for each in known}
    if name is not None and name not in by_name:
        configured = ", ".join(each.name for each in config.destinations) or "none"
        raise ConfigError(f"no destination {name}", remedy=f"configured: {configured}")
    return [by_name[each.name] for each in config.destinations if name in (None, each.name)]


def _counted(
    config: NotifyConfig, known: Sequence[Target | RefusedTarget]
) -> list[tuple[Target | RefusedTarget, Counts | None]]:
    """With what the notifier's database says; None while there is none."""
    chosen = _chosen(config, known, None)
    try:
        with beside(Path(config.directory)) as database:
            return list(zip(chosen, counts(database, [each.name for each in chosen]), strict=True))
    except PreflightError:
        return [(each, None) for each in chosen]


def _standing(each: Target | RefusedTarget, of: Counts | None) -> dict[str, Any]:
    reason, remedy = (each.reason, each.remedy) if isinstance(each, RefusedTarget) else (None, None)
    row: dict[str, Any] = {
        "name": each.name,
        "format": each.format,
        "url": each.shown_url,
        "state": _state(each, of),
        "refused": reason,
        "remedy": remedy,
    }
    for key in ("pending", "delivered", "failed", "dead"):
        row[key] = None if of is None else getattr(of, key)
    times = {
        "oldest_pending_at": None if of is None else of.oldest_wall_ns,
        "last_delivered_at": None if of is None else of.delivered_wall_ns,
        "last_error_at": None if of is None else of.error_wall_ns,
        "disabled_at": None if of is None else of.disabled_wall_ns,
    }
    for key, at_ns in times.items():
        row[key] = None if at_ns is None else rfc3339(at_ns)
        row[f"{key}_ns"] = at_ns
    row["last_error"] = None if of is None else of.error
    return row


def _state(each: Target | RefusedTarget, of: Counts | None) -> str:
    if isinstance(each, RefusedTarget):
        return "refused"
    if of is None:
        return "new"
    if of.disabled_error is not None:
        return "disabled"
    return "failing" if (of.error_wall_ns or 0) > (of.delivered_wall_ns or 0) else "ok"


def _print_standings(rows: Sequence[dict[str, Any]]) -> None:
    print_table(
        (
            "destination",
            "format",
            "state",
            "pending",
            "delivered",
            "dead",
            "disabled",
            "url",
            "what is wrong",
        ),
        [
            (
                row["name"],
                row["format"],
                row["state"],
                row["pending"],
                row["delivered"],
                row["dead"],
                clock_time(row["disabled_at"]),
                row["url"],
                row["refused"] or row["last_error"],
            )
            for row in rows
        ],
        empty=_NO_DESTINATION,
    )


def _tried(config: NotifyConfig, each: Target | RefusedTarget) -> dict[str, Any]:
    if isinstance(each, RefusedTarget):
        outcome = Outcome("dead", each.reason, remedy=each.remedy)
    else:
        from hotstage.notify.process import send_test

        outcome = send_test(config, each, _test_event(each.name))
    return {
        "name": each.name,
        "format": each.format,
        "url": each.shown_url,
        "delivered": outcome.kind == "delivered",
        "refused": isinstance(each, RefusedTarget),
        "address": outcome.address,
        "status": outcome.status,
        "latency_ms": None if outcome.seconds is None else round(outcome.seconds * 1e3, 1),
        "error": outcome.error,
        "remedy": outcome.remedy,
    }


def _test_event(name: str) -> HeldEvent:
    from hotstage.host.identity import host_id
    from hotstage.sinks.events import EventMaker

    event = EventMaker(host_id()).test(SystemClock().wall_ns(), name)
    return HeldEvent(0, event.id, event.type, event.subject, event.created_ns, event.body)


def _print_result(result: dict[str, Any]) -> None:
    took = None if result["latency_ms"] is None else result["latency_ms"] / 1e3
    way = f"{result['url']} at {result['address']}" if result["address"] else result["url"]
    if result["delivered"]:
        say(f"{result['name']}: answered {result['status']} in {seconds(took)} ({way})")
        return
    say(f"{result['name']}: not delivered: {result['error']} ({way})", err=True)
    if result["remedy"]:
        say(f"  remedy: {result['remedy']}", err=True)


def _replayed(each: Replayed) -> dict[str, Any]:
    return {
        "name": each.name,
        "queued": each.chosen,
        "queued_after_them": each.followers,
        "tried_at_once": each.hurried,
        "enabled_again": each.is_enabled_again,
    }
