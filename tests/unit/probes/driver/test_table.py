# SPDX-License-Identifier: Apache-2.0
"""Which tracepoints are taken on a host, and why the others are not."""

from __future__ import annotations

import pytest

from hotstage.probes.driver.table import QUEUE_SUBMIT, TABLE, Use, choose
from hotstage.probes.maps.driver import EVENTS_MAX

FENCE = {"driver": True, "timeline": True, "context": False, "seqno": False}
FENCES = {f"dma_fence:dma_fence_{name}": FENCE for name in ("emit", "signaled", "destroy")}


def names(choice) -> list[str]:
    return [event.event for event in choice.chosen]


def test_every_row_has_its_place_in_the_kernels_counts() -> None:
    assert len(TABLE) <= EVENTS_MAX
    assert len({row.token for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize(
    ("present", "taken"),
    [
        (("nv_gpu:queue_submit", "gpu_scheduler:drm_run_job"), "nv_gpu:queue_submit"),
        (("gpu_scheduler:drm_run_job", "amdgpu:amdgpu_cs_ioctl"), "gpu_scheduler:drm_run_job"),
        (("gpu_scheduler:drm_sched_job_run", "xe:xe_sched_job_run"), "gpu_scheduler:drm_sched_job_run"),
        (("amdgpu:amdgpu_cs_ioctl",), "amdgpu:amdgpu_cs_ioctl"),
        (("i915:i915_request_submit", "xe:xe_sched_job_run"), "i915:i915_request_submit"),
        (("xe:xe_sched_job_run",), "xe:xe_sched_job_run"),
    ],
)
def test_the_first_that_exists_stands_for_queue_submit(present: tuple[str, ...], taken: str) -> None:
    choice = choose({event: {} for event in present}, ioctls=False)
    assert choice.submits is not None
    assert choice.submits.event == taken
    assert [event.event for event in choice.chosen if event.logical == QUEUE_SUBMIT] == [taken]
    for other in set(present) - {taken}:
        assert choice.reasons[other] == f"{taken} stands for it, being earlier in the list"


def test_without_any_every_event_says_why() -> None:
    choice = choose({}, ioctls=False)
    assert choice.submits is None
    assert choice.chosen == ()
    assert set(choice.reasons) == {event.event for event in TABLE}
    assert "tracefs has no such event" in choice.reasons["dma_fence:dma_fence_emit"]


def test_a_layout_that_lacks_a_field_is_refused_by_the_fields_name() -> None:
    choice = choose({"gpu_mem:gpu_mem_total": {"gpu_id": False, "pid": False}}, ioctls=False)
    assert choice.reasons["gpu_mem:gpu_mem_total"] == "its layout on this kernel lacks size"


def test_events_of_one_question_come_together_or_not_at_all() -> None:
    assert names(choose(FENCES, ioctls=False)) == list(FENCES)
    part = {name: fields for name, fields in FENCES.items() if not name.endswith("signaled")}
    choice = choose(part, ioctls=False)
    assert choice.chosen == ()
    assert choice.reasons["dma_fence:dma_fence_emit"] == "the other events of its kind (fences) are absent"


def test_ioctls_are_taken_on_request_only() -> None:
    present = {"syscalls:sys_enter_ioctl": {"fd", "cmd"}, "syscalls:sys_exit_ioctl": {"ret"}}
    assert names(choose(present, ioctls=True)) == list(present)
    choice = choose(present, ioctls=False)
    assert choice.chosen == ()
    assert "gpu_ioctls = true" in choice.reasons["syscalls:sys_enter_ioctl"]


def test_what_nothing_uses_is_never_taken() -> None:
    everything = {event.event: event.fields for event in TABLE}
    chosen = choose(everything, ioctls=True).chosen
    assert not any(event.use in (Use.NONE, Use.ELSEWHERE) for event in chosen)
