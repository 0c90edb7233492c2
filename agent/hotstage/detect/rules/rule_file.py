# SPDX-License-Identifier: Apache-2.0
"""Rule files: TOML in the shape of Prometheus alerting rules → checked rules, and every problem by name.

A broken rule never stops the others; a broken file never stops the other files.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hotstage.config.source import parse_toml, read_text
from hotstage.detect.finding import Severity
from hotstage.detect.rules.expression import Expression, ExpressionError, parse, seconds_of
from hotstage.errors import ConfigError
from hotstage.frame.entity import EntityKind

DEFAULT_FILE = Path(__file__).with_name("default.rules.toml")

FILES_MAX = 256
"""Files that one pattern may match."""

_KEYS = ("alert", "expr", "entity", "for", "keep_firing_for", "labels", "annotations")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One alerting rule. Durations are seconds; `kind` is the entity it is evaluated for, each one apart."""

    name: str
    expression: Expression
    kind: EntityKind
    for_seconds: float
    keep_firing_seconds: float
    severity: Severity
    labels: Mapping[str, str]
    summary: str
    source: str


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """Why a rule or a file was left out."""

    source: str
    rule: str
    message: str
    position: int | None = None
    """Character in `expr`, from 0."""

    def __str__(self) -> str:
        where = "" if self.position is None else f", expr position {self.position + 1}"
        return f"{self.source}: rule {self.rule!r}{where}: {self.message}"


class _BadRuleError(ValueError):
    pass


def load_rules(
    patterns: Iterable[str], *, builtin: bool = True
) -> tuple[tuple[Rule, ...], tuple[RuleProblem, ...]]:
    """Rules of the built-in file and of every file that matches; a name that comes twice is refused."""
    rules: dict[str, Rule] = {}
    problems: list[RuleProblem] = []
    for path in _files(patterns, builtin, problems):
        try:
            content = parse_toml(read_text(path), path)
        except ConfigError as error:
            reason = error.message.removeprefix(f"{path}: ")
            problems.append(RuleProblem(str(path), "-", f"cannot be read: {reason}"))
            continue
        for number, entry in enumerate(_entries(content, path, problems), 1):
            name = (
                str(entry.get("alert", f"number {number}")) if isinstance(entry, dict) else f"number {number}"
            )
            try:
                rule = _rule(entry, str(path))
                if rule.name in rules:
                    raise _BadRuleError(f"there is one of this name in {rules[rule.name].source} already")
                rules[rule.name] = rule
            except ExpressionError as error:
                problems.append(RuleProblem(str(path), name, error.message, error.position))
            except _BadRuleError as error:
                problems.append(RuleProblem(str(path), name, str(error)))
    return tuple(rules.values()), tuple(problems)


def _files(patterns: Iterable[str], builtin: bool, problems: list[RuleProblem]) -> list[Path]:
    files = [DEFAULT_FILE] if builtin else []
    for pattern in patterns:
        if "**" in pattern:
            problems.append(
                RuleProblem(pattern, "-", "`**` would walk a whole tree of directories; name each of them")
            )
            continue
        found = sorted(islice(glob.iglob(pattern), FILES_MAX + 1))  # noqa: PTH207  # an absolute pattern
        if len(found) > FILES_MAX:
            problems.append(
                RuleProblem(pattern, "-", f"matches more than {FILES_MAX} files; make it narrower")
            )
            continue
        if not found and not glob.has_magic(pattern):
            problems.append(RuleProblem(pattern, "-", "no such file"))
        elif not found and (closed := _closed(pattern)):
            problems.append(RuleProblem(pattern, "-", closed))
        files += [Path(name) for name in found]
    return files


def _closed(pattern: str) -> str | None:
    """Why a pattern without a match may yet have one: `glob` is silent on what it may not read."""
    directory = Path(pattern)
    while glob.has_magic(str(directory)):
        directory = directory.parent
    try:
        os.scandir(directory).close()
    except PermissionError as error:
        return f"{directory}: {error.strerror}"
    except OSError:
        pass
    return None


def _entries(content: Mapping[str, Any], path: Path, problems: list[RuleProblem]) -> list[Any]:
    for key in content.keys() - {"rules"}:
        problems.append(RuleProblem(str(path), "-", f"unknown key `{key}`; rules are written [[rules]]"))
    entries = content.get("rules", [])
    if not isinstance(entries, list):
        problems.append(RuleProblem(str(path), "-", "`rules` must be a list: [[rules]]"))
        return []
    return entries


def _rule(entry: Any, source: str) -> Rule:
    if not isinstance(entry, dict):
        raise _BadRuleError("not a table")
    for key in entry:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.0)[0]
            raise _BadRuleError(f"unknown key `{key}`; the nearest is `{near}`")
    name, text = entry.get("alert"), entry.get("expr")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _BadRuleError("`alert` must be a name of letters, digits and _")
    if not isinstance(text, str):
        raise _BadRuleError("`expr` is missing")
    expression = parse(text)
    labels = _strings(entry, "labels")
    annotations = _strings(entry, "annotations")
    return Rule(
        name=name,
        expression=expression,
        kind=_kind(entry.get("entity"), expression),
        for_seconds=_duration(entry, "for"),
        keep_firing_seconds=_duration(entry, "keep_firing_for"),
        severity=_severity(labels.get("severity", "warning")),
        labels=labels,
        summary=annotations.get("summary", f"{name}: {expression.text}"),
        source=source,
    )


def _kind(wanted: object, expression: Expression) -> EntityKind:
    """The entity to evaluate for: as written, else the widest that all columns speak of."""
    if wanted is None:
        return expression.kinds[0]
    kinds = [kind.value for kind in expression.kinds]
    if wanted not in kinds:
        raise _BadRuleError(f"`entity` {wanted!r}: these columns speak of {', '.join(kinds)}")
    return EntityKind(str(wanted))


def _severity(name: str) -> Severity:
    if name not in Severity.__members__:
        raise _BadRuleError(f"severity {name!r} is none of {', '.join(Severity.__members__)}")
    return Severity[name]


def _duration(entry: Mapping[str, Any], key: str) -> float:
    seconds = seconds_of(entry.get(key, 0))
    if seconds is None:
        raise _BadRuleError(f'`{key}` must be a duration such as "30s"')
    return seconds


def _strings(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    table = entry.get(key, {})
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise _BadRuleError(f"`{key}` must be a table of strings")
    return dict(table)
