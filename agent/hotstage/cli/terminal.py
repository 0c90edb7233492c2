# SPDX-License-Identifier: Apache-2.0
"""How values look to a person: tables on a terminal, tabs elsewhere; what is unknown is a dash.

Names come from strangers (any process that marks a request, any receiver of a webhook), so this is the one
place where text reaches a terminal: it is never read as markup, and none of it controls the terminal.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

DASH = "—"
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON allows as it is, and a terminal or its encoder does not take well."""


def plain(text: str) -> str:
    """The text in one line, `?` for each character that controls, is invisible, or is half of one."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def say(text: str, *, err: bool = False) -> None:
    """Lines for a person, each of them plain."""
    click.echo("\n".join(plain(line) for line in text.split("\n")), err=err)


def print_json(value: Any) -> None:
    """The value as it is: what a terminal would obey is escaped, which JSON reads as the same."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(_RAW_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text))


def print_json_line(value: Any) -> None:
    """The same in one line, for values that come one after the other."""
    text = json.dumps(value, ensure_ascii=False)
    click.echo(_RAW_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[Any]], *, empty: str) -> None:
    """A table on a terminal, tab-separated lines elsewhere; `empty` is said when there are no rows.

    Only the last column wraps: ids, times and names stay whole.
    """
    body = [[cell(value) for value in row] for row in rows]
    if not body:
        say(empty)
        return
    if not sys.stdout.isatty():
        for line in [[plain(column) for column in columns], *body]:
            click.echo("\t".join(line))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    # `Text`, because a string would be read as markup: `[/red]` in a name ends the program, `[red]` vanishes.
    *whole, last = (Text(plain(column)) for column in columns)
    for column in whole:
        table.add_column(column, no_wrap=True, overflow="ignore")
    table.add_column(last, overflow="fold")
    for line in body:
        table.add_row(*(Text(part) for part in line))
    Console().print(table)


def cell(value: Any) -> str:
    """One value as plain text; what is unknown is a dash, never 0."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _short(value)
    return plain(str(value))


def seconds(value: float | None) -> str:
    """A duration with its unit: `12.3 ms`, `1.2 s`, `3600 s`."""
    if value is None or not math.isfinite(value):
        return DASH
    # What three digits would make a thousand of is of the larger unit.
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{_short(value)} s"


def _short(value: float) -> str:
    """Three digits, or all of a whole part that has more: `1.23`, `3600`; never `3.6e+03`."""
    return f"{value:.0f}" if 999.5 <= abs(value) < 1e12 else f"{value:.3g}"


def clock_time(value: str | None) -> str:
    """An RFC 3339 time in UTC, for tables: its time of day, after its date where that is not today."""
    if value is None:
        return DASH
    is_today = value[:10] == f"{datetime.now(UTC):%Y-%m-%d}"
    return value[11:19] if is_today else f"{value[:10]} {value[11:19]}"


def entity(value: Mapping[str, Any]) -> str:
    """`stage=vision_encode modality=image`."""
    return " ".join(f"{key}={part}" for key, part in value.items() if part is not None)
