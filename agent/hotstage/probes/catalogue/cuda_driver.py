# SPDX-License-Identifier: Apache-2.0
"""libcuda.so.1: the calls that every user of CUDA ends in, with the positions of their arguments in cuda.h.

Ids are pinned: they are stored in maps and records. `_v2` names are the ABI of today; the bare legacy twins
(32-bit sizes) are not probed, but for those that the runtime still asks for. `_ptsz` and `_ptds` are the same
call on the per-thread default stream. Memory is in `cuda_driver_memory.py`.
"""

from __future__ import annotations

from hotstage.probes.catalogue.cuda_driver_memory import MEMORY_CALLS
from hotstage.probes.catalogue.cuda_rows import context, graph, handle, launch, plain
from hotstage.probes.catalogue.places import (
    GRID_IN_LAUNCH_CONFIG,
    STREAM_IN_LAUNCH_CONFIG,
)
from hotstage.probes.catalogue.spec import (
    PRIMARY_CONTEXT,
    RECAPTURE,
    ContextEnd,
    Effect,
    Family,
    Graph,
    Layer,
    LibrarySpec,
    Tier,
)
from hotstage.probes.maps.layout import FUNCTION_IS_GRAPH

_GRAPH, _SYNC, _EVENT, _MODULE = Family.GRAPH, Family.SYNC, Family.EVENT, Family.MODULE

_LAUNCHES = (
    # f, grid x y z, block x y z, shared bytes, stream, ...
    launch(1, "cuLaunchKernel", stream=9, function=1, grid=2),
    launch(2, "cuLaunchKernelEx", stream=STREAM_IN_LAUNCH_CONFIG, function=2, grid=GRID_IN_LAUNCH_CONFIG),
    launch(3, "cuLaunchCooperativeKernel", stream=9, function=1, grid=2),
    launch(4, "cuGraphLaunch", Family.GRAPH_LAUNCH, stream=2, function=FUNCTION_IS_GRAPH, tier=Tier.T0),
    launch(5, "cuLaunchCooperativeKernelMultiDevice", essential=False),
    launch(6, "cuLaunch", essential=False, function=1),
    launch(7, "cuLaunchGrid", essential=False, function=1),
    launch(8, "cuLaunchGridAsync", essential=False, stream=4, function=1),
    plain(9, "cuLaunchHostFunc", Family.HOST_FUNCTION, stream=1, tier=Tier.T1),
    plain(10, "cuLaunchHostFunc_v2", Family.HOST_FUNCTION, stream=1, tier=Tier.T1, since="13.5"),
    plain(11, "cuStreamAddCallback", Family.HOST_FUNCTION, stream=1, tier=Tier.T1),
)

_WAITS = (
    plain(64, "cuStreamSynchronize", _SYNC, stream=1, essential=True),
    plain(65, "cuEventSynchronize", _SYNC, essential=True),
    plain(66, "cuCtxSynchronize", _SYNC, essential=True),
    plain(67, "cuCtxSynchronize_v2", _SYNC, essential=True, since="13.5"),
    graph(68, "cuStreamWaitEvent", Effect.CAPTURE_JOIN, stream=1),
    plain(69, "cuEventRecord", _EVENT, stream=2, tier=Tier.T2),
    plain(70, "cuEventRecordWithFlags", _EVENT, stream=2, tier=Tier.T2),
    plain(71, "cuEventQuery", _EVENT, tier=Tier.T2),
    plain(72, "cuStreamQuery", _EVENT, stream=1, tier=Tier.T2),
    plain(73, "cuEventElapsedTime", _EVENT, tier=Tier.T2),
    plain(74, "cuEventElapsedTime_v2", _EVENT, tier=Tier.T2, since="12.9"),
    plain(75, "cuEventCreate", _EVENT, tier=Tier.T2),
    plain(76, "cuEventDestroy_v2", _EVENT, tier=Tier.T2),
    plain(
        78, "cuStreamWaitValue32_v2", Family.EVENT_WAIT, tier=Tier.T2, variants=(
            "cuStreamWaitValue32_v2_ptsz", "cuStreamWaitValue32", "cuStreamWaitValue32_ptsz"
        ), stream=1,
    ),
    plain(
        79, "cuStreamWaitValue64_v2", Family.EVENT_WAIT, tier=Tier.T2, variants=(
            "cuStreamWaitValue64_v2_ptsz", "cuStreamWaitValue64", "cuStreamWaitValue64_ptsz"
        ), stream=1,
    ),
)  # fmt: skip

