# SPDX-License-Identifier: Apache-2.0
"""libcuda.so.1: the calls that every user of CUDA ends in, with the positions of their arguments in cuda.h.

Ids are pinned: they are stored in maps and records. `_v2` names are the ABI of today; the bare legacy twins
(32-bit sizes) are not probed. `_ptsz` and `_ptds` are the same call on the per-thread default stream.
"""

from __future__ import annotations

from hotstage.probes.catalogue.spec import (
    STREAM_IN_LAUNCH_CONFIG,
    CallSpec,
    Direction,
    Effect,
    Family,
    LibrarySpec,
)
from hotstage.probes.loader.base import PointKind
from hotstage.probes.maps.layout import FUNCTION_IS_GRAPH

_LAUNCH, _TIMED = PointKind.LAUNCH, PointKind.TIMED
_HTOD, _DTOH, _DTOD = Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST, Direction.DEVICE_TO_DEVICE


def _launch(call_id: int, name: str, family: Family, stream: int, function: int = 1) -> CallSpec:
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_LAUNCH,
        family=family,
        variants=(f"{name}_ptsz",),
        stream_argument=stream,
        function_argument=function,
        is_essential=True,
    )


def _memory(
    call_id: int,
    name: str,
    family: Family,
    *,
    size: int = 0,
    factor: int = 0,
    stream: int = 0,
    essential: bool = False,
) -> CallSpec:
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=family,
        variants=(f"{name}_ptsz",) if stream else (),
        bytes_argument=size,
        factor_argument=factor,
        stream_argument=stream,
        is_essential=essential,
    )


def _copy(
    call_id: int, name: str, direction: Direction, *, size: int = 3, stream: int = 0, essential: bool = True
) -> CallSpec:
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.COPY,
        variants=(f"{name}_ptsz" if stream else f"{name}_ptds",),
        bytes_argument=size,
        stream_argument=stream,
        direction=direction,
        is_essential=essential,
    )


def _memset(call_id: int, name: str, element_bytes: int, *, stream: int = 0) -> CallSpec:
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.MEMSET,
        variants=(f"{name}_ptsz" if stream else f"{name}_ptds",),
        bytes_argument=3,
        bytes_per_element=element_bytes,
        stream_argument=stream,
    )


def _wait(call_id: int, name: str, family: Family, *, stream: int = 0, essential: bool = True) -> CallSpec:
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=family,
        variants=(f"{name}_ptsz",) if stream else (),
        stream_argument=stream,
        is_essential=essential,
    )


def _handle(call_id: int, name: str, effect: Effect, *, argument: int = 0) -> CallSpec:
    """Makes what launches name later. `argument` is what is kept of it: a function's name or kernel, a
    stream's priority.
    """
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.HANDLE,
        effect=effect,
        device_argument=argument,
        is_essential=True,
    )


def _context(call_id: int, name: str, effect: Effect, *, device: int = 0) -> CallSpec:
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=_TIMED,
        family=Family.CONTEXT,
        effect=effect,
        device_argument=device,
        is_essential=True,
    )


