# SPDX-License-Identifier: Apache-2.0
"""libcudart 11, 12 and 13: the runtime, whose calls end in libcuda's. Positions as in cuda_runtime_api.h.

Where a process's libcuda is seen at work the driver's rows count, and these tell only the errors that never
get there; elsewhere they count instead (`bpf/include/layers.h`). `cudaLaunchKernel` stands for
`__cudaLaunchKernel` too, which ends in it. A dim3 by value takes two registers on x86-64 as on arm64. What
another release has at another place (streams of batched copies, of prefetches) is not read. What only the
runtime says (directions, devices, functions) is kept whoever counts (`bpf/include/runtime_calls.h`).
"""

from __future__ import annotations

from dataclasses import replace

from hotstage.probes.catalogue.cuda_rows import context, copy, fill, handle, launch, memory, plain
from hotstage.probes.catalogue.places import (
    BYTES_IN_BATCH,
    BYTES_IN_PARAMETERS,
    BYTES_IN_PEER_PARAMETERS,
    GRID_BY_VALUE,
    GRID_IN_LAUNCH_CONFIG,
    KIND_IN_PARAMETERS,
    STREAM_IN_LAUNCH_CONFIG,
)
from hotstage.probes.catalogue.spec import (
    CallSpec,
    Direction,
    Effect,
    Family,
    Layer,
    LibrarySpec,
    Tier,
)
from hotstage.probes.loader.base import PointKind
from hotstage.probes.maps.layout import FUNCTION_IS_GRAPH

_ALLOC, _FREE, _POOL = Family.ALLOC, Family.FREE, Family.POOL
_SYNC, _EVENT, _GRAPH = Family.SYNC, Family.EVENT, Family.GRAPH

_LAUNCHES = (
    # function, grid (two registers), block (two), arguments, shared bytes, stream
    launch(192, "cudaLaunchKernel", stream=8, function=1, grid=GRID_BY_VALUE),
    launch(
        193, "cudaLaunchKernelExC", stream=STREAM_IN_LAUNCH_CONFIG, function=2, grid=GRID_IN_LAUNCH_CONFIG
    ),
    launch(194, "cudaLaunchCooperativeKernel", stream=8, function=1, grid=GRID_BY_VALUE),
    launch(195, "cudaLaunchCooperativeKernelMultiDevice", essential=False, until="12.9"),
    launch(196, "cudaGraphLaunch", Family.GRAPH_LAUNCH, stream=2, function=FUNCTION_IS_GRAPH, tier=Tier.T0),
)

_HOST_FUNCTIONS = (
    plain(197, "cudaLaunchHostFunc", Family.HOST_FUNCTION, stream=1, tier=Tier.T1),
    plain(198, "cudaLaunchHostFunc_v2", Family.HOST_FUNCTION, stream=1, tier=Tier.T1, since="13.5"),
    plain(199, "cudaStreamAddCallback", Family.HOST_FUNCTION, stream=1, tier=Tier.T1),
)

_ALLOCATIONS = (
    memory(200, "cudaMalloc", _ALLOC, size=2, essential=True),
    memory(201, "cudaMallocPitch", _ALLOC, size=3, factor=4),
    memory(202, "cudaMalloc3D", _ALLOC),
    memory(203, "cudaMallocManaged", _ALLOC, size=2, essential=True),
    memory(204, "cudaMallocAsync", _ALLOC, size=2, stream=3, essential=True),
    memory(205, "cudaMallocFromPoolAsync", _ALLOC, size=2, stream=4),
    memory(206, "cudaFree", _FREE, essential=True),
    memory(207, "cudaFreeAsync", _FREE, stream=2, essential=True),
    memory(208, "cudaHostAlloc", _ALLOC, size=2),
    memory(209, "cudaMallocHost", _ALLOC, size=2),
    memory(210, "cudaFreeHost", _FREE),
    memory(211, "cudaHostRegister", _ALLOC, size=2),
    memory(212, "cudaHostUnregister", _FREE),
    memory(213, "cudaMemPoolCreate", _POOL),
    memory(214, "cudaMemPoolDestroy", _POOL),
    memory(215, "cudaMemPoolTrimTo", _POOL),
    memory(216, "cudaMallocArray", _ALLOC),
    memory(217, "cudaMalloc3DArray", _ALLOC),
    memory(218, "cudaMallocMipmappedArray", _ALLOC),
    memory(219, "cudaFreeArray", _FREE),
    memory(220, "cudaFreeMipmappedArray", _FREE),
    memory(221, "cudaIpcOpenMemHandle", _ALLOC),
    memory(222, "cudaIpcCloseMemHandle", _FREE),
    memory(460, "cudaImportExternalMemory", Family.ACCESS),
    memory(461, "cudaExternalMemoryGetMappedBuffer", _ALLOC),
    memory(462, "cudaExternalMemoryGetMappedMipmappedArray", _ALLOC),
    memory(463, "cudaDestroyExternalMemory", Family.ACCESS),
    memory(464, "cudaMemPoolImportPointer", _ALLOC),
    memory(465, "cudaGraphAddMemAllocNode", _GRAPH),
    memory(466, "cudaGraphAddMemFreeNode", _GRAPH),
    memory(467, "cudaDeviceGetGraphMemAttribute", _POOL),
    memory(468, "cudaDeviceGraphMemTrim", _POOL),
)

