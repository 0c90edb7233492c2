# SPDX-License-Identifier: Apache-2.0
"""libcuda.so.1: memory. Allocations, addresses, pools; copies by direction; fills.

A size that stands in a structure or an array is read there (`BYTES_IN_…`); of copies between arrays of
another shape only how many there were is known.
"""

from __future__ import annotations

from hotstage.probes.catalogue.cuda_rows import copy, fill, memory
from hotstage.probes.catalogue.places import (
    BYTES_BEHIND,
    BYTES_IN_2D,
    BYTES_IN_3D,
    BYTES_IN_ARRAY,
    BYTES_IN_ARRAY_3D,
    BYTES_IN_BATCH,
    KIND_AROUND,
    KIND_IN_2D,
    KIND_IN_3D,
)
from hotstage.probes.catalogue.spec import (
    CallSpec,
    Direction,
    Effect,
    Family,
    Memory,
    Tier,
)

_HTOD, _DTOH, _DTOD = Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST, Direction.DEVICE_TO_DEVICE
_ALLOC, _FREE, _POOL = Family.ALLOC, Family.FREE, Family.POOL

# Whatever frees one kind is essential where what allocates it is: half of them would be a wrong ledger.
_ALLOCATIONS = (
    memory(16, "cuMemAlloc_v2", _ALLOC, size=2, of=Memory.DEVICE, essential=True),
    memory(17, "cuMemAllocPitch_v2", _ALLOC, size=3, factor=4, of=Memory.PITCHED, beside=2, essential=True),
    memory(18, "cuMemAllocManaged", _ALLOC, size=2, of=Memory.MANAGED, essential=True),
    memory(19, "cuMemAllocAsync", _ALLOC, size=2, stream=3, of=Memory.POOL, essential=True),
    memory(20, "cuMemAllocFromPoolAsync", _ALLOC, size=2, stream=4, of=Memory.POOL, essential=True),
    memory(21, "cuMemFree_v2", _FREE, of=Memory.DEVICE, essential=True),
    memory(22, "cuMemFreeAsync", _FREE, stream=2, of=Memory.POOL, essential=True),
    memory(23, "cuMemHostAlloc", _ALLOC, size=2, of=Memory.HOST),
    memory(24, "cuMemAllocHost_v2", _ALLOC, size=2, of=Memory.HOST),
    memory(25, "cuMemFreeHost", _FREE, of=Memory.HOST),
    memory(26, "cuMemCreate", _ALLOC, size=2, of=Memory.PHYSICAL, beside=3, essential=True),
    memory(27, "cuMemRelease", _FREE, of=Memory.PHYSICAL, essential=True),
    memory(
        28, "cuMemMap", _ALLOC, size=2, effect=Effect.MEMORY_MAP, of=Memory.MAPPED, beside=4, essential=True
    ),
    memory(29, "cuMemUnmap", _FREE, size=2, effect=Effect.MEMORY_UNMAP, of=Memory.MAPPED, essential=True),
    memory(30, "cuMemAddressReserve", _ALLOC, size=2, of=Memory.RESERVED),
    memory(31, "cuMemAddressFree", _FREE, of=Memory.RESERVED),
    memory(32, "cuMemHostRegister_v2", _ALLOC, size=2, effect=Effect.MEMORY_REGISTER, of=Memory.HOST),
    memory(33, "cuMemHostUnregister", _FREE, of=Memory.HOST),
    memory(34, "cuMemPoolCreate", _POOL),
    memory(35, "cuMemPoolDestroy", _POOL, effect=Effect.POOL_FORGOTTEN, of=Memory.POOL),
    memory(36, "cuMemPoolTrimTo", _POOL, effect=Effect.POOL_FORGOTTEN, of=Memory.POOL),
    memory(37, "cuMemSetAccess", Family.ACCESS, size=2, tier=Tier.T2),
    memory(38, "cuMemImportFromShareableHandle", _ALLOC, effect=Effect.MEMORY_HOLD, of=Memory.IMPORTED),
    memory(
        157,
        "cuMemRetainAllocationHandle",
        Family.HANDLE,
        effect=Effect.MEMORY_HOLD,
        of=Memory.IMPORTED,
        essential=True,
    ),
    memory(158, "cuMemPoolGetAttribute", _POOL, effect=Effect.POOL_ATTRIBUTE, of=Memory.POOL),
    memory(150, "cuArrayCreate_v2", _ALLOC, size=BYTES_IN_ARRAY, of=Memory.ARRAY, beside=2),
    memory(151, "cuArray3DCreate_v2", _ALLOC, size=BYTES_IN_ARRAY_3D, of=Memory.ARRAY, beside=2),
    memory(152, "cuArrayDestroy", _FREE, of=Memory.ARRAY),
    memory(
        153, "cuMipmappedArrayCreate", _ALLOC, size=BYTES_IN_ARRAY_3D, factor=3, of=Memory.ARRAY, beside=2
    ),
    memory(154, "cuMipmappedArrayDestroy", _FREE, of=Memory.ARRAY),
)

