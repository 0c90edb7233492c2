# SPDX-License-Identifier: Apache-2.0
"""A table within the width of a terminal, nothing of it cut.

Ids, names, times and numbers with their units stay whole, numbers stand to the right; text folds in its own
column. Where the columns still do not fit beside each other, a row becomes a record: its first value, and
below it the others, each after its column's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_DASH = "—"
_UNIT = r"(?:%|ns|µs|ms|s|min|h|d|tokens?)"
_NUMBER = re.compile(rf"[-+]?\d[\d,.]*(?:e[-+]?\d+)?(?: ?{_UNIT}(?: \d+ ?{_UNIT})*)?")
_TIME = re.compile(r"(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:\.\d+)?Z?")
_WITHIN_NUMBER = re.compile(rf"(?<=\d) (?={_UNIT}(?!\w))")
_GLUE = "\ue000"
"""Stands for a space that no line ends at; text that is plain holds none of them."""
_BAR = re.compile(r"[ █░▒▓]*")
_NARROWEST_TEXT, _LONGEST_WORD = 20, 40
"""Cells that text keeps for itself; a word longer than the second may be folded within."""
_GAP = 1
_INDENT, _BETWEEN = 2, "   "


@dataclass(frozen=True, slots=True)
class Column:
    """Widths in cells: `natural` of its widest value, `least` where its text folds."""

    is_number: bool
    natural: int
    least: int


def laid_out(names: Sequence[str], body: Sequence[Sequence[str]], width: int) -> list[Table | Text | Padding]:
    """What to print, of plain strings; no line of it is wider than `width` cells where a value folds."""
    columns = [
        _column(name, [row[at] for row in body], is_last=at == len(names) - 1)
        for at, name in enumerate(names)
    ]
    widths = _widths(columns, width)
    if widths is None:
        return [line for row in body for line in _record(names, row, width)]
    is_roomy = sum(widths) + 2 * (len(widths) - 1) <= width
    return [_table(names, body, columns, widths, gap=2 if is_roomy else _GAP)]


def is_whole(value: str) -> bool:
    """Whether it is one thing that no line may break: a number with its unit, a time, a bar, a word."""
    return " " not in value or any(kind.fullmatch(value) for kind in (_NUMBER, _TIME, _BAR))


def _column(name: str, values: Sequence[str], *, is_last: bool) -> Column:
    told = [value for value in values if value != _DASH]
    is_number = bool(told) and all(_NUMBER.fullmatch(value) for value in told)
    header = _longest_word(name)
    natural = max(cell_len(name), *(cell_len(value) for value in values))
    folding = [value for value in told if not is_whole(value)]
    if not folding and not (is_last and told and not any(_is_figure(value) for value in told)):
        return Column(is_number, natural, max(header, *(cell_len(value) for value in values)))
    # What is whole beside the text that folds keeps its width, up to that of a long word.
    words = max(_longest_word(value) if value in folding else cell_len(value) for value in values)
    least = max(header, min(words, _LONGEST_WORD), min(natural, _NARROWEST_TEXT))
    return Column(is_number, natural, min(natural, least))


def _is_figure(value: str) -> bool:
    return any(kind.fullmatch(value) for kind in (_NUMBER, _TIME, _BAR))


def _longest_word(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)


def _widths(columns: Sequence[Column], width: int) -> list[int] | None:
    """Room that is left goes to the texts, to the narrowest first; None: too narrow for all of them."""
    widths = [column.least for column in columns]
    left = width - _GAP * (len(columns) - 1) - sum(widths)
    if left < 0:
        return None
    while left > 0:
        wanting = [at for at, column in enumerate(columns) if widths[at] < column.natural]
        if not wanting:
            break
        narrowest = min(wanting, key=lambda at: widths[at])
        widths[narrowest] += 1
        left -= 1
    return widths


def _table(
    names: Sequence[str],
    body: Sequence[Sequence[str]],
    columns: Sequence[Column],
    widths: Sequence[int],
    *,
    gap: int,
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for name, column, width in zip(names, columns, widths, strict=True):
        # `Text`, because a string would be read as markup: `[/red]` in a name ends the program.
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        table.add_column(Text(name), width=width, overflow="fold", justify=justify, vertical="top")
    for row in body:
        table.add_row(*(_folded(Text(value), width) for value, width in zip(row, widths, strict=True)))
    return table


def _record(names: Sequence[str], row: Sequence[str], width: int) -> Iterator[Text | Padding]:
    """The first value in bold, then `name value` pairs, as many in a line as fit."""
    head = Text(f"{names[0]} ", style="dim", overflow="fold")
    yield head.append(row[0], style="not dim bold")
    for pairs in _lines(list(zip(names, row, strict=True))[1:], width - _INDENT):
        line = Text(style="dim", overflow="fold")
        for at, (name, value) in enumerate(pairs):
            line.append((_BETWEEN if at else "") + (f"{name} " if name else ""))
            line.append(value, style="not dim")
        yield Padding(_folded(line, width - _INDENT), (0, 0, 0, _INDENT))


def _folded(text: Text, width: int) -> Text:
    """In lines of `width` cells; a number stays with its unit."""
    text.plain = _WITHIN_NUMBER.sub(_GLUE, text.plain)
    lines = text.wrap(Console(width=width), width, overflow="fold")
    for line in lines:
        line.plain = line.plain.replace(_GLUE, " ")
    return Text("\n").join(lines)


def _lines(pairs: Sequence[tuple[str, str]], width: int) -> Iterator[list[tuple[str, str]]]:
    line: list[tuple[str, str]] = []
    used = 0
    for name, value in pairs:
        needed = cell_len(name) + 1 + cell_len(value)
        # A bar has no name, and a line of its own: so the bars of all records stand below each other.
        if line and (not name or used + len(_BETWEEN) + needed > width):
            yield line
            line, used = [], 0
        used += needed + (len(_BETWEEN) if line else 0)
        line.append((name, value))
    if line:
        yield line
