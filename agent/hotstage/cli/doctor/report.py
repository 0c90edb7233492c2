# SPDX-License-Identifier: Apache-2.0
"""The verdict of all findings: the JSON report, the exit code and the closing line. Pure.

The report's shape is `tests/contracts/schemas/doctor.json`: keys are added, never renamed or removed; new
names and `data` keys of findings may come with any version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import hotstage
from hotstage.cli.doctor.finding import Finding, Status
from hotstage.cli.doctor.run import Outcome
from hotstage.cli.terminal import plain

TEXT_LIMIT = 2000


def all_findings(outcomes: Iterable[Outcome]) -> list[Finding]:
    return [finding for outcome in outcomes for finding in outcome.findings]


def exit_code(findings: Sequence[Finding], *, strict: bool) -> int:
    """5 a right is missing (it explains other failures, so it goes first), 4 cannot run, 3 less than fine
    under `strict`, else 0.
    """
    failed = [finding for finding in findings if finding.status is Status.FAIL]
    if any(finding.is_permission for finding in failed):
        return 5
    if failed:
        return 4
    is_less = any(finding.status in (Status.WARN, Status.UNKNOWN) for finding in findings)
    return 3 if strict and is_less else 0


def report(outcomes: Sequence[Outcome], code: int, seconds: float) -> dict[str, Any]:
    """The machine's form: counts by status, and every finding with what was looked at and its remedy."""
    findings = all_findings(outcomes)
    counts = {status.value: sum(finding.status is status for finding in findings) for status in Status}
    is_less = counts["warn"] or counts["unknown"]
    return {
        "hotstage": hotstage.__version__,
        "status": "failed" if counts["fail"] else "degraded" if is_less else "ok",
        "exit_code": code,
        "seconds": round(seconds, 3),
        "counts": counts,
        "findings": [
            _finding(finding, outcome.check.looks_at) for outcome in outcomes for finding in outcome.findings
        ],
    }


def summary(findings: Sequence[Finding], seconds: float) -> str:
    """The verdict in one line."""
    counts = {status: sum(finding.status is status for finding in findings) for status in Status}
    told = ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status])
    figures = f"{told}; {seconds:.1f} s"
    if counts[Status.FAIL]:
        return f"hotstage cannot run here, or not in full; in the way: {counts[Status.FAIL]} ({figures})"
    limits = counts[Status.WARN] + counts[Status.UNKNOWN]
    unknown = [clean(finding.name) for finding in findings if finding.status is Status.UNKNOWN]
    if unknown:
        return (
            f"hotstage runs here as far as that was checked; less than fine or not known: {limits};"
            f" not checked: {', '.join(unknown)} ({figures})"
        )
    if limits:
        return f"hotstage runs here; less than fine: {limits} ({figures})"
    return f"hotstage runs here ({figures})"


def clean(text: str) -> str:
    """Names of processes and files come from strangers: no control character reaches a terminal."""
    return plain(text[:TEXT_LIMIT])


def _finding(finding: Finding, looked_at: str) -> dict[str, Any]:
    return {
        "area": finding.area.value,
        "name": clean(finding.name),
        "status": finding.status.value,
        "detail": clean(finding.detail),
        "remedy": clean(finding.remedy) if finding.remedy else None,
        "is_permission": finding.is_permission,
        "looked_at": looked_at,
        "features": list(finding.features),
        "data": _clean_data(finding.data),
    }


def _clean_data(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _clean_data(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_data(part) for part in value]
    return value