# What another process, another GPU or another API made, at an address or behind a handle of this process.
_ELSEWHERE = (
    memory(
        155,
        "cuIpcOpenMemHandle_v2",
        _ALLOC,
        effect=Effect.MEMORY_HOLD,
        of=Memory.SHARED,
        variants=("cuIpcOpenMemHandle",),
    ),
    memory(156, "cuIpcCloseMemHandle", _FREE, of=Memory.SHARED),
    memory(430, "cuMemPoolImportPointer", _ALLOC, effect=Effect.MEMORY_HOLD, of=Memory.SHARED),
    memory(431, "cuMemPoolImportFromShareableHandle", _POOL),
    memory(432, "cuImportExternalMemory", Family.ACCESS),
    # f(address *out, external memory, {offset, size, ..} *)
    memory(
        433,
        "cuExternalMemoryGetMappedBuffer",
        _ALLOC,
        size=BYTES_BEHIND,
        factor=3,
        offset=8,
        of=Memory.EXTERNAL,
    ),
    memory(434, "cuExternalMemoryGetMappedMipmappedArray", _ALLOC, of=Memory.ARRAY),
    memory(435, "cuDestroyExternalMemory", Family.ACCESS),
    # f(handle *out, {devices, size, ..} *); each GPU's part is physical memory of its own
    memory(436, "cuMulticastCreate", _ALLOC, size=BYTES_BEHIND, factor=2, offset=8, of=Memory.MULTICAST),
    memory(447, "cuMulticastAddDevice", Family.ACCESS),
    memory(437, "cuMulticastBindMem", Family.ACCESS),
    memory(438, "cuMulticastBindMem_v2", Family.ACCESS, since="13.5"),
    memory(439, "cuMulticastBindAddr", Family.ACCESS),
    memory(440, "cuMulticastBindAddr_v2", Family.ACCESS, since="13.5"),
    memory(441, "cuMulticastUnbind", Family.ACCESS),
    memory(442, "cuMemExportToShareableHandle", Family.ACCESS),
    memory(443, "cuMemPoolExportPointer", _POOL),
    memory(444, "cuMemPoolExportToShareableHandle", _POOL),
    memory(445, "cuIpcGetMemHandle", Family.ACCESS),
    memory(446, "cuMemMapArrayAsync", _ALLOC, stream=3),
)

# Nodes say their size in CUDA_MEM_ALLOC_NODE_PARAMS, alone or behind the 16 bytes of a node's type.
_OF_GRAPHS = (
    memory(
        450,
        "cuGraphAddMemAllocNode",
        Family.GRAPH,
        size=BYTES_BEHIND,
        factor=5,
        offset=104,
        effect=Effect.MEMORY_NODE,
        of=Memory.GRAPH,
    ),
    memory(451, "cuGraphAddMemFreeNode", Family.GRAPH),
    memory(
        452,
        "cuGraphAddNode",
        Family.GRAPH,
        size=BYTES_BEHIND,
        factor=5,
        offset=120,
        effect=Effect.MEMORY_NODE,
        of=Memory.GRAPH,
    ),
    memory(
        453,
        "cuGraphAddNode_v2",
        Family.GRAPH,
        size=BYTES_BEHIND,
        factor=6,
        offset=120,
        effect=Effect.MEMORY_NODE,
        of=Memory.GRAPH,
        since="550",
    ),
    # No header of it was at hand: what its node allocates is not read.
    memory(456, "cuGraphAddNode_v3", Family.GRAPH, since="13.5"),
    memory(454, "cuDeviceGetGraphMemAttribute", _POOL, effect=Effect.POOL_ATTRIBUTE, of=Memory.GRAPH),
    memory(455, "cuDeviceGraphMemTrim", _POOL, effect=Effect.POOL_FORGOTTEN, of=Memory.GRAPH),
)

