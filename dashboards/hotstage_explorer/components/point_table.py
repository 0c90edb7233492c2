# SPDX-License-Identifier: Apache-2.0
"""The scene's twin: every endpoint × instance in words and figures, sortable, filtered, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hotstage_explorer import units
from hotstage_explorer.components.node import Child, Node, node
from hotstage_explorer.components.words import barred, chip, known, nothing, quantile, unknown
from hotstage_explorer.picture import HeatPoint, Section

ROWS_A_PAGE = 20


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, what it sorts by (None is last) and what a cell shows."""

    key: str
    title: str
    unit: str
    value: Callable[[HeatPoint], Any]
    cell: Callable[[HeatPoint], Child]
    is_number: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """What the reader asked for."""

    sort: str = "heat"
    is_descending: bool = True
    words: str = ""
    page: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"sort": self.sort, "descending": self.is_descending, "words": self.words, "page": self.page}


def _load(p: HeatPoint) -> Child:
    if p.load_ratio is None:
        return unknown("the instance's CPU or memory load is not measured")
    return barred(min(100.0, p.load_ratio * 100), units.percent(p.load_ratio))


def _share(ratio: float | None) -> Child:
    return known(units.percent(ratio), "not measured yet")


def _host(p: HeatPoint) -> Child:
    if not p.is_old:
        return p.host
    return node("span", p.host, " ", chip("silent", "stale", "no new sample of this host: its last values"))


HOST = Column("host", "Host", "", lambda p: p.host, _host, False)
"""Where there are several."""

COLUMNS = (
    Column("endpoint", "Endpoint", "", lambda p: p.endpoint, lambda p: node("code", p.endpoint), False),
    Column("instance", "Instance", "", lambda p: p.instance, lambda p: p.instance, False),
    Column("modality", "Modality", "", lambda p: p.modality, lambda p: p.modality, False),
    Column(
        "heat",
        "Heat",
        "weighted requests/s",
        lambda p: p.heat,
        lambda p: known(units.significant(p.heat), "no rate yet"),
    ),
    Column(
        "rate",
        "Rate",
        "requests/s",
        lambda p: p.request_rate,
        lambda p: known(units.significant(p.request_rate), "no rate yet"),
    ),
    Column(
        "p95",
        "P95 latency",
        "last 60 s",
        lambda p: p.p95_seconds,
        lambda p: quantile(p.p95_seconds, p.requests),
    ),
    Column("load", "Load", "CPU and memory", lambda p: p.load_ratio, _load),
    Column("cpu", "CPU", "of instance", lambda p: p.cpu_load_ratio, lambda p: _share(p.cpu_load_ratio)),
    Column(
        "memory",
        "Memory",
        "of instance",
        lambda p: p.memory_load_ratio,
        lambda p: _share(p.memory_load_ratio),
    ),
    Column(
        "deviation",
        "Deviation",
        "log2 load ÷ heat",
        lambda p: p.deviation,
        lambda p: known(units.signed(p.deviation), "no load share or no heat share"),
    ),
    Column(
        "requests",
        "Requests",
        "ended",
        lambda p: p.requests,
        lambda p: known(units.count(p.requests), "no count is known"),
    ),
)
_BY_KEY = {column.key: column for column in (*COLUMNS, HOST)}


def view_of(value: Any) -> View:
    """What the browser kept → View; anything unusable falls back to the default."""
    if not isinstance(value, dict):
        return View()
    sort, page = value.get("sort"), value.get("page")
    return View(
        sort if isinstance(sort, str) and sort in _BY_KEY else "heat",
        value.get("descending") is not False,
        str(value.get("words") or "")[:80],
        page if isinstance(page, int) and 0 <= page < 10_000 else 0,
    )


def sorted_by(view: View, column: str) -> View:
    """By `column`, largest first; once more on the same column turns the order round."""
    if column not in _BY_KEY:
        return view
    return View(column, not view.is_descending if column == view.sort else True, view.words)


def filtered(view: View, words: str) -> View:
    return View(view.sort, view.is_descending, words[:80])


def turned(view: View, pages: int) -> View:
    return View(view.sort, view.is_descending, view.words, max(0, view.page + pages))


def arranged(points: tuple[HeatPoint, ...], view: View) -> list[HeatPoint]:
    """Filtered and sorted; unknown values come last whichever way it is sorted."""
    words = view.words.lower().split()
    kept = [p for p in points if all(word in _said_by(p) for word in words)]
    value = _BY_KEY[view.sort].value
    known_ones = [p for p in kept if value(p) is not None]
    known_ones.sort(key=value, reverse=view.is_descending)
    return known_ones + [p for p in kept if value(p) is None]


def point_table(section: Section[tuple[HeatPoint, ...]], view: View) -> tuple[Node, str]:
    """(the table, where its page is in the list: `1–20 of 2,000`)."""
    if not section.value:
        empty = "Not read yet" if section.read_at is None else "No endpoint has served a request yet"
        return nothing(empty), ""
    rows = arranged(section.value, view)
    if not rows:
        return nothing(f"No endpoint, instance or modality matches “{view.words}”"), "0"
    first = min(view.page, (len(rows) - 1) // ROWS_A_PAGE) * ROWS_A_PAGE
    shown = rows[first : first + ROWS_A_PAGE]
    columns = (*COLUMNS[:2], HOST, *COLUMNS[2:]) if any(p.host for p in section.value) else COLUMNS
    table = node(
        "table",
        node("caption", "Endpoint × instance: the same figures as the drawing", cls="sr-only"),
        node("thead", node("tr", *(_head(column, view) for column in columns))),
        node("tbody", *(_row(p, columns) for p in shown)),
    )
    return table, f"{first + 1:,}–{first + len(shown):,} of {len(rows):,}"


def _head(column: Column, view: View) -> Node:
    order = ("descending" if view.is_descending else "ascending") if column.key == view.sort else None
    arrow = {"descending": "↓", "ascending": "↑", None: ""}[order]
    button = node(
        "button",
        node("span", column.title, node("span", arrow, cls="arrow", aria_hidden="true")),
        node("span", column.unit, cls="unit"),
        type="button",
        cls="sort",
        data_sort=column.key,
    )
    return node("th", button, scope="col", cls="num" if column.is_number else "", aria_sort=order)


def _said_by(p: HeatPoint) -> str:
    return f"{p.endpoint} {p.instance} {p.modality} {p.host}".lower()


def _row(p: HeatPoint, columns: tuple[Column, ...]) -> Node:
    head, *others = columns
    return node(
        "tr",
        node("th", head.cell(p), scope="row"),
        *(node("td", column.cell(p), cls="num" if column.is_number else "") for column in others),
        key=p.key,
    )
