# SPDX-License-Identifier: Apache-2.0
"""What a run found: checks that passed, failed or could not run, figures with unit and basis. Values only."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

VERSION = 1
PASSED, FAILED, INCOMPLETE = 0, 1, 3
"""Exit codes: all passed, something failed, parts could not run here."""

Value = float | int | str | bool | None


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"


_LOUD = {Outcome.FAILED: "FAILED", Outcome.NOT_RUN: "not run"}


@dataclass(frozen=True, slots=True)
class Check:
    """One statement and whether it held; `detail` says what was seen, or why nothing was."""

    name: str
    outcome: Outcome
    detail: str


@dataclass(slots=True)
class Section:
    """One stage of the run, filled while it runs: what was written stays, however it ends."""

    name: str
    question: str
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, dict[str, Value]] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None

    def check(self, name: str, holds: bool, detail: str = "") -> bool:
        """Record whether a statement holds; returns that."""
        self.checks.append(Check(name, Outcome.PASSED if holds else Outcome.FAILED, detail))
        return holds

    def not_run(self, name: str, reason: str) -> None:
        self.checks.append(Check(name, Outcome.NOT_RUN, reason))

    def figure(self, name: str, value: Value, unit: str, basis: str) -> None:
        """A number with its unit and how it was come by; None when it is unknown."""
        self.figures[name] = {"value": value, "unit": unit, "basis": basis}

    def table(self, name: str, rows: Any) -> None:
        """Anything longer, as JSON."""
        self.tables[name] = rows

    @property
    def outcome(self) -> Outcome:
        outcomes = {check.outcome for check in self.checks}
        if Outcome.FAILED in outcomes:
            return Outcome.FAILED
        return Outcome.PASSED if Outcome.PASSED in outcomes else Outcome.NOT_RUN

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "question": self.question,
            "outcome": self.outcome.value,
            "seconds": self.seconds,
            "checks": [
                {"name": each.name, "outcome": each.outcome.value, "detail": each.detail}
                for each in self.checks
            ],
            "figures": self.figures,
            "tables": self.tables,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The whole run."""

    host: dict[str, Any]
    is_dry_run: bool
    stages: tuple[Section, ...]

    def exit_code(self) -> int:
        outcomes = {check.outcome for stage in self.stages for check in stage.checks}
        if Outcome.FAILED in outcomes:
            return FAILED
        has_empty = any(not stage.checks for stage in self.stages)
        return INCOMPLETE if Outcome.NOT_RUN in outcomes or has_empty else PASSED

    def document(self) -> dict[str, Any]:
        return {
            "report": "hotstage-gpu",
            "version": VERSION,
            "dry_run": self.is_dry_run,
            "exit_code": self.exit_code(),
            "host": self.host,
            "stages": [stage.document() for stage in self.stages],
        }

    def write(self, folder: Path) -> None:
        """report.json and summary.txt, whole or not at all."""
        for name, text in (
            ("report.json", json.dumps(self.document(), indent=1) + "\n"),
            ("summary.txt", self.summary()),
        ):
            scratch = folder / f".{name}"
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(folder / name)

    def summary(self) -> str:
        """For people: what failed or could not run in full, the rest by number, every figure."""
        lines = [_headline(self.host, self.is_dry_run)]
        for stage in self.stages:
            took = "" if stage.seconds is None else f" in {stage.seconds:.1f} s"
            passed = sum(check.outcome is Outcome.PASSED for check in stage.checks)
            lines.append(
                f"\n{stage.name}: {stage.outcome.value}{took}, {passed} of {len(stage.checks)} checks passed"
            )
            lines += [
                f"  {_LOUD[check.outcome]}: {check.name}: {check.detail}"
                for check in stage.checks
                if check.outcome is not Outcome.PASSED
            ]
            lines += [f"  {name} = {_shown(figure)}" for name, figure in stage.figures.items()]
        return "\n".join(lines) + f"\n\nexit code {self.exit_code()}\n"


def _headline(host: dict[str, Any], is_dry_run: bool) -> str:
    kind = (
        "DRY RUN on simulated libraries: no figure here is a GPU's"
        if is_dry_run
        else "hotstage on a real GPU"
    )
    place = f"driver {host.get('driver')}, kernel {host.get('kernel')}, {host.get('cpu')}"
    return f"{kind}\n{host.get('gpu')}, {place}"


def _shown(figure: dict[str, Value]) -> str:
    value = figure["value"]
    if value is None:
        return "unknown"
    text = (
        f"{value:,.4g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )
    return f"{text} {figure['unit']}".strip()