_GRAPHS = (
    # f(CUgraphExec *out, CUgraph, ..)
    graph(80, "cuGraphInstantiateWithFlags", Effect.GRAPH, argument=2, twin=False),
    graph(81, "cuGraphInstantiateWithParams", Effect.GRAPH, argument=2),
    graph(82, "cuGraphInstantiate", Effect.GRAPH, argument=2, twin=False),
    graph(83, "cuGraphInstantiate_v2", Effect.GRAPH, argument=2, twin=False),
    plain(84, "cuGraphExecUpdate", _GRAPH),
    plain(85, "cuGraphExecUpdate_v2", _GRAPH),
    plain(86, "cuGraphUpload", _GRAPH, stream=2),
    graph(87, "cuGraphDestroy", Effect.GRAPH, detail=Graph.DESTROYED, twin=False),
    graph(88, "cuGraphExecDestroy", Effect.GRAPH, detail=Graph.DESTROYED, twin=False),
    graph(89, "cuStreamBeginCapture", Effect.CAPTURE_BEGIN, stream=1),
    graph(90, "cuStreamBeginCapture_v2", Effect.CAPTURE_BEGIN, stream=1),
    graph(91, "cuStreamBeginCaptureToGraph", Effect.CAPTURE_BEGIN, stream=1, argument=2, since="550"),
    graph(92, "cuStreamEndCapture", Effect.CAPTURE_END, stream=1, argument=2),
    graph(
        93, "cuStreamBeginRecaptureToGraph", Effect.CAPTURE_BEGIN, stream=1, detail=RECAPTURE, since="13.5"
    ),
    plain(94, "cuStreamBeginCaptureToCig", _GRAPH, stream=1, since="13.5"),
    plain(95, "cuStreamEndCaptureToCig", _GRAPH, stream=1, since="13.5"),
)

_CONTEXTS = (
    context(96, "cuDevicePrimaryCtxRetain", Effect.CONTEXT_NEW, device=2, detail=PRIMARY_CONTEXT),
    context(97, "cuCtxSetCurrent", Effect.CONTEXT_CURRENT),
    context(98, "cuCtxPushCurrent_v2", Effect.CONTEXT_PUSH),
    context(99, "cuCtxPopCurrent_v2", Effect.CONTEXT_POP),
    context(100, "cuDeviceGetUuid_v2", Effect.DEVICE_UUID, device=2),
    context(101, "cuCtxCreate_v2", Effect.CONTEXT_NEW, device=3),
    context(102, "cuCtxCreate_v3", Effect.CONTEXT_NEW, device=5),
    context(103, "cuCtxCreate_v4", Effect.CONTEXT_NEW, device=4, since="555"),
    context(104, "cuCtxDestroy_v2", Effect.CONTEXT_END, detail=ContextEnd.CONTEXT_DESTROYED),
    # The runtime asks for both by the versions of their bare names.
    context(
        105,
        "cuDevicePrimaryCtxRelease_v2",
        Effect.CONTEXT_END,
        detail=ContextEnd.PRIMARY_RELEASED,
        variants=("cuDevicePrimaryCtxRelease",),
    ),
    context(
        106,
        "cuDevicePrimaryCtxReset_v2",
        Effect.CONTEXT_END,
        detail=ContextEnd.PRIMARY_RESET,
        variants=("cuDevicePrimaryCtxReset",),
    ),
    context(107, "cuCtxDetach"),
    plain(108, "cuGreenCtxCreate", Family.CONTEXT, since="550"),
    plain(109, "cuGreenCtxDestroy", Family.CONTEXT, since="550"),
)

_HANDLES = (
    handle(112, "cuModuleGetFunction", Effect.FUNCTION_NAMED, argument=3),
    handle(113, "cuLibraryGetKernel", Effect.FUNCTION_NAMED, argument=3),
    handle(114, "cuKernelGetFunction", Effect.FUNCTION_OF, argument=2),
    handle(115, "cuStreamCreate", Effect.STREAM_NEW),
    handle(116, "cuStreamCreateWithPriority", Effect.STREAM_NEW, argument=3),
    plain(117, "cuStreamDestroy_v2", Family.CONTEXT),
    handle(118, "cuGreenCtxStreamCreate", Effect.STREAM_NEW, argument=4, since="555"),
    plain(119, "cuModuleLoad", _MODULE),
    plain(120, "cuModuleLoadData", _MODULE),
    plain(121, "cuModuleLoadDataEx", _MODULE),
    plain(122, "cuModuleLoadFatBinary", _MODULE),
    plain(123, "cuModuleUnload", _MODULE),
    plain(124, "cuLibraryLoadData", _MODULE),
    plain(125, "cuLibraryLoadFromFile", _MODULE),
    plain(126, "cuLibraryUnload", _MODULE),
)

CUDA_DRIVER = LibrarySpec(
    kind="libcuda",
    layer=Layer.DRIVER,
    has_placement_rule=True,
    calls=(*_LAUNCHES, *MEMORY_CALLS, *_WAITS, *_GRAPHS, *_CONTEXTS, *_HANDLES),
)
