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
from decimal import Decimal
from typing import Any

import click

DASH = "—"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
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

    On a terminal nothing is cut: see `hotstage.cli.table`.
    """
    names = [plain(column) for column in columns]
    body = [[cell(value) for value in row] for row in rows]
    if not body:
        say(empty)
        return
    if not sys.stdout.isatty():
        for line in [names, *body]:
            click.echo("\t".join(line))
        return
    from rich.console import Console

    from hotstage.cli.table import laid_out

    console = Console()
    for shown in laid_out(names, body, console.width):
        console.print(shown)


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
    """A duration with its unit: `37.4 µs`, `12.3 ms`, `1.2 s`, `2 min 5 s`, `1 h 2 min`, `3 d 4 h`."""
    if value is None or not math.isfinite(value):
        return DASH
    # What three digits would make a thousand of is of the larger unit.
    if 0 < abs(value) < 0.00009995:
        return f"{_short(value * 1e6)} µs"
    if abs(value) < 0.9995:
        return f"{_short(value * 1e3)} ms"
    return f"{_short(value)} s" if abs(value) < 99.95 else _long(value)


def _long(value: float) -> str:
    """From 100 s up: two units, the smaller one rounded."""
    sign = "-" if value < 0 else ""
    for larger, smaller, length, parts, limit in (
        ("min", "s", 1, 60, 3600),
        ("h", "min", 60, 60, 1440),
        ("d", "h", 3600, 24, math.inf),
    ):
        whole = round(abs(value) / length)
        if whole < limit:
            return f"{sign}{whole // parts} {larger} {whole % parts} {smaller}"
    raise AssertionError("the last limit is infinite")


def _short(value: float) -> str:
    """Three digits, or all of a whole part that has more, never an exponent: `1.23`, `3600`, `0.0000123`."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{Decimal(f'{value:.3g}'):f}"


def size(count: float | None) -> str:
    """`1.5 GiB`; bytes without a fraction."""
    if count is None:
        return DASH
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def clock_time(value: str | None) -> str:
    """An RFC 3339 time in UTC, for tables: `02:19:54Z`, after its date where that is not today."""
    if value is None:
        return DASH
    is_today = value[:10] == f"{datetime.now(UTC):%Y-%m-%d}"
    return f"{value[11:19]}Z" if is_today else f"{value[:10]} {value[11:19]}Z"


def entity(value: Mapping[str, Any]) -> str:
    """`stage=vision_encode modality=image`."""
    return " ".join(f"{key}={part}" for key, part in value.items() if part is not None)
