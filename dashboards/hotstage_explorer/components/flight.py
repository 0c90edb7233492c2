# SPDX-License-Identifier: Apache-2.0
"""What is in flight in a snapshot: a grid of stage × modality, the requests, the threads."""

from __future__ import annotations

from collections.abc import Sequence

from hotstage_explorer import units
from hotstage_explorer.components.latency_tables import swatch
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import chip, heads, known, link, nothing, unknown
from hotstage_explorer.documents.snapshots import OpenStage, RequestState, Snapshot, ThreadRow
from hotstage_explorer.parse import pipeline_place
from hotstage_explorer.where import Where

ROWS_A_PAGE = 25
NO_STAGE = "between stages"
_MODALITIES = ("text", "image", "audio", "video", "mixed", "unknown")


def grid(found: Snapshot, where: Where) -> Node:
    """How many requests are in which stage of which modality, and the oldest of each."""
    cells: dict[tuple[str, str], list[float]] = {}
    idle = 0
    for request in found.requests:
        idle += not request.open
        for part in request.open:
            cells.setdefault((part.stage, part.modality), []).append(part.age_seconds or 0.0)
    if not found.requests:
        return nothing("Nothing is in flight")
    stages = sorted({stage for stage, _ in cells}, key=lambda stage: (pipeline_place(stage), stage))
    known_ones = {modality for _, modality in cells}
    modalities = [name for name in _MODALITIES if name in known_ones] + sorted(known_ones - set(_MODALITIES))
    most = max((len(ages) for ages in cells.values()), default=1)
    lines = [
        node(
            "tr",
            node("th", swatch(stage, stage == "queue"), _stage_link(stage, where), scope="row"),
            *(_cell(cells.get((stage, modality)), most) for modality in modalities),
            key=stage,
        )
        for stage in stages
    ]
    if idle:
        said = node("td", f"{idle:,}", cls="num", colspan=str(max(1, len(modalities))))
        lines.append(
            node("tr", node("th", node("span", NO_STAGE, cls="soft"), scope="row"), said, key=NO_STAGE)
        )
    columns = [("Stage", "open", ""), *((name, "requests · oldest", "num") for name in modalities)]
    caption = node("caption", "Requests in flight by open stage and modality", cls="sr-only")
    return node("table", caption, heads(columns), node("tbody", *lines), cls="grid")


def request_table(rows: Sequence[RequestState], page: int) -> Node:
    """Oldest first; each with its open stages and the call it sits in."""
    if not rows:
        return nothing("No request matches")
    columns = (
        ("Request", "", ""),
        ("Endpoint", "and instance", ""),
        ("Age", "", "num"),
        ("Open stages", "since", ""),
        ("Sits in", "call, since", ""),
        ("Device", "and CUDA context", ""),
        ("Done", "stages", "num"),
        ("Tokens", "output", "num"),
    )
    shown = rows[page * ROWS_A_PAGE : (page + 1) * ROWS_A_PAGE]
    return node(
        "table",
        node("caption", "Requests in flight, oldest first", cls="sr-only"),
        heads(columns),
        node("tbody", *(_request(row) for row in shown)),
    )


def thread_table(rows: Sequence[ThreadRow], page: int) -> Node:
    """Longest first."""
    if not rows:
        return nothing("No thread is in a call or a stage")
    columns = (
        ("Process", "and thread", ""),
        ("Call", "the innermost", ""),
        ("For", "", "num"),
        ("Stage", "and modality", ""),
        ("Stream", "CUDA", ""),
        ("Device", "", ""),
    )
    shown = rows[page * ROWS_A_PAGE : (page + 1) * ROWS_A_PAGE]
    return node(
        "table",
        node("caption", "Threads in a call or a stage, longest first", cls="sr-only"),
        heads(columns),
        node("tbody", *(_thread(row) for row in shown)),
    )