# A copy's direction is an argument of it (cudaMemcpyKind). Rows of arrays have a width in bytes.
_COPIES = (
    copy(224, "cudaMemcpy", kind=4, essential=True),
    copy(225, "cudaMemcpyAsync", stream=5, kind=4, essential=True),
    copy(226, "cudaMemcpy2D", size=5, factor=6, kind=7),
    copy(227, "cudaMemcpy2DAsync", size=5, factor=6, stream=8, kind=7),
    copy(228, "cudaMemcpy3D", size=BYTES_IN_PARAMETERS, kind=KIND_IN_PARAMETERS),
    copy(229, "cudaMemcpy3DAsync", size=BYTES_IN_PARAMETERS, stream=2, kind=KIND_IN_PARAMETERS),
    copy(230, "cudaMemcpyPeer", Direction.PEER, size=5, twin=False),
    copy(231, "cudaMemcpyPeerAsync", Direction.PEER, size=5, stream=6, twin=False),
    copy(232, "cudaMemcpy3DPeer", Direction.PEER, size=BYTES_IN_PEER_PARAMETERS),
    copy(233, "cudaMemcpy3DPeerAsync", Direction.PEER, size=BYTES_IN_PEER_PARAMETERS, stream=2),
    copy(234, "cudaMemcpyToSymbol", kind=5),
    copy(235, "cudaMemcpyToSymbolAsync", stream=6, kind=5),
    copy(236, "cudaMemcpyFromSymbol", kind=5),
    copy(237, "cudaMemcpyFromSymbolAsync", stream=6, kind=5),
    copy(238, "cudaMemcpy2DToArray", size=6, factor=7, kind=8),
    copy(239, "cudaMemcpy2DToArrayAsync", size=6, factor=7, stream=9, kind=8),
    copy(240, "cudaMemcpy2DFromArray", size=6, factor=7, kind=8),
    copy(241, "cudaMemcpy2DFromArrayAsync", size=6, factor=7, stream=9, kind=8),
    copy(242, "cudaMemcpy2DArrayToArray", size=7, factor=8, kind=9),
    copy(243, "cudaMemcpyToArray", size=5, kind=6),
    copy(244, "cudaMemcpyToArrayAsync", size=5, stream=7, kind=6),
    copy(245, "cudaMemcpyFromArray", size=5, kind=6),
    copy(246, "cudaMemcpyFromArrayAsync", size=5, stream=7, kind=6),
    copy(247, "cudaMemcpyArrayToArray", size=7, kind=8),
    copy(248, "cudaMemcpyBatchAsync", size=BYTES_IN_BATCH, since="12.9"),
    copy(249, "cudaMemcpy3DBatchAsync", size=0, since="12.9"),
    copy(250, "cudaMemcpyWithAttributesAsync", stream=5, since="13.5"),
    copy(251, "cudaMemcpy3DWithAttributesAsync", size=0, stream=3, since="13.5"),
    copy(252, "cudaMemPrefetchAsync", size=2),
    copy(253, "cudaMemPrefetchAsync_v2", size=2, since="12.9", until="12.9"),
    copy(254, "cudaMemPrefetchBatchAsync", size=0, since="13.5"),
    copy(255, "cudaMemDiscardAndPrefetchBatchAsync", size=0, since="13.5"),
)

