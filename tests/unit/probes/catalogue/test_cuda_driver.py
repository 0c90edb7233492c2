# SPDX-License-Identifier: Apache-2.0
"""The table of libcuda: pinned ids, and only symbols that real drivers export."""

from __future__ import annotations

from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.probes.catalogue.spec import Family, Step
from hotstage.probes.loader.base import PointKind
from hotstage.probes.maps.layout import FUNCTION_IS_GRAPH

# Not exported by drivers 535 and 550 (555 has cuCtxCreate_v4); named in cuda.h 12.9 and 13.5.
NEWER_THAN_555 = {"cuCtxCreate_v4", "cuCtxSynchronize_v2"}
# What drivers 535, 550 and 555 all export, written down once by reading their dynamic symbols.
PER_THREAD = {
    "cuLaunchKernel_ptsz cuLaunchKernelEx_ptsz cuLaunchCooperativeKernel_ptsz cuGraphLaunch_ptsz "
    "cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync_ptsz cuMemFreeAsync_ptsz cuMemcpyHtoD_v2_ptds "
    "cuMemcpyDtoH_v2_ptds cuMemcpyDtoD_v2_ptds cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2_ptsz "
    "cuMemcpyDtoDAsync_v2_ptsz cuMemcpy_ptds cuMemcpyAsync_ptsz cuMemcpyPeerAsync_ptsz cuMemsetD8_v2_ptds "
    "cuMemsetD32_v2_ptds cuMemsetD8Async_ptsz cuMemsetD32Async_ptsz cuStreamSynchronize_ptsz "
    "cuStreamWaitEvent_ptsz cuGraphInstantiateWithParams_ptsz"
}


def test_ids_are_pinned() -> None:
    ids = {call.name: call.call_id for call in CUDA_DRIVER.calls}
    assert ids["cuLaunchKernel"] == 1
    assert ids["cuGraphLaunch"] == 4
    assert ids["cuMemAlloc_v2"] == 16
    assert ids["cuMemcpyHtoDAsync_v2"] == 43
    assert ids["cuStreamSynchronize"] == 64
    assert ids["cuDevicePrimaryCtxRetain"] == 96


def test_per_thread_variants_are_those_that_drivers_export() -> None:
    variants = {variant for call in CUDA_DRIVER.calls for variant in call.variants}
    assert variants == set(" ".join(PER_THREAD).split())


def test_what_old_drivers_lack_is_written_down() -> None:
    assert {call.name for call in CUDA_DRIVER.calls} >= NEWER_THAN_555


def test_launches_are_entry_only_and_everything_else_is_timed() -> None:
    for call in CUDA_DRIVER.calls:
        assert (call.kind is PointKind.LAUNCH) == call.is_launch_class


def test_only_calls_on_contexts_and_handles_have_effects() -> None:
    for call in CUDA_DRIVER.calls:
        assert bool(call.effect) == (call.family in (Family.CONTEXT, Family.HANDLE))


def test_launches_say_where_their_function_is() -> None:
    found = {call.name: call.function_argument for call in CUDA_DRIVER.calls if call.is_launch_class}
    assert found == {
        "cuLaunchKernel": 1,
        "cuLaunchKernelEx": 2,
        "cuLaunchCooperativeKernel": 1,
        "cuGraphLaunch": FUNCTION_IS_GRAPH,
    }


def test_copies_that_take_no_stream_wait_for_themselves() -> None:
    steps = {call.name: call.step for call in CUDA_DRIVER.calls}
    assert steps["cuMemcpyDtoHAsync_v2"] is Step.TO_HOST
    assert steps["cuMemcpyDtoH_v2"] is Step.TO_HOST_WAIT
    assert steps["cuMemcpyHtoD_v2"] is steps["cuMemcpyHtoDAsync_v2"] is Step.TO_DEVICE
    assert steps["cuStreamSynchronize"] is Step.WAIT
    assert steps["cuStreamWaitEvent"] is steps["cuLaunchKernel"] is Step.NONE


def test_what_says_that_a_server_is_stuck_is_probed_on_every_rung() -> None:
    essential = {call.name for call in CUDA_DRIVER.calls if call.is_essential}
    assert {
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuGraphLaunch",
        "cuMemAlloc_v2",
        "cuStreamSynchronize",
    } <= essential
