# SPDX-License-Identifier: Apache-2.0
"""How values look to a person: tables on a terminal, tabs elsewhere; what is unknown is a dash."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

DASH = "—"


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[Any]], *, empty: str) -> None:
    """A table on a terminal, tab-separated lines elsewhere; `empty` is said when there are no rows.

    Only the last column wraps: ids, times and names stay whole.
    """
    body = [[cell(value) for value in row] for row in rows]
    if not body:
        click.echo(empty)
        return
    if not sys.stdout.isatty():
        for line in [list(columns), *body]:
            click.echo("\t".join(line))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    *whole, last = columns
    for column in whole:
        table.add_column(column, no_wrap=True, overflow="ignore")
    table.add_column(last, overflow="fold")
    for line in body:
        table.add_row(*line)
    Console().print(table)


def cell(value: Any) -> str:
    """One value as text; what is unknown is a dash, never 0."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def seconds(value: float | None) -> str:
    """A duration with its unit: `12.3 ms`, `1.20 s`."""
    if value is None:
        return DASH
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def clock_time(value: str | None) -> str:
    """The time of day of an RFC 3339 date, for tables; the date is in the JSON."""
    return DASH if value is None else value[11:19]


def entity(value: Mapping[str, Any]) -> str:
    """`stage=vision_encode modality=image`."""
    return " ".join(f"{key}={part}" for key, part in value.items() if part is not None)
