# SPDX-License-Identifier: Apache-2.0
"""From a snapshot and a declared policy: what each request may go on from if its process is lost.

Pure, and advice: nothing here acts. It walks back from the stage that a request had reached, through what
each stage consumes, and stops where a result survives. An image is never resampled: whatever is done again
is done on the very bytes that were read first, and the input's digest, where there is one, proves it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from hotstage.config.snapshots import RecoveryConfig
from hotstage.stages.snapshot_types import RequestState, Snapshot, Time
from hotstage.stages.stage import Stage

_KIND_OF = {
    Stage.gateway: "inputs_survive",
    Stage.media_fetch: "inputs_survive",
    Stage.media_decode: "prepared_survives",
    Stage.preprocess: "prepared_survives",
    Stage.tokenize: "prepared_survives",
    Stage.vision_encode: "encoded_features_survive",
    Stage.audio_encode: "encoded_features_survive",
    Stage.video_encode: "encoded_features_survive",
    Stage.cross_modal_align: "encoded_features_survive",
    Stage.llm_prefill: "kv_survives",
    Stage.llm_decode: "kv_survives",
    Stage.kv_transfer: "kv_survives",
}
"""Stage → the key of the policy that says whether its result survives; others leave none of their own."""

_ENCODERS = (Stage.vision_encode, Stage.audio_encode, Stage.video_encode)
_CONSUMES: dict[Stage, tuple[Stage, ...]] = {
    Stage.media_fetch: (Stage.gateway,),
    Stage.media_decode: (Stage.media_fetch,),
    Stage.preprocess: (Stage.media_decode,),
    Stage.tokenize: (Stage.gateway,),
    **{encoder: (Stage.preprocess,) for encoder in _ENCODERS},
    Stage.cross_modal_align: (Stage.tokenize, *_ENCODERS),
    Stage.llm_prefill: (Stage.cross_modal_align, Stage.tokenize, *_ENCODERS),
    Stage.kv_transfer: (Stage.llm_prefill,),
    Stage.llm_decode: (Stage.kv_transfer, Stage.llm_prefill),
    Stage.sample: (Stage.llm_decode,),
    Stage.detokenize: (Stage.sample, Stage.llm_decode),
}
"""Stage → whose results it works on; where a request has not that stage, what that one consumes."""

_IMAGE_WORK = ("media_decode", "preprocess", "vision_encode")


class ImageIdentity(Struct, frozen=True):
    """What a retry owes to the image of a request."""

    resampling: Annotated[
        Literal["never"], Meta(description="decode and resize once; a retry repeats nothing")
    ]
    input_digest: Annotated[str | None, Meta(description="what the retried input must have")]
    is_provable: Annotated[bool, Meta(description="false: no digest was told, so nobody can prove it")]
    redone_from_the_same_input: Annotated[
        list[str], Meta(description="stages of the image that the plan does again, on the very same bytes")
    ]


class RequestPlan(Struct, frozen=True):
    """One request: from where it can go on."""

    key: str
    id: str
    endpoint: str | None
    instance: str | None
    pid: int
    last_finished_stage: Annotated[str | None, Meta(description="the furthest one in pipeline order")]
    open_stages: list[str]
    decision: Annotated[
        Literal["resume", "redo"],
        Meta(description="resume: some result beyond the input survives and is used; redo: from the input"),
    ]
    resume_at: Annotated[str | None, Meta(description="the first stage to run; null: after the last one")]
    reuse: Annotated[list[str], Meta(description="finished stages whose surviving result is used")]
    redo: Annotated[list[str], Meta(description="stages to run again, in pipeline order")]
    output_tokens: Annotated[int, Meta(description="made so far: a client may hold them already")]
    image: Annotated[ImageIdentity | None, Meta(description="null: the request has no image")]
    traceparent: str | None


class RecoveryPlan(Struct, frozen=True):
    """One plan for each request of a snapshot, oldest first."""

    snapshot_id: Annotated[str | None, Meta(description="null: of this moment, not stored")]
    taken_at: Time
    taken_at_ns: int
    policy: Annotated[dict[str, bool], Meta(description="stage → whether its result survives, as declared")]
    resume: int
    redo: int
    requests: list[RequestPlan]


def policy_of(config: RecoveryConfig) -> dict[str, bool]:
    """Stage → whether its result survives; stages that leave no result are not in it."""
    told: dict[str, bool] = {stage.name: getattr(config, key) for stage, key in _KIND_OF.items()}
    return told | {name: value for name, value in config.stages.items() if name in told}


def recovery_plan(snapshot: Snapshot, config: RecoveryConfig, snapshot_id: str | None = None) -> RecoveryPlan:
    """`snapshot_id`: where it is stored."""
    policy = policy_of(config)
    plans = [_plan(request, policy) for request in snapshot.requests]
    resumed = sum(plan.decision == "resume" for plan in plans)
    return RecoveryPlan(
        snapshot_id=snapshot_id,
        taken_at=snapshot.taken_at,
        taken_at_ns=snapshot.taken_at_ns,
        policy=policy,
        resume=resumed,
        redo=len(plans) - resumed,
        requests=plans,
    )


def _plan(request: RequestState, policy: dict[str, bool]) -> RequestPlan:
    done = _stages(request.stages_done)
    opened = _stages([part.stage for part in request.open])
    reuse, redo = _walk(done, opened, policy)
    names_redo = [stage.name for stage in sorted(redo)]
    is_resumed = any(_KIND_OF[stage] != "inputs_survive" for stage in reuse)
    return RequestPlan(
        key=request.key,
        id=request.id,
        endpoint=request.endpoint,
        instance=request.instance,
        pid=request.pid,
        last_finished_stage=max(done).name if done else None,
        open_stages=[stage.name for stage in sorted(opened)],
        decision="resume" if is_resumed else "redo",
        resume_at=names_redo[0] if names_redo else None,
        reuse=[stage.name for stage in sorted(reuse)],
        redo=names_redo,
        output_tokens=request.output_tokens,
        image=_image(request, names_redo),
        traceparent=request.traceparent,
    )


def _walk(done: set[Stage], opened: set[Stage], policy: dict[str, bool]) -> tuple[set[Stage], set[Stage]]:
    """(stages whose result is used, stages to run again): back from the furthest stages reached."""
    touched = done | opened
    reuse: set[Stage] = set()
    redo: set[Stage] = set()
    seen: set[Stage] = set()
    # What is open is wanted; so is the furthest that has ended, as whatever comes next builds on it.
    wanted = [stage for stage in (*opened, *_furthest(done)) if stage in _KIND_OF or stage in _CONSUMES]
    while wanted:
        stage = wanted.pop()
        if stage in seen:
            continue
        seen.add(stage)
        if stage in done and stage not in opened and policy.get(stage.name, False):
            reuse.add(stage)
            continue
        if stage in touched:
            redo.add(stage)
        consumed = set(_CONSUMES.get(stage, ()))
        # Of results that one holds within another, the nearest that the request has made.
        wanted += _furthest(consumed & touched) or consumed
    return reuse, redo


def _furthest(stages: set[Stage]) -> set[Stage]:
    """Those that no other of them has consumed."""
    return stages - {each for stage in stages for each in _before(stage)}


def _before(stage: Stage) -> set[Stage]:
    found: set[Stage] = set()
    waiting = list(_CONSUMES.get(stage, ()))
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += _CONSUMES.get(each, ())
    return found


def _image(request: RequestState, redo: list[str]) -> ImageIdentity | None:
    if not any(part.modality == "image" for part in request.modalities):
        return None
    again = [name for name in redo if name in _IMAGE_WORK]
    return ImageIdentity("never", request.input_digest, request.input_digest is not None, again)


def _stages(names: list[str]) -> set[Stage]:
    """Those that have a pinned meaning; a stage that a server made up has none to plan by."""
    return {Stage[name] for name in names if name in Stage.__members__}
