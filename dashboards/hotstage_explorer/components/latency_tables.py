# SPDX-License-Identifier: Apache-2.0
"""First tokens by modality and by what made them late, and the time of requests by component, as tables."""

from __future__ import annotations

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import TOO_FEW, barred, heads, known, link, nothing, unknown
from hotstage_explorer.documents.latency import Component, Components, Latency, Part, TokenLatency
from hotstage_explorer.figures import palette
from hotstage_explorer.where import Where

MAX_PARTS = 8
"""Rows a modality; the others' sum is one more."""

_NO_TOKEN = ("no token", "no request's first token was seen")
_ONE_TOKEN = ("no ITL", "no request told of two output tokens at different times")
_NO_REQUEST = ("none", "no request had it")
_NOT_ONE = "of several parts, or not in the metrics"
_SOURCES = {
    "mark": "",
    "gap": "between two marks",
    "kernel": "in synchronous stages, of their time",
}


def tokens_table(found: Latency) -> Node:
    """A row a modality."""
    if not found.rows:
        return nothing("No request has made a token yet", "Its first token is when llm_decode begins.")
    columns = (
        ("Modality", "", ""),
        ("Requests", "", "num"),
        ("First token P50", "", "num"),
        ("First token P95", "", "num"),
        ("Between tokens P50", "", "num"),
        ("Between tokens P95", "", "num"),
        ("Decided mostly by", "", ""),
    )
    return node(
        "table",
        node("caption", "Time to first token and between tokens, by modality", cls="sr-only"),
        heads(columns),
        node("tbody", *(_tokens(row) for row in found.rows)),
    )


def parts_table(found: Latency) -> Node | None:
    """What the first token of each modality waits for: the drawing's twin."""
    rows = [row for row in found.rows if row.parts]
    if not rows:
        return None
    columns = (
        ("Modality", "", ""),
        ("Stage or wait", "", ""),
        ("Share of the first token's time", "the parts add up", "num"),
        ("Mean", "where it decided some", "num"),
        ("P95", "", "num"),
        ("Requests", "", "num"),
    )
    table = node(
        "table",
        node("caption", "What makes first tokens late, by modality", cls="sr-only"),
        heads(columns),
        node("tbody", *(line for row in rows for line in _parts(row))),
    )
    return node("details", node("summary", "Figures by stage and wait"), table, cls="twin")


def component_table(found: Components, where: Where) -> Node:
    """A row a stage or wait, the whole request first; a stage leads to the requests that passed it."""
    rows = [row for row in (found.request, *found.rows) if row is not None]
    if not any(row.count for row in rows):
        return nothing("No request has finished yet")
    longest = max((row.p95_seconds or 0.0 for row in found.rows), default=0.0)
    columns = (
        ("Component", "", ""),
        ("Requests", "that had it", "num"),
        ("Mean", "", "num"),
        ("P95", "", "num"),
        ("Standard deviation", "", "num"),
        ("Variance", "s²", "num"),
        ("Share of all time", "stages may overlap", "num"),
    )
    return node(
        "table",
        node("caption", "Time of requests by component", cls="sr-only"),
        heads(columns),
        node("tbody", *(_component(row, longest, n, where) for n, row in enumerate(rows))),
    )


def _tokens(row: TokenLatency) -> Node:
    numbers = (
        (row.ttft_p50_seconds, row.ttft_samples, _NO_TOKEN),
        (row.ttft_p95_seconds, row.ttft_samples, _NO_TOKEN),
        (row.itl_p50_seconds, row.itl_samples, _ONE_TOKEN),
        (row.itl_p95_seconds, row.itl_samples, _ONE_TOKEN),
    )
    return node(
        "tr",
        node("th", row.name, scope="row"),
        node("td", known(units.count(row.requests), "not in the metrics"), cls="num"),
        *(node("td", _quantile(*number), cls="num") for number in numbers),
        node("td", node("code", row.slowest) if row.slowest else unknown("no first token was seen")),
        key=row.name,
    )


