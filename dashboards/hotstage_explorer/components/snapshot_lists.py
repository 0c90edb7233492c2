# SPDX-License-Identifier: Apache-2.0
"""The stored snapshots, what changed between two, and from where each request can go on, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from hotstage_explorer import units
from hotstage_explorer.components.flight import ROWS_A_PAGE, open_stages, sits_in
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import chip, fact, heads, known, link, moment, nothing
from hotstage_explorer.documents.snapshot_diff import Diff
from hotstage_explorer.documents.snapshots import Plan, RequestPlan, RequestState, Snapshot, StoredRow
from hotstage_explorer.where import Where

NOW = "now"
MAX_SHOWN = 100


def stored_list(rows: Sequence[StoredRow], where: Where) -> Node:
    """A row each, `now` first; one is looked at, another may be compared with it."""
    lines = [_now(where), *(_stored(row, where) for row in rows)]
    empty = None
    if not rows:
        empty = nothing("None is stored yet", "One is kept when a window or a breaker opens.")
    return node("div", node("ul", *lines, cls="snapshots"), empty)


def facts(found: Snapshot) -> list[Node]:
    """What the snapshot is worth."""
    lost = ", ".join(f"{name} {count:,}" for name, count in found.losses)
    made = [
        fact("Taken", moment(found.taken_ns)),
        fact("In flight", known(units.count(found.requests_total), "not told")),
        fact("Threads in a call or stage", known(units.count(found.threads_total), "not told")),
        fact(
            "Unclean",
            known(units.count(found.unclean), "not told"),
            title="entries that came or went meanwhile",
        ),
        fact("Losses", lost or "none", title="because of which something may be absent"),
    ]
    if found.causes:
        made.append(fact("Because of", ", ".join(f"{kind} {name}" for kind, name in found.causes)))
    return made


def plan_table(found: Plan, words: str, page: int) -> tuple[Node, int]:
    """(the plan of each request that has the words, how many there are)."""
    wanted = words.lower().split()
    rows = [
        row for row in found.requests if all(word in f"{row.id} {row.endpoint}".lower() for word in wanted)
    ]
    if not rows:
        return nothing("Nothing is in flight" if not found.requests else "No request matches"), 0
    columns = (
        ("Request", "", ""),
        ("Endpoint", "", ""),
        ("Decision", "", ""),
        ("Goes on at", "", ""),
        ("Uses", "results that survive", ""),
        ("Does again", "", ""),
        ("Tokens", "made so far", "num"),
        ("Image", "never resampled", ""),
    )
    shown = rows[page * ROWS_A_PAGE : (page + 1) * ROWS_A_PAGE]
    table = node(
        "table",
        node("caption", "Recovery plan, a row a request", cls="sr-only"),
        heads(columns),
        node("tbody", *(_plan(row) for row in shown)),
    )
    return table, len(rows)


def plan_note(found: Plan) -> Node:
    """The plan in a sentence."""
    resume, redo = units.count(found.resume), units.count(found.redo)
    survives = ", ".join(found.survives) or "no stage"
    said = f"{resume} resume, {redo} begin anew with their input. Declared to survive: results of {survives}."
    return node("p", said, " Advice: nothing acts on it.", cls="note soft")


def diff_tables(found: Diff, words: str) -> list[Node]:
    """What stands still comes first; of each list the first hundred that have the words."""
    found = found.having(words)
    still = [
        _change(
            each.request,
            node("td", units.age(each.seconds), cls="num"),
            node("td", *sits_in(each.request)),
            node("td", node("div", *open_stages(each.request.open), cls="chips flat")),
        )
        for each in found.still[:MAX_SHOWN]
    ]
    moved = [
        _change(
            each.request,
            node("td", ", ".join(each.finished) or node("span", "none", cls="soft")),
            node("td", ", ".join(each.began) or node("span", "none", cls="soft")),
            node("td", units.count(each.output_tokens), cls="num"),
        )
        for each in found.moved[:MAX_SHOWN]
    ]
    return [
        _list("Stand still", "nothing was heard of them", still, len(found.still), _STILL),
        _list("Moved on", "", moved, len(found.moved), _MOVED),
        _list("Came", "", _passing(found.came), len(found.came), _PASSING),
        _list("Went", "", _passing(found.went), len(found.went), _PASSING),
    ]


_STILL = (
    ("Still for", "since its last mark", "num"),
    ("Sits in", "call, since", ""),
    ("Open stages", "", ""),
)
_MOVED = (("Finished", "stages", ""), ("Began", "stages", ""), ("Tokens", "more than before", "num"))
_PASSING = (("Open stages", "when it was seen", ""), ("Done", "stages", "num"))


def _passing(rows: Sequence[RequestState]) -> list[Node]:
    return [
        _change(
            row,
            node("td", node("div", *open_stages(row.open), cls="chips flat")),
            node("td", units.count(len(row.done)), cls="num"),
        )
        for row in rows[:MAX_SHOWN]
    ]


def _list(
    title: str, words: str, rows: Sequence[Node], count: int, columns: Sequence[tuple[str, str, str]]
) -> Node:
    said = node("span", f" {words}" if words and count else "", cls="soft")
    head = node("h3", f"{title}: {count:,}", said)
    if not rows:
        return node("div", head, cls="change", key=title)
    more = count - len(rows)
    table = node(
        "table",
        node("caption", title, cls="sr-only"),
        heads((("Request", "", ""), ("Endpoint", "and instance", ""), *columns)),
        node("tbody", *rows),
    )
    rest = node("p", f"and {more:,} more", cls="note soft") if more else None
    return node("div", head, table, rest, key=title, cls="change")


def _change(row: RequestState, *cells: Node) -> Node:
    place = node("span", f" {row.instance}", cls="soft")
    head = node("th", node("code", row.id or row.key), scope="row")
    return node("tr", head, node("td", row.endpoint, place), *cells, key=row.key)


def _now(where: Where) -> Node:
    is_here = where.item in ("", NOW)
    head = link(node("strong", "Now"), where.at(""), is_current=is_here)
    compare = None if is_here else _compare(NOW, where)
    line = node("div", head, node("span", "as of the last tick", cls="soft"), compare, cls="snapshot-line")
    return node("li", line, cls="here" if is_here else "", key=NOW)


def _stored(row: StoredRow, where: Where) -> Node:
    is_here = where.item == row.id
    to = where.at(row.id).choosing(**{"with": ""}) if where.choice("with") == row.id else where.at(row.id)
    head = link(moment(row.taken_ns), to.choosing(stage=""), is_current=is_here)
    causes = [chip(f"{kind} {name}", title=name) for kind, name in row.causes[:3]]
    more = [chip(f"+ {len(row.causes) - 3}")] if len(row.causes) > 3 else []
    size = f"{units.count(row.requests)} requests, {units.count(row.threads)} threads"
    line = node(
        "div",
        head,
        node("span", size, cls="soft"),
        None if is_here else _compare(row.id, where),
        cls="snapshot-line",
    )
    return node(
        "li", line, node("div", *causes, *more, cls="chips"), cls="here" if is_here else "", key=row.id
    )


def _compare(item: str, where: Where) -> Node:
    is_chosen = where.choice("with") == item and where.choice("view") == "compare"
    to = where.choosing(view="compare", **{"with": item})
    return link(
        "Compare", to, is_current=is_chosen, cls="button small compare", title="with the one that is shown"
    )


def _plan(row: RequestPlan) -> Node:
    image: Child = ""
    if row.has_image:
        image = "provable" if row.is_provable else node("span", "no digest", cls="flag warning")
    is_resumed = row.decision == "resume"
    return node(
        "tr",
        node("th", node("code", row.id or row.key), scope="row"),
        node("td", row.endpoint, node("span", f" {row.instance}", cls="soft")),
        node(
            "td", node("span", row.decision or "unknown", cls=f"outcome {'ok' if is_resumed else 'refused'}")
        ),
        node("td", node("code", row.resume_at) if row.resume_at else "after the last stage"),
        node("td", ", ".join(row.reuse) or node("span", "nothing", cls="soft")),
        node("td", ", ".join(row.redo) or node("span", "nothing", cls="soft")),
        node("td", units.count(row.output_tokens), cls="num"),
        node("td", image),
        key=row.key,
    )
