# SPDX-License-Identifier: Apache-2.0
"""`hotstage coverage` at a glance: what is watched, what is not and why, what was lost, what to do next."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

import click

from hotstage.cli.coverage_gaps import gaps_of, told_gap
from hotstage.cli.coverage_tables import GOVERNOR_OFF, show_all
from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import clock_time, plain, print_json, print_table, say
from hotstage.clock import rfc3339
from hotstage.probes.losses import MEANINGS, UNKNOWN

Document = dict[str, Any]

_PROCESSES_SHOWN = 8
_PARTS_SHOWN = 3
"""Of reasons, losses and advice: one screen holds no more."""
_NOT_WATCHED = {
    "failed": "could not be attached",
    "denied": "is denied",
    "limited": "is left out",
    "off": "is let go",
    "ignored": "is not covered",
}


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Every table: libraries, symbols, trials, tracepoints.")
@reading
def coverage(is_all: bool, as_json: bool, agent_url: str | None) -> None:
    """What is watched and since when, what is not and why, what was lost, what to do next."""
    client = agent_client(agent_url)
    body = client.get("/v1/coverage")
    if as_json:
        print_json(body)
        return
    gaps = gaps_of(body)
    moves = (client.get("/v1/probes").get("moves") or []) if gaps else []
    _show(body, [told_gap(gap, body["wall_offset_ns"], moves) for gap in gaps])
    if is_all:
        say("")
        show_all(body)
    else:
        _tell("every library, symbol, tracepoint and trial: `hotstage coverage --all`")


def _show(body: Document, gaps: list[str]) -> None:
    calls, processes = body["calls"], body["processes"]
    known = f"none, the probes are off; {len(processes)} known" if body.get("off") else str(len(processes))
    _tell(
        f"processes watched: {known}, by loader {body['loader']}, rung {body['rung']}; "
        f"{body['attached']} symbols, each library once"
    )
    shown = processes[:_PROCESSES_SHOWN]
    print_table(
        ("pid", "process", "watched since", "libraries and their symbols, in each process"),
        [(p["pid"], p["name"], _since(p, body), _libraries(p)) for p in shown],
        empty="no process uses a CUDA library or the marks yet; hotstage attaches when one does",
    )
    if len(processes) > len(shown):
        _tell(f"and {len(processes) - len(shown)} more: --all")
    _tell(f"calls: {calls['counted']} counted, {calls['open']} of them open, {calls['lost']} lost")
    if launched := calls.get("launched"):
        _tell(_kernels(launched))
    for line in _some(gaps):
        _tell(f"unobserved: {line}")
    for line in _some(list(_unwatched(body))):
        _tell(f"not watched: {line}")
    _tell(f"symbols not probed: {_symbols(body['missed'])}")
    losses = [(name, count) for name, count in body["losses"].items() if count]
    for name, count in losses[:_PARTS_SHOWN]:
        _tell(f"{name} {count}: may falsify: {MEANINGS.get(name, UNKNOWN).falsifies}")
    if len(losses) > _PARTS_SHOWN:
        _tell(f"other kinds of losses: {len(losses) - _PARTS_SHOWN}: --all")
    if body.get("off"):
        _tell("losses: none is counted while the probes are off, and nothing else")
    elif not losses:
        _tell("losses: none; every figure is whole" + (" but for what was unobserved" if gaps else ""))
    _tell(f"libraries tried before the attach: {_trials(processes)}")
    _tell(f"driver: {'off with the probes' if body.get('off') else _driver(body['driver'])}")
    _tell(f"cost: {_cost(body)}")
    for line in _some(list(_advice(body))) or ["nothing; `hotstage top` shows it live"]:
        _tell(f"to do: {line}")


def _tell(text: str) -> None:
    """On a terminal in lines that fit, the further ones indented; whole elsewhere."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(plain(text), max(width, 20), subsequent_indent="  ", break_on_hyphens=False)
    say(text)


def _since(process: Document, body: Document) -> str | None:
    """When the youngest of its epochs began: from then on all of its libraries are counted."""
    offset = body.get("wall_offset_ns")
    known = [lib["since_ns"] for lib in process["libraries"] if lib.get("since_ns") is not None]
    return None if offset is None or not known else clock_time(rfc3339(max(known) + offset))


def _libraries(process: Document) -> str:
    told = Counter(
        f"{lib['kind']} {lib['attached'] if lib['state'] == 'attached' else lib['state']}"
        for lib in process["libraries"]
    )
    return ", ".join(_some([f"{count} × {what}" if count > 1 else what for what, count in told.items()]))


