# SPDX-License-Identifier: Apache-2.0
"""`hotstage doctor`: what this host can do for hotstage, what is in the way, and the remedy for each."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import hotstage
from hotstage.cli.doctor_checks import (
    Finding,
    Status,
    Surroundings,
    check_capabilities,
    check_compilers,
    check_kernel,
    check_nvml,
    check_tracepoints,
)
from hotstage.cli.doctor_trials import (
    find_libraries,
    tracefs_events,
    try_directory,
    try_libbpf,
    try_port,
    try_sideband,
)
from hotstage.cli.reading import configuration
from hotstage.cli.terminal import print_json
from hotstage.config.settings import Config

_MARKS = {
    Status.OK: ("ok", "green"),
    Status.ABSENT: ("–", "dim"),
    Status.WARN: ("warn", "yellow"),
    Status.FAIL: ("FAIL", "red"),
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--strict", is_flag=True, help="Exit 3 when anything is less than fine.")
def doctor(as_json: bool, strict: bool) -> int:
    """Look, try, and say what to do. Exit 0 fine, 3 degraded (--strict), 4 cannot run, 5 a permission is
    missing.
    """
    findings = list(examine(configuration()))
    code = exit_code(findings, strict=strict)
    if as_json:
        print_json(report(findings, code))
    else:
        show(findings)
        click.echo(summary(findings))
    return code


def examine(config: Config) -> Iterator[Finding]:
    """Every finding, in the order in which one would ask."""
    at = Surroundings(Path("/"), platform.release(), None)
    yield from check_kernel(at)
    yield from check_capabilities(at)
    yield from try_libbpf()
    yield from try_sideband()
    yield from check_compilers(at, checkout())
    yield from check_tracepoints(tracefs_events())
    yield from find_libraries(Path(config.probes.proc_root))
    yield from check_nvml(at, config.devices.library_directory)
    yield from try_port("API", config.http.listen)
    yield from try_port("explorer", config.explore.listen)
    yield from try_directory("state directory", config.store.directory)


def exit_code(findings: Sequence[Finding], *, strict: bool) -> int:
    """A missing right explains other failures, so it goes first."""
    failed = [finding for finding in findings if finding.status is Status.FAIL]
    if any(finding.is_permission for finding in failed):
        return 5
    if failed:
        return 4
    return 3 if strict and any(finding.status is Status.WARN for finding in findings) else 0


def report(findings: Sequence[Finding], code: int) -> dict[str, Any]:
    """The machine's form: counts by status, and every finding with its remedy."""
    counts = {status.value: sum(finding.status is status for finding in findings) for status in Status}
    status = "failed" if counts["fail"] else "degraded" if counts["warn"] else "ok"
    return {
        "hotstage": hotstage.__version__,
        "status": status,
        "exit_code": code,
        "counts": counts,
        "findings": [
            {
                "area": finding.area,
                "name": finding.name,
                "status": finding.status.value,
                "detail": finding.detail,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }


def summary(findings: Sequence[Finding]) -> str:
    """The verdict in one line."""
    failed = sum(finding.status is Status.FAIL for finding in findings)
    warned = sum(finding.status is Status.WARN for finding in findings)
    if failed:
        return f"hotstage cannot run here; in the way: {failed}"
    return (
        f"hotstage runs here; limited by the findings marked warn: {warned}"
        if warned
        else "hotstage runs here"
    )


def show(findings: Sequence[Finding]) -> None:
    """A table on a terminal, plain lines elsewhere; colours only where they are wanted (rich honours
    NO_COLOR).
    """
    if not sys.stdout.isatty():
        for finding in findings:
            remedy = f"\tremedy: {finding.remedy}" if finding.remedy else ""
            click.echo(
                f"{_MARKS[finding.status][0]}\t{finding.area}\t{finding.name}\t{finding.detail}{remedy}"
            )
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "area", "what", "finding"):
        table.add_column(column, overflow="fold")
    area = ""
    for finding in findings:
        word, colour = _MARKS[finding.status]
        detail = Text(finding.detail)
        if finding.remedy:
            detail.append(f"\n→ {finding.remedy}", style="italic")
        shown = finding.area if finding.area != area else ""
        area = finding.area
        table.add_row(Text(word, style=colour), shown, finding.name, detail)
    Console().print(table)


def checkout() -> Path | None:
    """The source tree that this package is run from; None for an installed one."""
    root = Path(hotstage.__file__).resolve().parents[2]
    return root if (root / "bpf" / "Makefile").exists() else None
