# SPDX-License-Identifier: Apache-2.0
import pytest

from hotstage.detect.finding import Finding
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.request_costs import Penalties
from hotstage.windows.relation import explains, is_consequence, rank, same_subject


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


VIDEO = make("stage_latency", stage="video_encode", modality="video", score=1.0)
IMAGE = make("stage_latency", stage="vision_encode", modality="image", score=1.04)
COSTLY_VIDEO = Penalties(by_modality={"video": 4.0, "image": 0.0})


def test_of_causes_that_are_nearly_equal_the_one_that_costs_users_more_is_first():
    assert sorted([VIDEO, IMAGE], key=lambda each: rank(each, Penalties())) == [IMAGE, VIDEO]
    assert sorted([IMAGE, VIDEO], key=lambda each: rank(each, COSTLY_VIDEO)) == [VIDEO, IMAGE]
    assert rank(VIDEO, COSTLY_VIDEO) == (-2, pytest.approx(-(1 + 0.1 * 4 / 5)))


def test_no_penalty_lifts_a_cause_over_one_that_is_a_tenth_stronger_or_weighs_more():
    without_end = Penalties(by_modality={"video": 1e9}, by_endpoint={"/v1/a": 1e9})
    strong = make("stage_latency", stage="vision_encode", modality="image", score=1.1001)
    rule = make("rule", endpoint="/v1/a", score=50.0)
    assert sorted([rule, VIDEO, strong], key=lambda each: rank(each, without_end)) == [strong, VIDEO, rule]


def test_the_penalty_of_a_finding_is_its_endpoints_where_it_names_one():
    penalties = Penalties(by_endpoint={"/v1/a": 2.0}, by_modality={"image": 1.0})
    assert penalties.of(Entity(EntityKind.endpoint, endpoint="/v1/a", modality="image")) == 2.0
    assert penalties.of(Entity(EntityKind.endpoint, endpoint="/v1/b", modality="image")) is None
    assert penalties.of(IMAGE.entity) == 1.0
    assert penalties.of(HANG.entity) is None
