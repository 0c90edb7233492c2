# SPDX-License-Identifier: Apache-2.0
"""The table of libcuda: pinned ids, and how its rows are probed."""

from __future__ import annotations

from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.probes.catalogue.spec import Family, Step
from hotstage.probes.loader.base import PointKind
from hotstage.probes.maps.layout import FUNCTION_IS_GRAPH


def test_ids_are_pinned() -> None:
    ids = {call.name: call.call_id for call in CUDA_DRIVER.calls}
    assert ids["cuLaunchKernel"] == 1
    assert ids["cuGraphLaunch"] == 4
    assert ids["cuMemAlloc_v2"] == 16
    assert ids["cuMemcpyHtoDAsync_v2"] == 43
    assert ids["cuStreamSynchronize"] == 64
    assert ids["cuDevicePrimaryCtxRetain"] == 96


def test_launches_are_entry_only_and_everything_else_is_timed() -> None:
    for call in CUDA_DRIVER.calls:
        assert (call.kind is PointKind.LAUNCH) == call.is_launch_class


def test_what_makes_a_handle_says_what_of() -> None:
    for call in CUDA_DRIVER.calls:
        assert call.effect or call.family is not Family.HANDLE


def test_launches_say_where_their_function_is() -> None:
    found = {call.name: call.function_argument for call in CUDA_DRIVER.calls if call.is_launch_class}
    assert found == {
        "cuLaunchKernel": 1,
        "cuLaunchKernelEx": 2,
        "cuLaunchCooperativeKernel": 1,
        "cuGraphLaunch": FUNCTION_IS_GRAPH,
        "cuLaunchCooperativeKernelMultiDevice": 0,
        "cuLaunch": 1,
        "cuLaunchGrid": 1,
        "cuLaunchGridAsync": 1,
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
