# SPDX-License-Identifier: Apache-2.0
"""The vendor's real runtimes, without a driver: every row resolved or absent in that version, and calls that
fail for want of a driver are counted with their error. Fetched into a temporary directory, never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.bpf.conftest import Probes, open_library
from tests.bpf.real_libraries import call_in_children, fetch

from hotstage.clock import SystemClock
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.cuda_runtime import CUDA_RUNTIME
from hotstage.probes.catalogue.spec import Tier
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.loader import links
from hotstage.probes.loader.base import Rung
from hotstage.probes.trial.canary import CALLS as CANARY_CALLS
from hotstage.probes.trial.report import PlacementVerdict
from hotstage.probes.trial.trials import LibraryTrials

WHEELS = {
    "11.8": "nvidia-cuda-runtime-cu11==11.8.89",
    "12.9": "nvidia-cuda-runtime-cu12==12.9.79",
    "13.5": "nvidia-cuda-runtime==13.5.37",
}
INSUFFICIENT_DRIVER = 35
CALLS = (
    ("cudaMalloc", 5, "pointer, 4096"),
    ("cudaFree", 3, "1"),
    ("cudaMemcpy", 7, "1, 2, 64, 1"),
    ("cudaMemcpyAsync", 4, "1, 2, 64, 1, None"),
    ("cudaStreamSynchronize", 6, "None"),
    ("cudaDeviceSynchronize", 2, ""),
    ("cudaLaunchKernelExC", 11, "config, 1, None"),
    ("cudaMemcpy2DAsync", 8, "1, 8, 2, 8, 16, 9, 3, None"),
    ("cudaMemcpyToSymbol", 9, "1, 2, 32, 0, 1"),
    ("cudaSetDevice", 10, "0"),
    ("cudaGetDeviceProperties", 12, "properties, 0"),
)
COPIED = {
    "cudaMemcpy": (2, 64),
    "cudaMemcpyAsync": (2, 64),
    "cudaMemcpy2DAsync": (4, 144),
    "cudaMemcpyToSymbol": (2, 32),
}
"""Direction as in bpf/include/abi.h, and bytes asked for."""


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The library of a version; skips where it cannot be had."""
    found: dict[str, Path] = {}

    def of(version: str) -> Path:
        if version not in found:
            folder = tmp_path_factory.mktemp("runtime")
            found[version] = fetch(WHEELS[version], "libcudart.so.*", folder)
        return found[version]

    return of


@pytest.fixture(params=WHEELS)
def parsed(request: pytest.FixtureRequest, runtime: Callable[[str], Path]) -> Iterator[ParsedLibrary]:
    with ExitStack() as stack:
        library = open_library(runtime(request.param), "libcudart", stack)
        yield ParsedLibrary(library, read_elf(library.fd), False)


def test_every_row_is_resolved_or_absent_in_that_version(
    parsed: ParsedLibrary, request: pytest.FixtureRequest
) -> None:
    version = request.node.callspec.params["parsed"]
    points, missed = plan(parsed, LIBRARIES, tier=Tier.T2)
    present = {point.call_id for point in points}
    absent = {miss.symbol for miss in missed}
    for call in CUDA_RUNTIME.calls:
        is_there = (not call.since or call.since <= version) and (not call.until or version <= call.until)
        assert (call.call_id in present) == is_there, call.name
        assert (call.name in absent) == (not is_there), call.name
    assert all(miss.is_expected for miss in missed), [miss for miss in missed if not miss.is_expected]
    assert all(point.is_emulated for point in points)  # they begin with a push
    assert not {point.symbol for point in points} & {"__cudaLaunchKernel", "__cudaLaunchKernel_ptsz"}


def test_calls_that_fail_for_want_of_a_driver_are_the_runtimes_errors(
    parsed: ParsedLibrary, probes: Probes
) -> None:
    with ExitStack() as stack:
        library, names = parsed.library, {name for name, _, _ in CALLS}
        # Only what is called: on rung P each point takes 0.1 s to let go.
        points = [point for point in plan(parsed, LIBRARIES)[0] if point.symbol in names]
        attachment = probes.loader.attach(library, points)
        assert not attachment.refused
        stack.callback(links.detach, attachment.links)
        answers = call_in_children(library.path, CALLS, stack)
        ids = {call.name: call.call_id for call in CUDA_RUNTIME.calls}
        told = probes.maps.read_fast(0).events
        for name, times, _ in CALLS:
            assert answers[name].result == INSUFFICIENT_DRIVER, name
            keys, stats = probes.rows(answers[name].pid, ids[name])
            assert (int(stats["count"].sum()), int(stats["errors"].sum())) == (times, times), name
            assert set(keys["layer"]) == {CUDA_RUNTIME.layer}
            if name in COPIED:  # nothing was copied: what was asked for is in what is told of the failure
                direction, size = COPIED[name]
                assert set(keys["direction"]) == {direction} and not stats["bytes"].sum()
                assert set(
                    told[(told["tgid"] == answers[name].pid) & (told["call"] == ids[name])]["bytes"]
                ) == {size}


def test_its_version_function_is_tried_in_one_process_first(parsed: ParsedLibrary) -> None:
    points, _ = plan(parsed, LIBRARIES)
    trials = LibraryTrials(Rung.SESSION, SystemClock())
    trials.started()
    try:
        tried, report = trials.try_out(parsed, points)
    finally:
        trials.close()
    assert report is not None
    print(f"{parsed.library.path}: {len(points)} symbols, {report.seconds * 1e3:.0f} ms")
    assert (report.placement, report.reason, tried) == (PlacementVerdict.VERIFIED, None, points)
    assert report.calls == CANARY_CALLS
