# SPDX-License-Identifier: Apache-2.0
"""Finished requests as a list: filtered, by age or by duration, a page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import barred, choice, heads, known, link, nothing, unknown
from hotstage_explorer.documents.requests import RequestList, RequestRow, items
from hotstage_explorer.where import Where

ROWS_A_PAGE = 25
MAX_OPTIONS = 6
SORTS = ("recent", "slow")
ALL = ("All", "")


def filters(found: RequestList, where: Where) -> list[Node]:
    """Choices that this list offers: those of which there are some, and the one that is made."""
    modalities = Counter(name for row in found.rows for name in row.modalities)
    endpoints = Counter(row.endpoint for row in found.rows)
    outcomes = Counter(row.outcome for row in found.rows)
    stage = where.choice("stage")
    return [
        choice("Order", where, "sort", (("Newest", ""), ("Slowest", "slow")), where.choice("sort", SORTS)),
        *(
            choice(label, where, name, _options(seen, where.choice(name)), where.choice(name))
            for label, name, seen in (
                ("Modality", "modality", modalities),
                ("Outcome", "outcome", outcomes),
                ("Endpoint", "endpoint", endpoints),
            )
        ),
        *([choice("Passed", where, "stage", (ALL, (stage, stage)), stage)] if stage else []),
    ]


def _options(seen: Counter[str], chosen: str) -> list[tuple[str, str]]:
    names = [name for name, _ in seen.most_common(MAX_OPTIONS)]
    if chosen and chosen not in names:
        names.append(chosen)
    return [ALL, *((name, name) for name in sorted(names))]


def matching(found: RequestList, where: Where, words: str) -> list[RequestRow]:
    """Those that the choices and words ask for, oldest first."""
    modality, outcome, endpoint = (where.choice(name) for name in ("modality", "outcome", "endpoint"))
    stage = where.choice("stage")
    wanted = words.lower().split()
    return [
        row
        for row in found.rows
        if (not modality or modality in row.modalities)
        and (not outcome or outcome == row.outcome)
        and (not endpoint or endpoint == row.endpoint)
        and (not stage or any(part.stage == stage for part in row.stages))
        and all(word in f"{row.id} {row.endpoint} {row.instance} {row.model}".lower() for word in wanted)
    ]


def shown_page(rows: Sequence[RequestRow], where: Where) -> tuple[list[RequestRow], int]:
    """(the rows of the page that is asked for, its number)."""
    if where.choice("sort", SORTS) == "slow":
        ordered = sorted(rows, key=lambda row: -(row.duration_seconds or 0.0))
    else:
        ordered = list(reversed(rows))
    page = min(where.number("page"), max(0, (len(ordered) - 1) // ROWS_A_PAGE))
    return ordered[page * ROWS_A_PAGE : (page + 1) * ROWS_A_PAGE], page


def request_table(rows: Sequence[RequestRow], found: RequestList, where: Where, *, is_read: bool) -> Node:
    """A page of the rows of `found`; each leads to its waterfall."""
    if not rows:
        if not is_read:
            return nothing("Not read yet")
        if found.rows:
            return nothing("No request matches", "Take a choice away, or use fewer words.")
        return nothing("No request has finished yet", "They are listed as soon as one ends.")
    names = items(found.rows)
    longest = max((row.duration_seconds or 0.0 for row in rows), default=0.0)
    columns = (
        ("Request", "", ""),
        ("Ended", "UTC", ""),
        ("Endpoint", "and instance", ""),
        ("Modality", "", ""),
        ("Outcome", "", ""),
        ("Duration", "", "num"),
        ("First token", "", "num"),
        ("Slowest stage", "share of the duration", ""),
        ("Tokens", "output", "num"),
    )
    return node(
        "table",
        node("caption", "Finished requests", cls="sr-only"),
        heads(columns),
        node("tbody", *(_row(row, where, longest, names[row.seq]) for row in rows)),
        cls="requests",
    )


def outcome(name: str) -> Node:
    return node(
        "span", name, cls=f"outcome {name if name in ('ok', 'error', 'cancelled', 'refused') else 'unknown'}"
    )


def _row(row: RequestRow, where: Where, longest: float, item: str) -> Node:
    is_here = where.item in (item, str(row.seq))
    duration: Child = unknown("the agent has not said")
    if row.duration_seconds is not None:
        fill = 100 * row.duration_seconds / longest if longest else 0
        duration = barred(fill, units.duration(row.duration_seconds))
    return node(
        "tr",
        node(
            "th",
            link(node("code", row.id or f"number {row.seq}"), where.at(item), is_current=is_here),
            scope="row",
        ),
        node("td", units.clock(row.ended_ns)),
        node("td", row.endpoint, node("span", f" {row.instance}", cls="soft")),
        node("td", ", ".join(row.modalities) or unknown("no stage has said")),
        node("td", outcome(row.outcome)),
        node("td", duration, cls="num"),
        node("td", known(units.duration(row.first_token_seconds), "not told"), cls="num"),
        node("td", *_slowest(row)),
        node("td", known(units.count(row.output_tokens), "not told"), cls="num"),
        cls="here" if is_here else "",
        key=str(row.seq),
    )


def _slowest(row: RequestRow) -> list[Child]:
    part = row.slowest
    if part is None:
        return [unknown("no stage has run")]
    share = ""
    if part.seconds is not None and row.duration_seconds:
        share = f" {units.percent(min(1.0, part.seconds / row.duration_seconds))}"
    return [node("code", part.stage), node("span", share, cls="soft")]