def _unwatched(body: Document) -> Iterator[str]:
    if body.get("off"):
        since = f", since {clock_time(body['off_since'])}" if body.get("off_since") else ""
        yield f"anything{since}: {body['off']}"
        return
    for process in body["processes"]:
        for lib in process["libraries"]:
            if (what := _NOT_WATCHED.get(lib["state"])) is not None:
                yield f"{lib['path']} of {process['pid']} {process['name']} {what}: {lib['reason']}"
    for each in body["custom"]:
        if each["reason"]:
            yield f"own program {each['path']} is {each['state']}: {each['reason']}"
    for name in ("driver", "scheduler", "page_faults", "xid"):
        side = body.get(name) or {}
        if side.get("reason"):
            yield f"{name}: {side['state']}: {side['reason']}"


def _symbols(missed: Iterable[Document]) -> str:
    """`2 that should be (libcuda.so.1: cuFoo, cuBar: not exported); 30 as it should be`."""
    wrong = [miss for miss in missed if not miss.get("is_expected")]
    expected = sum(bool(miss.get("is_expected")) for miss in missed)
    groups: dict[tuple[str, str], list[str]] = {}
    for miss in wrong:
        groups.setdefault((PurePosixPath(miss["library"]).name, miss["reason"]), []).append(miss["symbol"])
    told = [
        f"{library}: {', '.join(_some(symbols))}: {reason}" for (library, reason), symbols in groups.items()
    ]
    of_wrong = f"{len(wrong)} ({'; '.join(_some(told))})" if wrong else "none that should be"
    return of_wrong + (f"; {expected} more as it should be" if expected else "")


def _trials(processes: Iterable[Document]) -> str:
    """Each file counts once, however many processes have it."""
    found = {
        (lib["path"], lib.get("build_id")): lib["trial"]
        for process in processes
        for lib in process["libraries"]
        if lib.get("trial")
    }
    if not found:
        return "none: there is none, or [probes] canary is off"
    counts = Counter(trial["placement"] for trial in found.values())
    told = ", ".join(f"{count} {placement}" for placement, count in counts.items())
    internal = sum(len((trial["audit"] or {}).get("internal", ())) for trial in found.values())
    return told + (f"; {internal} functions are reached by address alone" if internal else "")


def _driver(driver: Document) -> str:
    submit = driver["queue_submit"]
    count = "unknown" if submit["count"] is None else submit["count"]
    counts = Counter(each["state"] for each in driver["events"] if each["state"] != "unused")
    in_order = sorted(counts.items(), key=lambda pair: pair[0] != "attached")
    points = ", ".join(f"{number} {state}" for state, number in in_order) or "none"
    return f"{count} submissions by {submit['through']}; tracepoints {points}"


def _cost(body: Document) -> str:
    governor, sizes = body.get("governor"), body.get("map_bytes") or {}
    told = []
    if body.get("off"):
        told.append("no CPU time: the probes are off")
    elif governor is not None:
        ratios = [each["cost_ratio"] for each in governor["processes"] if each["cost_ratio"] is not None]
        dearest = f"{max(ratios):.1%} of a process's CPU time at most" if ratios else "not known yet"
        is_on = governor["enabled"]
        limit = f"limit {governor['limit_ratio']:.0%}" if is_on else GOVERNOR_OFF
        told.append(f"{dearest}, {limit}")
        spared = sum(each["level"] != "full" for each in governor["processes"])
        if spared:
            told.append(f"processes below level full: {spared}")
    if sizes:
        told.append(f"{sum(sizes.values()) / (1 << 20):.1f} MiB of kernel memory")
    return "; ".join(told) or "unknown"


def _advice(body: Document) -> Iterator[str]:
    """What would make it whole, the gravest first; nothing where it is."""
    if body.get("off"):
        yield "`hotstage probes on` brings the probes back"
        return
    for name, count in body["losses"].items():
        if count:
            yield f"for {name}: {MEANINGS.get(name, UNKNOWN).helps}"
    for each in (
        *body["custom"],
        body["driver"],
        *(body.get(name) or {} for name in ("scheduler", "page_faults", "xid")),
    ):
        if each.get("reason") and each.get("remedy"):
            yield each["remedy"]
    for each in (body.get("governor") or {"processes": ()})["processes"]:
        if each["level"] != "full":
            yield (
                f"process {each['pid']} is at {each['level']}: {each['reason']};"
                " raise governor.limit_ratio to see more of it"
            )
    if not body["processes"]:
        yield "start the server; `hotstage doctor` says what this host lacks"


def _some(parts: list[str]) -> list[str]:
    """The first ones, and how many there are more."""
    more = len(parts) - _PARTS_SHOWN
    return parts[:_PARTS_SHOWN] + ([f"and {more} more: --all"] if more > 0 else [])


def _kernels(launched: dict[str, Any]) -> str:
    """What the launches ran, or why that is unknown."""
    captured = f"{launched['captured']} launches were captured and did not run"
    if launched["kernels"] is None:
        return f"kernels: unknown, {launched['unknown_graph_launches']} launches of graphs not seen made"
    return f"kernels: {launched['kernels']} run, {launched['replayed']} of them by graphs; {captured}"
