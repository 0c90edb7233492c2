# SPDX-License-Identifier: Apache-2.0
"""From where a request goes on, by what is declared to survive."""

import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage, sample

from hotstage.config.snapshots import RecoveryConfig
from hotstage.stages.recovery import policy_of, recovery_plan
from hotstage.stages.snapshot import snapshot

START = 50 * SECOND
IMAGE_WAY = (
    Stage.gateway,
    Stage.media_fetch,
    Stage.media_decode,
    Stage.preprocess,
    Stage.tokenize,
    Stage.queue,
    Stage.vision_encode,
    Stage.cross_modal_align,
    Stage.llm_prefill,
    Stage.llm_decode,
)
_TEXT = {Stage.gateway, Stage.tokenize, Stage.llm_prefill, Stage.llm_decode}


def planned(clock, *, done, opened, **policy):
    request = KernelRequest(1, at_ns=START)
    for stage in done:
        modality = Modality.text if stage in _TEXT else Modality.image
        request.begin(stage, START, modality=modality).end(stage, START + MS)
    for stage in opened:
        modality = Modality.text if stage in _TEXT else Modality.image
        request.begin(stage, START + 2 * MS, modality=modality)
    request.row["output_tokens"] = 12
    taken = snapshot(sample(START + SECOND, requests=[request]), clock, {})
    return recovery_plan(taken, RecoveryConfig(**policy)).requests[0]


def until(stage):
    return IMAGE_WAY[: IMAGE_WAY.index(stage)]


def test_where_only_the_input_survives_all_is_done_again_from_it(clock):
    plan = planned(clock, done=until(Stage.llm_prefill), opened=[Stage.llm_prefill])
    assert (plan.decision, plan.resume_at, plan.last_finished_stage) == (
        "redo",
        "media_decode",
        "cross_modal_align",
    )
    assert plan.reuse == ["gateway", "media_fetch"]
    assert plan.redo == [
        "media_decode", "preprocess", "tokenize", "vision_encode", "cross_modal_align", "llm_prefill",
    ]  # fmt: skip
    assert plan.open_stages == ["llm_prefill"]


def test_where_features_survive_the_image_is_not_touched_again(clock):
    plan = planned(
        clock, done=until(Stage.llm_prefill), opened=[Stage.llm_prefill], encoded_features_survive=True
    )
    assert (plan.decision, plan.resume_at) == ("resume", "llm_prefill")
    assert (plan.reuse, plan.redo) == (["cross_modal_align"], ["llm_prefill"])
    assert plan.image.redone_from_the_same_input == []


def test_where_the_kv_cache_survives_decode_goes_on(clock):
    plan = planned(clock, done=until(Stage.llm_decode), opened=[Stage.llm_decode], kv_survives=True)
    assert (plan.decision, plan.resume_at, plan.reuse) == ("resume", "llm_decode", ["llm_prefill"])
    assert plan.output_tokens == 12


def test_one_stage_may_differ_from_its_kind(clock):
    plan = planned(
        clock,
        done=until(Stage.llm_prefill),
        opened=[Stage.llm_prefill],
        encoded_features_survive=True,
        stages={"cross_modal_align": False},
    )
    assert plan.reuse == ["gateway", "vision_encode"]
    assert plan.redo == ["tokenize", "cross_modal_align", "llm_prefill"]


def test_an_image_is_never_resampled_and_without_a_digest_nobody_can_prove_it(clock):
    plan = planned(clock, done=until(Stage.vision_encode), opened=[Stage.vision_encode])
    assert plan.image.resampling == "never"
    assert (plan.image.input_digest, plan.image.is_provable) == (None, False)
    assert plan.image.redone_from_the_same_input == ["media_decode", "preprocess", "vision_encode"]


def test_a_request_without_an_image_owes_it_nothing(clock):
    plan = planned(clock, done=[Stage.gateway, Stage.tokenize], opened=[Stage.llm_prefill])
    assert plan.image is None
    assert plan.redo == ["tokenize", "llm_prefill"]


def test_a_request_that_waits_after_its_last_result_resumes_after_it(clock):
    plan = planned(clock, done=[Stage.gateway, Stage.tokenize], opened=[Stage.queue], prepared_survives=True)
    assert (plan.decision, plan.resume_at, plan.redo) == ("resume", None, [])


def test_a_request_that_has_done_nothing_begins_anew(clock):
    plan = planned(clock, done=[], opened=[])
    assert (plan.decision, plan.resume_at, plan.last_finished_stage) == ("redo", None, None)


@pytest.mark.parametrize("stage", list(Stage))
def test_no_stage_is_both_used_and_done_again_whatever_survives(clock, stage):
    for survives in (True, False):
        kinds = dict.fromkeys(
            ("inputs_survive", "prepared_survives", "encoded_features_survive", "kv_survives"), survives
        )
        plan = planned(clock, done=[each for each in Stage if each < stage], opened=[stage], **kinds)
        assert not set(plan.reuse) & set(plan.redo)


def test_a_plan_says_what_it_was_told_and_how_many_it_found(clock):
    requests = [KernelRequest(n, at_ns=START + n) for n in (1, 2)]
    requests[0].begin(Stage.tokenize, START).end(Stage.tokenize, START + MS)
    taken = snapshot(sample(START + SECOND, requests=requests), clock, {})
    plan = recovery_plan(taken, RecoveryConfig(prepared_survives=True), "s-1")
    assert (plan.snapshot_id, plan.resume, plan.redo) == ("s-1", 1, 1)
    assert plan.policy == policy_of(RecoveryConfig(prepared_survives=True))
    assert plan.policy["tokenize"]
    assert "queue" not in plan.policy