def _quantile(seconds: float | None, samples: int | None, none: tuple[str, str]) -> Child:
    """`none`: why there may be no sample at all, in a word and in a sentence."""
    if seconds is not None:
        return units.duration(seconds)
    if samples is None:
        return unknown(f"not in the metrics: fewer than 20 of the last 60 s, or {none[1]}")
    if samples == 0:
        return unknown(none[1], none[0])
    return unknown(f"{units.count(samples)} of the last 60 s are too few: a quantile takes 20", TOO_FEW)


def _parts(row: TokenLatency) -> list[Node]:
    cut = MAX_PARTS if len(row.parts) > MAX_PARTS + 1 else MAX_PARTS + 1
    shown, rest = row.parts[:cut], row.parts[cut:]
    lines = [_part(row.name, part, n == 0) for n, part in enumerate(shown)]
    if rest:
        other = Part(f"{len(rest)} others", False, None, None, None, sum(part.share for part in rest))
        lines.append(_part(row.name, other, False))
    return lines


def _part(modality: str, part: Part, is_first: bool) -> Node:
    return node(
        "tr",
        node("td", modality if is_first else node("span", modality, cls="soft")),
        node("th", swatch(part.name, part.is_wait), node("code", part.name), _waits(part), scope="row"),
        node("td", barred(100 * part.share, units.percent(part.share)), cls="num"),
        node("td", known(units.duration(part.mean_seconds), _NOT_ONE), cls="num"),
        node(
            "td",
            unknown(_NOT_ONE) if part.count is None else _quantile(part.p95_seconds, part.count, _NO_REQUEST),
            cls="num",
        ),
        node("td", known(units.count(part.count), _NOT_ONE), cls="num"),
        cls="first-of" if is_first else "",
        key=f"{modality}|{part.name}|{part.is_gap}",
    )


def swatch(stage: str, is_wait: bool) -> Node:
    """The colour that drawings give a stage, hatched for a wait."""
    return node(
        "span",
        cls=f"swatch {'hatched' if is_wait else f'family-{palette.family(stage)}'}",
        aria_hidden="true",
    )


def _waits(part: Part) -> Node | None:
    return (
        node("span", " wait between marks" if part.is_gap else " wait", cls="soft") if part.is_wait else None
    )


def _component(row: Component, longest: float, place: int, where: Where) -> Node:
    is_wait = row.kind == "wait"
    is_kernel = row.source == "kernel"
    name: Child = node("code", row.stage)
    if row.kind == "stage" and not row.lora:
        name = link(name, Where("/requests/", "", (("stage", row.stage),)))
    if row.kind == "request":
        name = node("strong", "Whole request")
    said = ", ".join(
        word for word in (row.lora, "wait" if is_wait else "", _SOURCES.get(row.source, "")) if word
    )
    p95: Child = _quantile(row.p95_seconds, row.count, _NO_REQUEST)
    if row.p95_seconds is not None and row.kind != "request" and longest:
        p95 = barred(100 * row.p95_seconds / longest, units.duration(row.p95_seconds))
    deviation = None if row.variance is None else row.variance**0.5
    none = "no request had it" if not row.count else "below two requests"
    colour = None if row.kind == "request" else swatch(row.stage, is_wait or is_kernel)
    return node(
        "tr",
        node("th", colour, name, node("span", f" {said}", cls="soft") if said else None, scope="row"),
        node("td", units.count(row.count), cls="num"),
        node("td", known(units.duration(row.mean_seconds), none), cls="num"),
        node("td", p95 if row.count else unknown(none), cls="num"),
        node("td", known(units.duration(deviation), none), cls="num"),
        node("td", known(units.significant(row.variance), none), cls="num"),
        node("td", known(units.percent(row.share), none), cls="num"),
        key=str(place),
    )
