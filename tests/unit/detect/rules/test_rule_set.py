# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import replace

import numpy as np
import pytest

from hotstage.detect.finding import Severity
from hotstage.detect.rules.expression import parse
from hotstage.detect.rules.rule_file import Rule
from hotstage.detect.rules.rule_set import RuleSet
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.frame import Frame
from hotstage.frame.history import History

UNKNOWN = math.nan
I0 = Entity(EntityKind.instance, instance="i-0")


def rule(for_seconds=0.0, keep=0.0):
    return Rule(
        "busy", parse("inflight > 3"), EntityKind.instance, for_seconds, keep, Severity.info, {"team": "a"},
        "{{ $labels.instance }} holds {{ $value }}{{ $labels.none }}", "test",
    )  # fmt: skip


def run(rules, values):
    """One value of `inflight` a second, None = the instance is not there → the seconds in which it fires."""
    history, fires, findings = History(60), [], []
    for second, value in enumerate(values):
        entities = () if value is None else (I0,)
        table = np.full((len(entities), len(COLUMNS)), np.nan)
        if entities:
            table[0, COLUMN_INDEX["inflight"]] = value
        frame = Frame(second * 10**9, entities, table)
        history.append(frame)
        found = rules.observe_frame(frame, history)
        if found:
            fires.append(second)
            findings = found
    return fires, findings


@pytest.mark.parametrize(
    ("for_seconds", "keep", "values", "fires"),
    [
        (0, 0, [1, 5, 5, 1], [1, 2]),
        (2, 0, [5, 5, 5, 5, 1], [2, 3]),
        (2, 0, [5, 5, 1, 5, 5, 5], [5]),
        (0, 2, [5, 1, 1, 1], [0, 1]),
        (0, 2, [5, 1, 5, 1, 1], [0, 1, 2, 3]),
        (0, 0, [5, UNKNOWN, UNKNOWN, 1], [0, 1, 2]),
        (2, 0, [5, UNKNOWN, UNKNOWN, 5], [3]),
        (0, 0, [UNKNOWN, UNKNOWN], []),
        (0, 9, [5, None, 1], [0]),
    ],
)
def test_pending_firing_and_cleared(for_seconds, keep, values, fires):
    assert run(RuleSet([rule(for_seconds, keep)]), values)[0] == fires


def test_the_finding_says_what_the_annotation_says():
    _, (finding,) = run(RuleSet([rule()]), [5.25])
    assert (finding.kind, finding.summary, finding.entity) == ("busy", "i-0 holds 5.25", I0)
    assert (finding.severity, finding.labels["team"]) == (Severity.info, "a")
    assert [(item.column, item.value) for item in finding.evidence] == [("inflight", 5.25)]


def test_a_ratio_is_said_as_a_percentage_where_the_rule_wants_it():
    busy = replace(
        rule(), summary="{{ $value | humanizePercentage }} of {{$value}} at {{ $labels.instance }}"
    )
    _, (finding,) = run(RuleSet([busy]), [5.125])
    assert finding.summary == "512.5% of 5.125 at i-0"
