# SPDX-License-Identifier: Apache-2.0
"""Rules against frames: pending, firing, cleared, per rule and entity. Unknown changes nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hotstage.detect.finding import Evidence, Finding
from hotstage.detect.rules.rule_file import Rule
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import Entity
from hotstage.frame.frame import Frame
from hotstage.frame.history import History

_PLACEHOLDER = re.compile(
    r"\{\{\s*\$(?:value\s*(?P<percent>\|\s*humanizePercentage)?|labels\.(?P<label>\w+))\s*\}\}"
)


@dataclass(slots=True)
class _State:
    since_ns: int
    """First true verdict of this run."""
    held_ns: int
    """Last true verdict."""
    is_firing: bool = False
    value: float = 0.0


class RuleSet:
    """Detector for the rules of all files. Not thread-safe."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._states: dict[tuple[str, Entity], _State] = {}

    def observe_frame(self, frame: Frame, history: History) -> list[Finding]:
        """What fires as of this frame; `history` holds it already."""
        findings = []
        for rule in self.rules:
            for entity in list(frame.of_kind(rule.kind)):
                if self._advance(rule, entity, frame, history):
                    findings.append(self._finding(rule, entity, frame))
        self._drop_absent(frame)
        return findings

    def _advance(self, rule: Rule, entity: Entity, frame: Frame, history: History) -> bool:
        key, now = (rule.name, entity), frame.at_ns
        verdict = rule.expression.holds(frame, history, entity)
        state = self._states.get(key)
        if verdict is None:
            return state is not None and state.is_firing
        if verdict:
            if state is None:
                state = self._states[key] = _State(now, now)
            state.held_ns = now
            state.value = rule.expression.value(frame, history, entity)
            state.is_firing |= now - state.since_ns >= round(rule.for_seconds * 1e9)
            return state.is_firing
        if (
            state is not None
            and state.is_firing
            and now - state.held_ns < round(rule.keep_firing_seconds * 1e9)
        ):
            return True
        self._states.pop(key, None)
        return False

    def _drop_absent(self, frame: Frame) -> None:
        """An entity that has gone is neither firing nor pending; an unknown one is still there, as NaN."""
        self._states = {key: state for key, state in self._states.items() if key[1] in frame}

    def _finding(self, rule: Rule, entity: Entity, frame: Frame) -> Finding:
        state = self._states[rule.name, entity]
        labels = entity.labels()

        def fill(match: re.Match[str]) -> str:
            if match["label"] is not None:
                return str(labels.get(match["label"], ""))
            return f"{state.value * 100:.4g}%" if match["percent"] else f"{state.value:.4g}"

        evidence = tuple(
            Evidence(
                column=name,
                value=frame.value(entity, name),
                limit=None,
                unit=COLUMNS[COLUMN_INDEX[name]].unit,
                since_ns=state.since_ns,
                note=rule.expression.text,
            )
            for name in rule.expression.columns
        )
        return Finding(
            detector="rules",
            kind=rule.name,
            entity=entity,
            since_ns=state.since_ns,
            at_ns=frame.at_ns,
            score=1.0,
            limit=1.0,
            summary=_PLACEHOLDER.sub(fill, rule.summary),
            severity=rule.severity,
            confidence=0.7,
            evidence=evidence,
            labels=rule.labels,
        )