_FILLS = (
    fill(256, "cudaMemset"),
    fill(257, "cudaMemsetAsync", stream=4),
    fill(258, "cudaMemset2D", size=4, factor=5),
    fill(259, "cudaMemset2DAsync", size=4, factor=5, stream=6),
    fill(260, "cudaMemset3D", size=0),
    fill(261, "cudaMemset3DAsync", size=0),
)

_WAITS = (
    plain(262, "cudaEventRecord", _EVENT, stream=2, tier=Tier.T2),
    plain(263, "cudaEventRecordWithFlags", _EVENT, stream=2, tier=Tier.T2),
    plain(264, "cudaStreamSynchronize", _SYNC, stream=1, essential=True),
    plain(265, "cudaDeviceSynchronize", _SYNC, essential=True),
    plain(266, "cudaEventSynchronize", _SYNC, essential=True),
    plain(267, "cudaThreadSynchronize", _SYNC, until="12.9"),
    plain(268, "cudaStreamWaitEvent", Family.EVENT_WAIT, stream=1, tier=Tier.T1),
    plain(269, "cudaExecutionCtxSynchronize", _SYNC, since="13.5"),
    plain(270, "cudaEventQuery", _EVENT, tier=Tier.T2),
    plain(271, "cudaStreamQuery", _EVENT, stream=1, tier=Tier.T2),
)

_GRAPHS = (
    plain(272, "cudaGraphInstantiate", _GRAPH),
    plain(273, "cudaGraphInstantiateWithFlags", _GRAPH),
    plain(
        274, "cudaGraphInstantiateWithParams", _GRAPH, since="12.9",
        variants=("cudaGraphInstantiateWithParams_ptsz",),
    ),
    plain(275, "cudaGraphExecUpdate", _GRAPH),
    plain(276, "cudaGraphUpload", _GRAPH, stream=2),
    plain(277, "cudaStreamBeginCapture", _GRAPH, stream=1),
    plain(278, "cudaStreamBeginCaptureToGraph", _GRAPH, stream=1, since="12.9"),
    plain(279, "cudaStreamEndCapture", _GRAPH, stream=1),
    plain(280, "cudaStreamBeginRecaptureToGraph", _GRAPH, stream=1, since="13.5"),
    plain(281, "cudaGraphDestroy", _GRAPH),
    plain(282, "cudaGraphExecDestroy", _GRAPH),
)  # fmt: skip

_DEVICES = (
    context(284, "cudaSetDevice", Effect.DEVICE_SET),
    plain(285, "cudaDeviceReset", Family.CONTEXT),
    # f(cudaDeviceProp *out, device); in CUDA 12 by either name, with the UUID at the same place.
    context(
        380,
        "cudaGetDeviceProperties",
        Effect.DEVICE_PROPERTIES,
        device=2,
        variants=("cudaGetDeviceProperties_v2",),
    ),
)

_FUNCTIONS = (
    # f(handle *out, host function): which function a handle is
    handle(381, "__cudaGetKernel", Effect.FUNCTION_OF, argument=2, since="12.9"),
    handle(382, "cudaGetKernel", Effect.FUNCTION_OF, argument=2, since="12.9"),
    replace(handle(383, "cudaGetFuncBySymbol", Effect.FUNCTION_OF, argument=2), is_essential=False),
    handle(384, "cudaLibraryGetKernel", Effect.FUNCTION_NAMED, argument=3, since="12.9"),
)

# Only where launches are probed too: a program registers tens of thousands at its load.
_REGISTRATION = CallSpec(
    call_id=385,
    name="__cudaRegisterFunction",
    kind=PointKind.KERNEL_REGISTERED,
    family=Family.HANDLE,
    is_fallback=True,
)


def _outer(call: CallSpec) -> CallSpec:
    return replace(call, kind=PointKind.OUTER, is_fallback=call.is_launch_class)


CUDA_RUNTIME = LibrarySpec(
    kind="libcudart",
    layer=Layer.RUNTIME,
    calls=(
        *map(
            _outer,
            (
                *_LAUNCHES,
                *_HOST_FUNCTIONS,
                *_ALLOCATIONS,
                *_COPIES,
                *_FILLS,
                *_WAITS,
                *_GRAPHS,
                *_DEVICES,
                *_FUNCTIONS,
            ),
        ),
        _REGISTRATION,
    ),
)
