# SPDX-License-Identifier: Apache-2.0
import pytest

from hotstage.detect.finding import Finding
from hotstage.frame.entity import Entity, EntityKind
from hotstage.windows.relation import explains, is_consequence, same_subject


def make(kind, since=0, score=1.0, **parts):
    entity = Entity(EntityKind.stage if kind == "stage_latency" else EntityKind.instance, **parts)
    return Finding(kind, kind, entity, since * 10**9, 0, score, 1.0, "")


HANG = make("alive_but_hung", instance="i-0", pid=1)
SLOW = make("stage_latency", stage="llm_decode", modality="text", instance="i-0")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (HANG, make("alive_but_hung", instance=None, pid=1, stage="queue"), True),
        (HANG, make("alive_but_hung", instance="i-0", pid=2), False),
        (SLOW, make("stage_latency", stage="llm_decode", modality="text"), True),
        (SLOW, make("stage_latency", stage="llm_decode", modality="image"), False),
        (make("rule", instance="i-0"), make("rule", instance="i-0"), True),
        (make("rule", instance="i-0"), make("other", instance="i-0"), False),
    ],
)
def test_one_kind_on_one_thing_is_one_subject(one, other, same):
    assert same_subject(one, other) is same


def test_a_hang_explains_a_slow_stage_of_its_instance_and_not_the_other_way_round():
    assert is_consequence(SLOW, HANG) and explains(HANG, SLOW)
    assert not is_consequence(HANG, SLOW)


def test_nothing_explains_a_rule_and_a_rule_explains_nothing():
    rule = make("rule", instance="i-0")
    assert not is_consequence(rule, HANG)
    assert not is_consequence(SLOW, rule)
