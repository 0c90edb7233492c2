# SPDX-License-Identifier: Apache-2.0
"""Every export that does work has a row, or a reason why not; every row names what real libraries export."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import LibrarySpec
from hotstage.probes.catalogue.variants import new_variants

sys.path.insert(0, str(Path(__file__).parent))
from exports_of import WORK, exports_of, versions_of

SPECS = {spec.kind: spec for spec in LIBRARIES if spec.kind in WORK}

IGNORED: dict[str, tuple[tuple[str, str], ...]] = {
    "libcuda": (
        (r"cu\w+(?<!_v2)", "the twin with 32-bit sizes of a `_v2` name"),
        (
            r"cuStream(GetCaptureInfo|UpdateCaptureDependencies)\w*",
            "asks about a capture, or changes its edges",
        ),
        (r"cuThreadExchangeStreamCaptureMode", "says what a capture forbids"),
        (r"cuGraph(Add|Exec|Mem|Event)?\w*Node\w*", "describes a graph; its launches are what runs"),
        (r"cuGreenCtxWaitEvent|cuCtxWaitEvent", "orders a whole context, used by nothing known"),
        (r"cuMemGetAllocation\w+", "asks about memory"),
        (r"cuMulticastGetGranularity|cuDeviceSetGraphMemAttribute", "asks, or sets a high mark back"),
        (
            r"cuGraphicsResourceGetMappedPointer_v2",
            "memory of graphics, given back by an unmap of its resource",
        ),
        (r"cuLogicalEndpoint\w+", "an address for other hosts of memory that has a row already"),
        (r"cu(GL|VDPAU)CtxCreate(_v2)?", "contexts for graphics"),
        (r"cuCtxResetPersistingL2Cache", "a cache, no context"),
        (r"cuTensorMapSetAllocationClass", "describes a tensor"),
        (r"cudbg\w+", "the debugger's"),
    ),
    "libcudart": (
        (r"__cudaLaunchKernel(_ptsz)?", "ends in cudaLaunchKernel: probing both would count twice"),
        (r"cudaEvent(Create|Destroy|ElapsedTime)\w*", "events, counted in the driver where they are wanted"),
        (
            r"cudaStream(Create|Destroy)\w*|cudaExecutionCtxStreamCreate",
            "streams, known by the driver's calls",
        ),
        (r"cudaExecutionCtxWaitEvent", "orders a whole context, used by nothing known"),
        (r"cudaGraph(Add|Exec|Mem|Event)?\w*Node\w*", "describes a graph; its launches are what runs"),
        (
            r"cudaStream(GetCaptureInfo|UpdateCaptureDependencies)\w*",
            "asks about a capture, or changes its edges",
        ),
        (r"cudaThreadExchangeStreamCaptureMode", "says what a capture forbids"),
        (r"cudaDeviceSetGraphMemAttribute", "sets a high mark back"),
        (
            r"cudaGraphicsResourceGetMappedPointer",
            "memory of graphics, given back by an unmap of its resource",
        ),
        (
            r"cuda(IpcGetMemHandle|MemPool(Export|ImportFrom)\w+)",
            "a name for another process of what has a row",
        ),
    ),
    "libnccl": (
        (
            r"ncclComm(GetUniqueId|MemStats|QueryProperties)",
            "asks about a communicator",
        ),
        (r"ncclComm(Suspend|Resume)", "lets memory of a communicator go and takes it back"),
        (
            r"ncclCommWindow(Deregister|Register)|ncclDevComm(Create|Destroy)",
            "communication from within kernels",
        ),
    ),
    "libcudnn": (
        (r"cudnn\w*Backward\w*|cudnn\w*Training\w*", "training; its kernels are counted in the driver"),
        (r"cudnn(Get|Set|Create|Destroy|Find)\w+", "asks, or describes"),
        (
            r"cudnn(B2B|Causal|FFT|LongFFT|Gnn|SpatialTf|Divisive)\w*Forward",
            "rare; kernels counted in the driver",
        ),
    ),
}


@pytest.mark.parametrize("kind", SPECS)
def test_no_export_that_does_work_is_left_out_without_a_reason(kind: str) -> None:
    listed = SPECS[kind].by_symbol()
    exported = exports_of(kind)
    legacy = {name for name in exported if f"{name}_v2" in exported}
    open_questions = [
        name for name in exported if name not in listed and not _reason(kind, name, is_legacy=name in legacy)
    ]
    assert not open_questions, f"{kind} exports work that is neither a row nor ignored for a reason"


@pytest.mark.parametrize("kind", SPECS)
def test_no_reason_is_for_nothing(kind: str) -> None:
    listed, exported = SPECS[kind].by_symbol(), exports_of(kind)
    for pattern, reason in IGNORED[kind]:
        assert any(re.fullmatch(pattern, name) for name in exported if name not in listed), reason


@pytest.mark.parametrize("kind", SPECS)
def test_rows_say_since_when_and_until_when_their_name_is_exported(kind: str) -> None:
    exported, versions = exports_of(kind), versions_of(kind)
    for call in SPECS[kind].calls:
        found = exported.get(call.name)
        assert found, f"no {kind} that was looked at exports {call.name}"
        since = "" if found[0] == versions[0] else found[0]
        until = "" if found[-1] == versions[-1] else found[-1]
        assert (call.since, call.until) == (since, until), call.name


@pytest.mark.parametrize("kind", SPECS)
def test_every_variant_is_a_real_name(kind: str) -> None:
    exported = exports_of(kind)
    unreal = [symbol for symbol in SPECS[kind].by_symbol() if symbol not in exported]
    assert not unreal


@pytest.mark.parametrize("kind", SPECS)
def test_no_name_of_today_passes_for_a_new_variant(kind: str) -> None:
    assert not new_variants(SPECS[kind], exports_of(kind))


def test_a_new_version_a_new_stream_twin_and_an_extended_call_are_found() -> None:
    spec = SPECS["libcuda"]
    assert new_variants(
        spec, ["cuMemcpyHtoD_v3", "cuMemFreeHost_ptsz", "cuGraphLaunchEx", "cuMemcpyHtoD"]
    ) == {
        "cuGraphLaunchEx": "cuGraphLaunch",
        "cuMemFreeHost_ptsz": "cuMemFreeHost",
        "cuMemcpyHtoD_v3": "cuMemcpyHtoD_v2",
    }


def test_a_name_that_only_begins_like_another_is_no_variant() -> None:
    assert not new_variants(
        SPECS["libcuda"], ["cuMemAllocationNote", "cuCtxCreate", "cuFunctionEx", "cu\nMemAlloc_v9", "\n"]
    )


def test_a_spec_may_say_that_a_name_is_something_else() -> None:
    spec = SPECS["libcuda"]
    told = LibrarySpec(kind="x", layer=spec.layer, calls=spec.calls, ignored=frozenset({"cuMemcpy_v9"}))
    assert new_variants(told, ["cuMemcpy_v9", "cuMemcpy_v8"]) == {"cuMemcpy_v8": "cuMemcpy"}


def _reason(kind: str, name: str, *, is_legacy: bool) -> str | None:
    for pattern, reason in IGNORED[kind]:
        if re.fullmatch(pattern, name) and (is_legacy or "32-bit" not in reason):
            return reason
    return None
