# SPDX-License-Identifier: Apache-2.0
"""One request's waterfall as a table, with bars on a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from hotstage.cli.terminal import print_table, say, seconds

BAR_CELLS = 40
_LEGEND = (
    "decided: what this part adds to the request's time; place: exact = begin and end are known, "
    "gap = a wait between two parts, any other = only bounds are known; run queue: ready, without a CPU"
)
_PARTS = (
    ("run_queue_seconds", "run queue"),
    ("sync_seconds", "sync"),
    ("copy_seconds", "copy"),
    ("alloc_seconds", "alloc"),
)


def show_waterfall(body: dict[str, Any]) -> None:
    """`body`: the answer of /v1/requests/{id}."""
    request = body["request"]
    said = [
        f"{request['id']}: {request['outcome']} after {seconds(request['duration_seconds'])}",
        *([f"{request['modality']} at {request['endpoint']}"] if request["endpoint"] else []),
        f"first token after {seconds(request['ttft_seconds'])} ({_basis(request)})",
        f"then {seconds(request['itl_seconds'])} a token",
    ]
    say(", ".join(said))
    has_bars = sys.stdout.isatty()
    bar_cells = min(BAR_CELLS, max(12, shutil.get_terminal_size().columns - 100))
    columns = ("part", "kind", "from", "took", "decided", "place", "runs", "waited for")
    print_table(
        (*columns, *(("",) if has_bars else ())),
        [
            (*_segment(part), *((bar(part, request["duration_seconds"], bar_cells),) if has_bars else ()))
            for part in body["segments"]
        ],
        empty="it went through no stage",
    )
    say(_LEGEND)
    if any(_is_spread(part) for part in body["segments"]):
        say(
            "≈ ran several times: all its runs lie between these two times and took that sum; "
            "their places are not known"
        )


def bar(part: dict[str, Any], duration_seconds: float, cells: int = BAR_CELLS) -> str:
    """Where it stands: `█` a stage that decided some of the request, `░` a wait, or what decided nothing.

    `▒` reaches over all that may hold a stage's several runs, or what they leave of a wait.
    """
    if duration_seconds <= 0:
        return ""
    begin = round(float(part["offset_seconds"]) / duration_seconds * cells)
    end = round(float(part["until_seconds"]) / duration_seconds * cells)
    mark = "█" if part["kind"] == "stage" and part["critical_seconds"] > 0 else "░"
    begin = min(max(begin, 0), cells - 1)
    length = max(1, min(end, cells) - begin)
    return " " * begin + ("▒" if _is_spread(part) else mark) * length


def _is_spread(part: dict[str, Any]) -> bool:
    """Its place is not known, only what it lies in."""
    return part["placement"] in ("first_begin", "earliest", "sum")


def _segment(part: dict[str, Any]) -> tuple[Any, ...]:
    name = part["name"] if part["modality"] is None else f"{part['name']}/{part['modality']}"
    return (
        f"{name} …" if part["is_open"] else name,
        part["kind"],
        _from(part),
        seconds(part["duration_seconds"]),
        seconds(part["critical_seconds"]),
        part["placement"],
        part["runs"],
        _waited(part["parts"]),
    )


def _from(part: dict[str, Any]) -> str:
    begin = seconds(part["offset_seconds"])
    return f"≈ {begin} to {seconds(part['until_seconds'])}" if _is_spread(part) else begin


def _waited(parts: dict[str, Any] | None) -> str | None:
    if parts is None:
        return None
    told = [f"{label} {seconds(parts[name])}" for name, label in _PARTS if parts[name]]
    return ", ".join(told) or "nothing"


def _basis(request: dict[str, Any]) -> str:
    basis = request["ttft_basis"]
    return "unknown" if basis is None else f"by {basis.replace('_', ' ')}"
