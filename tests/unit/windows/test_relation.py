# SPDX-License-Identifier: Apache-2.0
import pytest

from hotstage.detect.finding import Evidence, Finding
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.request_costs import Penalties
from hotstage.windows.relation import breaks_server, explains, is_consequence, rank, same_subject


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


def of_gpu(kind, xid=None, since=0, **parts):
    evidence = () if xid is None else (Evidence("xid", float(xid)),)
    entity = Entity(EntityKind.gpu, **parts)
    return Finding(kind, kind, entity, since * 10**9, 0, 1.0, 1.0, "", evidence=evidence)


ONE = {"gpu_uuid": "GPU-1", "pci_bus_id": "0000:65:00"}


@pytest.mark.parametrize(
    ("xid", "is_one"),
    [
        (of_gpu("gpu_xid", 79, **ONE), True),
        (of_gpu("gpu_xid", 79, pci_bus_id="0000:65:00"), True),
        (of_gpu("gpu_xid", 119, since=3600, **ONE), True),
        (of_gpu("gpu_xid", 79, gpu_uuid="GPU-2", pci_bus_id="0000:65:00"), False),
        (of_gpu("gpu_xid", 79, pci_bus_id="0000:b3:00"), False),
        (of_gpu("gpu_xid", 31, **ONE), False),
    ],
)
def test_that_nvml_lost_a_gpu_is_evidence_for_its_xid(xid, is_one):
    """For one that breaks it: after what an application did, a GPU is not lost."""
    lost = of_gpu("gpu_lost", **ONE)
    assert is_consequence(lost, xid) is is_one
    assert explains(xid, lost) is is_one
    assert not is_consequence(xid, lost)


@pytest.mark.parametrize(
    ("later", "xid", "gpu_uuid", "breaks"),
    [
        (make("alive_but_hung", since=100, pid=1), 79, "GPU-1", True),
        (make("process_death", since=100, pid=1), 31, "GPU-1", True),
        (make("stage_latency", since=100, instance="i-0", stage="llm_decode"), 79, "GPU-1", True),
        (make("alive_but_hung", since=86, pid=1), 119, "GPU-1", True),
        (make("alive_but_hung", since=84, pid=1), 119, "GPU-1", False),
        (make("alive_but_hung", since=121, pid=1), 79, "GPU-1", False),
        (make("process_death", since=100, pid=1), 45, "GPU-1", False),
        (make("process_death", since=100, pid=1), 79, "GPU-2", False),
        (make("process_death", since=100, pid=1), 79, None, False),
        (make("request_errors", since=100, pid=1), 79, "GPU-1", False),
    ],
)
def test_an_xid_explains_what_becomes_of_the_servers_on_its_gpu(later, xid, gpu_uuid, breaks):
    """It was told at 100 s, and stood until 120 s; a driver may see a hang before it calls it one."""
    told = of_gpu("gpu_xid", xid, since=100, **ONE)
    assert breaks_server(told, 120 * 10**9, later, gpu_uuid) is breaks
