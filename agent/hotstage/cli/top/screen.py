# SPDX-License-Identifier: Apache-2.0
"""A moment of a host as lines of at most so many cells: what stands above the table, the table, the keys.

Where there is no room, what matters least goes: whole parts of a line, whole columns, rows that keys can
reach. Pure: nothing is asked or printed here.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len, set_cell_size

from hotstage.api.top_types import Top
from hotstage.cli.terminal import clock_time, plain, seconds, size
from hotstage.cli.top.views import PROCESSES, Column, Style, View, rate, share

Span = tuple[str, Style]
Line = tuple[Span, ...]

LOSSES_SHOWN = 3
_GAP = "  "
_NAME_CELLS = 18
"""What a column of text keeps at least of its values."""
_FIGURE_CELLS = 5
"""What a column of figures has at least, so that columns stand still while figures change."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the person at the keys has chosen; `sort` by view, where it is not the view's own."""

    view: View = PROCESSES
    sort: dict[str, str | None] = field(default_factory=dict)
    first_row: int = 0

    @property
    def sorted_by(self) -> str | None:
        return self.sort.get(self.view.name, self.view.sort)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no newer answer, and for how long there is none."""

    message: str
    remedy: str | None
    seconds: float


def heading(top: Top, width: int) -> list[Line]:
    """How it stands, what is watched and what is not, what that costs, the host's sums, and what was lost: a
    line each, as much of it as fits.
    """
    host = top.host
    kinds = ", ".join(dict.fromkeys(host.windows_open))
    is_off = host.probes == "off"
    left_out = _left_out(top)
    lines = [
        _line(
            [
                (f"host {host.host}", "bold"),
                (f"rung {host.rung}, {host.loader}", ""),
                (f"probes {host.probes}", "warning" if is_off else ""),
                (f"windows open {len(host.windows_open)}{f': {kinds}' if kinds else ''}", _warn(kinds)),
                (clock_time(top.at), "dim"),
            ],
            width,
        ),
        _line(
            [
                (f"watched: {host.processes_watched} processes", ""),
                (f"left out: {left_out or 'none'}", _warn(left_out)),
                *_cost(top),
                (f"agent {share(host.agent_cpu_ratio)} of a core, {size(host.agent_rss_bytes)}", ""),
            ],
            width,
        ),
        _line(
            [
                ("means of 10 s:", "dim"),
                (f"{rate(host.launches_per_second)} launches/s", ""),
                (f"{rate(host.calls_per_second)} calls/s", ""),
                (f"{rate(host.errors_per_second)} errors/s", _warn(host.errors_per_second)),
                (f"without a stage {share(host.unattributed_ratio)}", ""),
                (f"now: requests in flight {rate(host.requests_in_flight)}", ""),
            ],
            width,
        ),
    ]
    if is_off:
        since = f" since {clock_time(host.probes_off_since)}" if host.probes_off_since else ""
        lines.append(
            _cut(
                [(f"nothing is seen{since}: {plain(host.probes_reason or 'the probes are off')}", "warning")],
                width,
            )
        )
    if host.stale:
        lines.append(_cut([(f"too old to be shown: {', '.join(host.stale)}", "warning")], width))
    return lines + _losses(top, width)


def table(top: Top, choice: Choice, width: int, height: int | None = None) -> list[Line]:
    """The chosen view: its header, then `height` rows from the first that is to be shown; None: all."""
    rows = choice.view.sorted(top, choice.sorted_by)
    if not rows:
        return [_cut([(choice.view.empty, "dim")], width)]
    shown = rows[choice.first_row :][:height]
    fit = _fitting(choice.view.columns, rows, choice.sorted_by, width)
    names = [_aligned(_name(column, choice.sorted_by), column, cells) for column, cells in fit.columns]
    lines = [_cut([(fit.gap.join(names).ljust(width), "reverse")], width)]
    for row in shown:
        spans: list[Span] = []
        for column, cells in fit.columns:
            text = _aligned(column.text(row), column, cells)
            spans += [(fit.gap, ""), (text, "warning" if column.is_warning(row) else "")]
        lines.append(_cut(spans[1:], width))
    return lines


def screen(
    top: Top, choice: Choice, size: tuple[int, int], views: Iterable[View], trouble: Trouble | None = None
) -> list[Line]:
    """All lines of a terminal of (width, height): never more, never wider."""
    width, height = size
    above = [*(_told(trouble, width) if trouble else ()), *heading(top, width)]
    room = max(1, height - len(above) - 2)  # a header of the table, a line of keys
    rows = len(choice.view.rows(top))
    lines = [*above, *table(top, choice, width, room)][: height - 1]
    lines += [()] * (height - 1 - len(lines))
    return [*lines, _keys(choice, views, rows, room, width)]


def last_first_row(top: Top, choice: Choice, size: tuple[int, int], trouble: Trouble | None) -> int:
    """How far the rows can be moved: until the last one stands at the bottom."""
    above = len(heading(top, size[0])) + (len(_told(trouble, size[0])) if trouble else 0)
    return max(0, len(choice.view.rows(top)) - max(1, size[1] - above - 2))


def _left_out(top: Top) -> str:
    """`2 off, 1 failed`: processes of which not all is watched; `hotstage coverage` has the reasons."""
    told = Counter(each.state for each in top.processes if each.state not in (None, "attached"))
    return ", ".join(f"{count} {plain(str(state))}" for state, count in told.most_common())


def _cost(top: Top) -> list[Span]:
    """What the probes cost the dearest process, and what is done about it."""
    host = top.host
    known = [each.probe_cost_ratio for each in top.processes if each.probe_cost_ratio is not None]
    spared = sum(each.probe_level not in (None, "full") for each in top.processes)
    cost = f"probes cost at most {share(max(known))} of a process" if known else "probes' cost unknown"
    if host.probes == "off":
        return []
    if host.governor == "off":
        return [("governor off", "warning"), (cost, "")]
    if host.governor is None or host.governor_limit_ratio is None:
        return [(cost, "")]
    return [
        (cost, ""),
        (f"governor on, limit {host.governor_limit_ratio:.0%}, {spared} spared", _warn(spared)),
    ]


def _losses(top: Top, width: int) -> list[Line]:
    if top.losses is None:
        return [_cut([("losses: unknown until the next look", "dim")], width)]
    within = seconds(top.interval_seconds)
    if not top.losses:
        return [_cut([(f"losses in the last {within}: none", "")], width)]
    lines = [
        _cut(
            [
                (
                    f"lost in {within}: {plain(each.name)} {each.count}, may falsify: {each.falsifies}",
                    "warning",
                )
            ],
            width,
        )
        for each in top.losses[:LOSSES_SHOWN]
    ]
    more = len(top.losses) - LOSSES_SHOWN
    if more > 0:
        lines.append(_cut([(f"and {more} more kinds: `hotstage coverage` tells them", "warning")], width))
    return lines


def _told(trouble: Trouble, width: int) -> list[Line]:
    age = seconds(trouble.seconds)
    lines = [_cut([(f"no answer for {age}: {plain(trouble.message)}", "warning")], width)]
    if trouble.remedy:
        lines += [
            _cut([(f"  remedy: {text}", "warning")], width) for text in _folded(trouble.remedy, width - 10)
        ]
    return lines


def _folded(text: str, width: int) -> list[str]:
    return textwrap.wrap(plain(text), max(10, width), max_lines=3, placeholder=" …")


def _keys(choice: Choice, views: Iterable[View], rows: int, room: int, width: int) -> Line:
    parts: list[Span] = [("q quit", "bold")]
    parts += [(f"{view.key} {view.name}", "bold" if view is choice.view else "") for view in views]
    parts.append((f"s sort: {choice.sorted_by or 'as they come'}", ""))
    if rows > room:
        last = min(rows, choice.first_row + room)
        parts.append((f"j k rows {choice.first_row + 1}-{last} of {rows}", ""))
    parts.append(("100% = one thread, mean of 10 s, of returned calls; + what is in flight", "dim"))
    return _line(parts, width)


def _name(column: Column, sorted_by: str | None) -> str:
    return f"{column.name}▾" if column.name == sorted_by else column.name


@dataclass(frozen=True, slots=True)
class _Fit:
    """Columns that have room, each with its cells, and what stands between them."""

    columns: list[tuple[Column, int]]
    gap: str


def _fitting(columns: Sequence[Column], rows: Sequence[Any], sorted_by: str | None, width: int) -> _Fit:
    """The gaps shrink first, then the least important columns go; texts have what is left."""
    natural = {
        column.name: max(
            _FIGURE_CELLS if column.is_number else 0,
            cell_len(_name(column, sorted_by)),
            *(cell_len(column.text(row)) for row in rows),
        )
        for column in columns
    }
    least = {
        column.name: natural[column.name] if column.is_number else min(natural[column.name], _NAME_CELLS)
        for column in columns
    }

    def left_of(chosen: Sequence[Column], gap: str) -> int:
        return width - sum(least[each.name] for each in chosen) - len(gap) * (len(chosen) - 1)

    chosen = list(columns)
    gap = _GAP if left_of(chosen, _GAP) >= 0 else " "
    while len(chosen) > 1 and left_of(chosen, gap) < 0:
        chosen.remove(max(reversed(chosen), key=lambda each: each.rank))
    left = left_of(chosen, gap)
    fitted = []
    for each in chosen:
        more = min(max(left, 0), natural[each.name] - least[each.name])
        left -= more
        fitted.append((each, least[each.name] + more))
    return _Fit(fitted, gap)


def _aligned(text: str, column: Column, cells: int) -> str:
    missing = cells - cell_len(text)
    if missing < 0:
        return set_cell_size(text, max(cells - 1, 0)) + "…"
    return " " * missing + text if column.is_number else text + " " * missing


def _line(parts: Sequence[Span], width: int) -> Line:
    """As many of the parts as fit, whole, the first ones before the others."""
    spans: list[Span] = []
    used = 0
    for told, style in parts:
        text = plain(told)
        needed = cell_len(text) + (len(_GAP) if spans else 0)
        if spans and used + needed > width:
            continue
        spans += [(_GAP, ""), (text, style)] if spans else [(text, style)]
        used += needed
    return _cut(spans, width)


def _cut(spans: Sequence[Span], width: int) -> Line:
    line: list[Span] = []
    left = width
    for text, style in spans:
        if left <= 0:
            break
        cells = cell_len(text)
        line.append((text if cells <= left else set_cell_size(text, left - 1) + "…", style))
        left -= cells
    return tuple(line)


def _warn(value: object) -> Style:
    return "warning" if value else ""