def matching(found: Snapshot, where: Where, words: str) -> list[RequestState]:
    """Those with the chosen stage open and all the words."""
    stage, wanted = where.choice("stage"), words.lower().split()
    return [
        row
        for row in found.requests
        if (not stage or any(part.stage == stage for part in row.open))
        and all(word in f"{row.id} {row.endpoint} {row.instance}".lower() for word in wanted)
    ]


def matching_threads(found: Snapshot, words: str) -> list[ThreadRow]:
    """Those with all the words in call, stage or process."""
    wanted = words.lower().split()
    return [
        row
        for row in found.threads
        if all(word in f"{row.call} {row.stage} {row.pid}".lower() for word in wanted)
    ]


def lasted(seconds: float | None) -> str:
    """An age that may be of a moment or of hours."""
    return units.duration(seconds) if seconds is not None and seconds < 1 else units.age(seconds)


def open_stages(parts: Sequence[OpenStage]) -> list[Child]:
    """The open stages of a request as chips."""
    if not parts:
        return [node("span", NO_STAGE, cls="soft")]
    return [
        chip(f"{part.stage} {lasted(part.age_seconds)}", title=f"{part.stage} of {part.modality}")
        for part in parts[:4]
    ]


def sits_in(row: RequestState) -> list[Child]:
    """The call of the thread that sits longest in one for it; `?` where it is the stage's thread."""
    if row.call is None:
        return [node("span", "no call", cls="soft")]
    about = None
    if not row.call_is_own:
        about = node("span", " ?", cls="soft", title="a thread in its stage and process: perhaps not for it")
    return [
        node("code", row.call.call),
        about,
        node("span", f" {lasted(row.call.age_seconds)}", cls="soft"),
    ]


def _stage_link(stage: str, where: Where) -> Node:
    is_chosen = where.choice("stage") == stage
    to = where.choosing(stage="" if is_chosen else stage)
    return link(node("code", stage), to, is_current=is_chosen, title="show only these requests, or all again")


def _cell(ages: list[float] | None, most: int) -> Node:
    if not ages:
        return node("td", node("span", "·", cls="soft", aria_hidden="true"), cls="num")
    bar = node("span", cls="bar", aria_hidden="true", fill=f"{100 * len(ages) / most:.0f}")
    oldest = node("span", f" · {lasted(max(ages))}", cls="soft")
    return node("td", node("span", bar, node("span", f"{len(ages):,}", oldest), cls="load"), cls="num")


def _request(row: RequestState) -> Node:
    places = [*row.devices, *row.contexts]
    return node(
        "tr",
        node("th", node("code", row.id or row.key), scope="row"),
        node("td", row.endpoint or unknown("not told"), node("span", f" {row.instance}", cls="soft")),
        node("td", known(lasted(row.age_seconds), "not told"), cls="num"),
        node("td", node("div", *open_stages(row.open), cls="chips flat")),
        node("td", *sits_in(row)),
        node("td", *(node("div", place, cls="place") for place in places))
        if places
        else node("td", unknown("no thread that works for it has said")),
        node("td", units.count(len(row.done)), cls="num"),
        node("td", known(units.count(row.output_tokens), "not told"), cls="num"),
        key=row.key,
    )


def _thread(row: ThreadRow) -> Node:
    stage: Child = node("span", "no stage", cls="soft")
    if row.stage:
        stage = node("span", node("code", row.stage), node("span", f" {row.modality}", cls="soft"))
    return node(
        "tr",
        node(
            "th",
            known(units.DASH if row.pid is None else str(row.pid), "not told"),
            f" · {row.tid}",
            scope="row",
        ),
        node("td", node("code", row.call) if row.call else node("span", "none", cls="soft")),
        node("td", known(lasted(row.age_seconds), "not told"), cls="num"),
        node("td", stage),
        node("td", node("code", f"{row.stream:#x}") if row.stream is not None else ""),
        node("td", f"CUDA ordinal {row.device}" if row.device is not None else ""),
        key=f"{row.pid}|{row.tid}",
    )
