# SPDX-License-Identifier: Apache-2.0
"""How findings look to a person: a table by groups on a terminal, plain lines elsewhere; and the progress.

Colours only where they are wanted (rich honours NO_COLOR); progress goes to standard error, on a terminal
only.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

import click

from hotstage.cli.doctor.finding import Finding, Status
from hotstage.cli.doctor.report import clean
from hotstage.cli.doctor.run import Check

MARKS = {
    Status.OK: ("ok", "green"),
    Status.ABSENT: ("–", "dim"),
    Status.WARN: ("warn", "yellow"),
    Status.FAIL: ("FAIL", "red"),
    Status.UNKNOWN: ("?", "magenta"),
}

LEGEND = "ok: as it should be  –: absent, not missed  ?: not checked  warn: less than fine  FAIL: in the way"
_TO_MEND = (Status.FAIL, Status.WARN, Status.UNKNOWN)
"""In this order at the end."""


def show(findings: Sequence[Finding]) -> None:
    """All findings; tab-separated lines (mark, group, name, detail, remedy) where nobody looks."""
    if sys.stdout.isatty():
        _table(findings)
        return
    for finding in findings:
        remedy = f"\tremedy: {clean(finding.remedy)}" if finding.remedy else ""
        mark = MARKS[finding.status][0]
        click.echo(f"{mark}\t{finding.area}\t{clean(finding.name)}\t{clean(finding.detail)}{remedy}")


def _table(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "group", "what", "finding"):
        table.add_column(column, overflow="fold")
    area = None
    for finding in findings:
        if area is not None and finding.area is not area:
            table.add_row("", "", "", "")
        word, colour = MARKS[finding.status]
        detail = Text(clean(finding.detail))
        if finding.status is not Status.OK and finding.features:
            detail.append(f"\n  concerns: {', '.join(finding.features)}", style="dim")
        if finding.remedy:
            detail.append(f"\n→ {clean(finding.remedy)}", style="italic")
        shown = "" if finding.area is area else finding.area.value
        area = finding.area
        table.add_row(Text(word, style=colour), Text(shown, style="bold"), Text(clean(finding.name)), detail)
    Console().print(table)


def recall(findings: Sequence[Finding]) -> None:
    """What the marks mean, and once more what is less than fine, the worst first, each with its remedy.

    On a terminal only: the plain lines hold the remedies, and programs count them.
    """
    if not sys.stdout.isatty():
        return
    click.echo(LEGEND)
    for status in _TO_MEND:
        for finding in findings:
            if finding.status is status:
                remedy = f"\n      → {clean(finding.remedy)}" if finding.remedy else ""
                where = f"{finding.area}: {clean(finding.name)}"
                click.echo(f"{MARKS[status][0]:<4}  {where}: {clean(finding.detail)}{remedy}")


@contextlib.contextmanager
def progress(total: int, *, is_wanted: bool) -> Iterator[Callable[[Check], None]]:
    """Yields what to call for each check that has ended; says nothing where nobody looks."""
    if not (is_wanted and sys.stderr.isatty()):
        yield lambda check: None
        return
    from rich.console import Console

    done = 0
    with Console(stderr=True).status(f"looking: {total} checks") as status:

        def tell(check: Check) -> None:
            nonlocal done
            done += 1
            status.update(f"looking: {done} of {total} checks, {check.area.value}: {check.name}")

        yield tell
