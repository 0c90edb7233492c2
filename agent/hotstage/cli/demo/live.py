# SPDX-License-Identifier: Apache-2.0
"""What a person sees while the demo runs, on standard error: one line of state, every change as it comes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from hotstage.cli.coverage_tables import GOVERNOR_OFF
from hotstage.cli.demo.run import Live
from hotstage.cli.stages import place_on_way
from hotstage.cli.terminal import entity, print_table, say, seconds

_CLEAR_LINE = "\r\x1b[K"
_KIND_WORDS = {
    "stage_latency": "a stage slower than usual",
    "alive_but_hung": "alive, but nothing comes out",
    "gpu_xid": "an error of a GPU, by its driver",
    "process_death": "a process that died",
    "token_conflict": "tokens in flight that the GPU's memory has no room for",
    "shared_stream": "encoders on the language model's stream",
}
_OPEN_UNTIL = {"gpu_xid": "it stands until something shows the GPU back"}


def named_kind(kind: str) -> str:
    """A window's kind as the API calls it, and in words; of a rule of one's own the name alone."""
    return f"{kind} ({_KIND_WORDS[kind]})" if kind in _KIND_WORDS else kind


class LiveView:
    """Says each window and each breaker move once; the state line only on a terminal."""

    def __init__(self, total_seconds: float | None) -> None:
        self._total_seconds = total_seconds
        self._said: set[tuple[str, str]] = set()
        self._is_terminal = sys.stderr.isatty()

    def announce(self, line: str) -> None:
        self._clear()
        say(line, err=True)

    def show(self, live: Live) -> None:
        """One look at the running demo."""
        governor = live.coverage.get("governor")
        if governor is not None and not governor["enabled"]:
            self._say_once(("governor", "off"), GOVERNOR_OFF)
        for window in live.windows:
            self._say_once((window["id"], "opened"), _opened(window))
            if window["closed_at"]:
                self._say_once((window["id"], "closed"), f"window closed   {named_kind(window['kind'])}")
        for breaker in live.breakers:
            for move in breaker["transitions"]:
                heed = _heed(move, enforced=breaker["enforced"])
                line = f"breaker moved   {breaker['name']}: {move['from']} → {move['to']}{heed}"
                self._say_once((breaker["name"], str(move["at_ns"])), line)
        for delivery in live.deliveries:
            how = "verified" if delivery["verified"] else "NOT verified"
            self._say_once(("webhook", delivery["id"]), f"webhook {how:<9} {delivery['type']}")
        if self._is_terminal:
            click.echo(_CLEAR_LINE + self._state(live), err=True, nl=False)

    def close(self) -> None:
        self._clear()

    def report(self, document: Mapping[str, Any]) -> None:
        """The report as text, on standard output."""
        calls, agent, hooks = document["calls"], document["agent"], document["webhooks"]
        click.echo(
            f"calls made {calls['made']}, counted {calls['counted']} ({calls['open']} open), "
            f"lost {calls['lost']}; loader {document['loader']}, rung {document['rung']}"
        )
        for line in _gap(document["unobserved"]):
            click.echo(line)
        click.echo(
            f"agent: {agent['cpu_ratio']:.1%} of one core, {agent['rss_bytes'] / 2**20:.0f} MiB resident, "
            f"{agent['map_bytes'] / 2**20:.0f} MiB of maps, "
            f"attached in {seconds(agent['start_to_attached_seconds'])}"
        )
        click.echo(f"webhooks: {hooks['enqueued']} enqueued, {hooks['verified']} delivered and verified")
        if document["faults"] or not document["hard_negatives"]:
            print_table(
                ("fault", "kind", "detected", "kind named", "place named", "delay", "window closed"),
                [_fault(fault) for fault in document["faults"]],
                empty="no fault began within the run",
            )
        for name in document["hard_negatives"]:
            found = len(document["windows"]) - len(
                {fault["window_id"] for fault in document["faults"]} - {None}
            )
            click.echo(f"{name} is a hard negative: no window may open")
            verdict = "no window opened, as it should be" if not found else f"{found} windows opened: WRONG"
            click.echo(f"hard negative {name}: {verdict}")
        if document["foreign_processes"]:
            click.echo(
                f"{document['foreign_processes']} other CUDA processes on this host were watched as well"
            )
        say("stages over the whole run, the agent's figures beside the simulated host's own:")
        print_table(
            ("stage", "modality", "requests", "true requests", "p95", "true p95"),
            [
                (
                    row["stage"],
                    row["modality"],
                    row["requests"],
                    row["truth"]["requests"],
                    seconds(row["p95_seconds"]),
                    seconds(row["truth"]["p95_seconds"]),
                )
                for row in sorted(document["stages"], key=place_on_way)
            ],
            empty="no request finished a stage",
        )

    def _state(self, live: Live) -> str:
        calls = live.coverage["calls"]
        of = f" of {self._total_seconds:.0f}" if self._total_seconds else ""
        still_open = sum(window["closed_at"] is None for window in live.windows)
        return (
            f"{live.elapsed_seconds:.0f}{of} s   {calls['counted']:,} calls counted, {calls['lost']} lost   "
            f"{still_open} open windows   {len(live.deliveries)} webhooks"
        )

    def _say_once(self, key: tuple[str, str], line: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self.announce(line)

    def _clear(self) -> None:
        if self._is_terminal:
            click.echo(_CLEAR_LINE, err=True, nl=False)


def _heed(move: Mapping[str, Any], *, enforced: bool) -> str:
    """What callers do about the state that it moved to, where the state does not say it by itself."""
    if move["to"] == "forced_open":
        return " (a person's order: callers heed it, in dry run, too)"
    if move["to"] in {"disabled", "metrics_only"}:
        return " (a person's order: callers admit)"
    return "" if enforced else " (dry run)"


def _opened(window: Mapping[str, Any]) -> str:
    what = f"{named_kind(window['kind'])} {entity(window['entity'])}"
    return f"window opened   {what}: {window['cause']['summary']}"


def _gap(unobserved: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Why fewer were counted than were made, where the switch is the reason."""
    if unobserved is None:
        return ("whether the probes were switched off meanwhile is not known: the database does not answer",)
    if not unobserved["times"]:
        return ()
    least = "" if unobserved["is_complete"] else "at least "
    times = "once" if unobserved["times"] == 1 else f"{unobserved['times']} times"
    length = f"{least}{seconds(unobserved['seconds'])} in all"
    return (
        f"probes were switched off {least}{times}, for {length}: what ran then is unobserved, so neither"
        " calls made and counted nor requests and true requests compare",
    )


def _fault(fault: Mapping[str, Any]) -> tuple[Any, ...]:
    verdicts = (fault["detected"], fault["kind_named"], fault["entity_named"])
    delay = seconds(fault["delay_seconds"])
    return fault["name"], named_kind(fault["kind"]), *verdicts, delay, _closed(fault)


def _closed(fault: Mapping[str, Any]) -> str | None:
    """`no` alone would read as a failure where a window stays open as it should."""
    if fault["window_closed"] is None and fault["detected"]:
        return "stays open: the fault lasts to the end"
    if fault["window_closed"] is False:
        why = _OPEN_UNTIL.get(fault["kind"], "it closes after some seconds without a sign of it")
        return f"not before the run ended: {why}"
    return None if fault["window_closed"] is None else "yes"