_COPIES = (
    copy(40, "cuMemcpyHtoD_v2", _HTOD, essential=True),
    copy(41, "cuMemcpyDtoH_v2", _DTOH, essential=True),
    copy(42, "cuMemcpyDtoD_v2", _DTOD, essential=True),
    copy(43, "cuMemcpyHtoDAsync_v2", _HTOD, stream=4, essential=True),
    copy(44, "cuMemcpyDtoHAsync_v2", _DTOH, stream=4, essential=True),
    copy(45, "cuMemcpyDtoDAsync_v2", _DTOD, stream=4, essential=True),
    copy(46, "cuMemcpy", kind=KIND_AROUND, essential=True),
    copy(47, "cuMemcpyAsync", stream=4, kind=KIND_AROUND, essential=True),
    copy(48, "cuMemcpyPeerAsync", Direction.PEER, size=5, stream=6),
    copy(49, "cuMemcpyPeer", Direction.PEER, size=5),
    copy(50, "cuMemcpy2D_v2", size=BYTES_IN_2D, kind=KIND_IN_2D),
    copy(51, "cuMemcpy2DUnaligned_v2", size=BYTES_IN_2D, kind=KIND_IN_2D),
    copy(52, "cuMemcpy2DAsync_v2", size=BYTES_IN_2D, kind=KIND_IN_2D, stream=2),
    copy(53, "cuMemcpy3D_v2", size=BYTES_IN_3D, kind=KIND_IN_3D),
    copy(54, "cuMemcpy3DAsync_v2", size=BYTES_IN_3D, kind=KIND_IN_3D, stream=2),
    copy(130, "cuMemcpy3DPeer", Direction.PEER, size=BYTES_IN_3D),
    copy(131, "cuMemcpy3DPeerAsync", Direction.PEER, size=BYTES_IN_3D, stream=2),
    copy(132, "cuMemcpyAtoA_v2", _DTOD, size=5),
    copy(133, "cuMemcpyAtoD_v2", _DTOD, size=4),
    copy(134, "cuMemcpyAtoH_v2", _DTOH, size=4),
    copy(135, "cuMemcpyAtoHAsync_v2", _DTOH, size=4, stream=5),
    copy(136, "cuMemcpyDtoA_v2", _DTOD, size=4),
    copy(137, "cuMemcpyHtoA_v2", _HTOD, size=4),
    copy(138, "cuMemcpyHtoAAsync_v2", _HTOD, size=4, stream=5),
    copy(139, "cuMemcpyBatchAsync", size=BYTES_IN_BATCH, stream=9, since="12.9"),
    copy(140, "cuMemcpyBatchAsync_v2", size=BYTES_IN_BATCH, stream=8, since="13.5"),
    copy(141, "cuMemcpy3DBatchAsync", size=0, stream=5, since="12.9"),
    copy(142, "cuMemcpy3DBatchAsync_v2", size=0, stream=4, since="13.5"),
    copy(143, "cuMemcpyWithAttributesAsync", stream=5, kind=KIND_AROUND, since="13.5"),
    copy(144, "cuMemcpy3DWithAttributesAsync", size=0, stream=3, since="13.5"),
    copy(145, "cuFabricCpyBatchAsync", size=0, stream=4, since="13.5"),
    copy(146, "cuMemPrefetchAsync", size=2, stream=4),
    copy(147, "cuMemPrefetchAsync_v2", size=2, stream=5),
    copy(148, "cuMemPrefetchBatchAsync", size=0, stream=8, since="13.5"),
    copy(149, "cuMemDiscardAndPrefetchBatchAsync", size=0, stream=8, since="13.5"),
)

_FILLS = (
    fill(56, "cuMemsetD8_v2"),
    fill(57, "cuMemsetD32_v2", element_bytes=4),
    fill(58, "cuMemsetD8Async", stream=4),
    fill(59, "cuMemsetD32Async", element_bytes=4, stream=4),
    fill(60, "cuMemsetD16_v2", element_bytes=2),
    fill(61, "cuMemsetD16Async", element_bytes=2, stream=4),
    fill(160, "cuMemsetD2D8_v2", size=4, factor=5),
    fill(161, "cuMemsetD2D8Async", size=4, factor=5, stream=6),
    fill(162, "cuMemsetD2D16_v2", element_bytes=2, size=4, factor=5),
    fill(163, "cuMemsetD2D16Async", element_bytes=2, size=4, factor=5, stream=6),
    fill(164, "cuMemsetD2D32_v2", element_bytes=4, size=4, factor=5),
    fill(165, "cuMemsetD2D32Async", element_bytes=4, size=4, factor=5, stream=6),
)

MEMORY_CALLS: tuple[CallSpec, ...] = (*_ALLOCATIONS, *_ELSEWHERE, *_OF_GRAPHS, *_COPIES, *_FILLS)