CUDA_DRIVER = LibrarySpec(
    kind="libcuda",
    layer=0,
    has_placement_rule=True,
    calls=(
        # f, grid x y z, block x y z, shared bytes, stream, ...
        _launch(1, "cuLaunchKernel", Family.LAUNCH, 9),
        _launch(2, "cuLaunchKernelEx", Family.LAUNCH, STREAM_IN_LAUNCH_CONFIG, 2),
        _launch(3, "cuLaunchCooperativeKernel", Family.LAUNCH, 9),
        _launch(4, "cuGraphLaunch", Family.GRAPH_LAUNCH, 2, FUNCTION_IS_GRAPH),
        _memory(16, "cuMemAlloc_v2", Family.ALLOC, size=2, essential=True),
        _memory(17, "cuMemAllocPitch_v2", Family.ALLOC, size=3, factor=4),
        _memory(18, "cuMemAllocManaged", Family.ALLOC, size=2, essential=True),
        _memory(19, "cuMemAllocAsync", Family.ALLOC, size=2, stream=3, essential=True),
        _memory(20, "cuMemAllocFromPoolAsync", Family.ALLOC, size=2, stream=4),
        _memory(21, "cuMemFree_v2", Family.FREE, essential=True),
        _memory(22, "cuMemFreeAsync", Family.FREE, stream=2, essential=True),
        _memory(23, "cuMemHostAlloc", Family.ALLOC, size=2),
        _memory(24, "cuMemAllocHost_v2", Family.ALLOC, size=2),
        _memory(25, "cuMemFreeHost", Family.FREE),
        _memory(26, "cuMemCreate", Family.ALLOC, size=2, essential=True),
        _memory(27, "cuMemRelease", Family.FREE, essential=True),
        _memory(28, "cuMemMap", Family.ALLOC, size=2),
        _memory(29, "cuMemUnmap", Family.FREE, size=2),
        _memory(30, "cuMemAddressReserve", Family.ALLOC, size=2),
        _memory(31, "cuMemAddressFree", Family.FREE, size=2),
        _copy(40, "cuMemcpyHtoD_v2", _HTOD),
        _copy(41, "cuMemcpyDtoH_v2", _DTOH),
        _copy(42, "cuMemcpyDtoD_v2", _DTOD),
        _copy(43, "cuMemcpyHtoDAsync_v2", _HTOD, stream=4),
        _copy(44, "cuMemcpyDtoHAsync_v2", _DTOH, stream=4),
        _copy(45, "cuMemcpyDtoDAsync_v2", _DTOD, stream=4),
        _copy(46, "cuMemcpy", Direction.UNKNOWN),
        _copy(47, "cuMemcpyAsync", Direction.UNKNOWN, stream=4),
        _copy(48, "cuMemcpyPeerAsync", Direction.PEER, size=5, stream=6, essential=False),
        _memset(56, "cuMemsetD8_v2", 1),
        _memset(57, "cuMemsetD32_v2", 4),
        _memset(58, "cuMemsetD8Async", 1, stream=4),
        _memset(59, "cuMemsetD32Async", 4, stream=4),
        _wait(64, "cuStreamSynchronize", Family.SYNC, stream=1),
        _wait(65, "cuEventSynchronize", Family.SYNC),
        _wait(66, "cuCtxSynchronize", Family.SYNC),
        _wait(67, "cuCtxSynchronize_v2", Family.SYNC),
        _wait(68, "cuStreamWaitEvent", Family.EVENT_WAIT, stream=1, essential=False),
        _wait(80, "cuGraphInstantiateWithFlags", Family.GRAPH, essential=False),
        CallSpec(
            call_id=81,
            name="cuGraphInstantiateWithParams",
            kind=_TIMED,
            family=Family.GRAPH,
            variants=("cuGraphInstantiateWithParams_ptsz",),
        ),
        _context(96, "cuDevicePrimaryCtxRetain", Effect.CONTEXT_NEW, device=2),
        _context(97, "cuCtxSetCurrent", Effect.CONTEXT_CURRENT),
        _context(98, "cuCtxPushCurrent_v2", Effect.CONTEXT_PUSH),
        _context(99, "cuCtxPopCurrent_v2", Effect.CONTEXT_POP),
        _context(100, "cuDeviceGetUuid_v2", Effect.DEVICE_UUID, device=2),
        _context(101, "cuCtxCreate_v2", Effect.CONTEXT_NEW, device=3),
        _context(102, "cuCtxCreate_v3", Effect.CONTEXT_NEW, device=5),
        _context(103, "cuCtxCreate_v4", Effect.CONTEXT_NEW, device=4),
        _handle(112, "cuModuleGetFunction", Effect.FUNCTION_NAMED, argument=3),
        _handle(113, "cuLibraryGetKernel", Effect.FUNCTION_NAMED, argument=3),
        _handle(114, "cuKernelGetFunction", Effect.FUNCTION_OF, argument=2),
        _handle(115, "cuStreamCreate", Effect.STREAM_NEW),
        _handle(116, "cuStreamCreateWithPriority", Effect.STREAM_NEW, argument=3),
    ),
)
