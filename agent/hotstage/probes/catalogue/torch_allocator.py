# SPDX-License-Identifier: Apache-2.0
"""PyTorch's CUDA allocator: two functions that libc10.so exports, and the USDT probes of libc10_cuda.so.

Names and arguments as in c10/core/Allocator.h and c10/cuda/CUDACachingAllocator.cpp; the same in the wheels
2.2.2, 2.6.0 and 2.14.1. Pluggable allocators and sleep modes go past all of them.
"""

from __future__ import annotations

from hotstage.probes.catalogue.spec import CallSpec, Family, Layer, LibrarySpec, Tier
from hotstage.probes.loader.base import PointKind

TORCH_ALLOCATOR = LibrarySpec(
    kind="libc10",
    layer=Layer.DRIVER,
    has_placement_rule=True,
    calls=(
        CallSpec(
            call_id=368,
            name="_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
            kind=PointKind.TORCH_REPORT,
            family=Family.MARK,
            tier=Tier.T0,
            is_essential=True,
        ),
        CallSpec(
            call_id=369,
            name="_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
            kind=PointKind.TORCH_OUT_OF_MEMORY,
            family=Family.MARK,
            tier=Tier.T0,
            is_essential=True,
        ),
    ),
)

TORCH_REQUESTS = LibrarySpec(
    kind="libc10_cuda",
    layer=Layer.DRIVER,
    calls=(
        CallSpec(
            call_id=370,
            name="pytorch:malloc",
            kind=PointKind.TORCH_MALLOC,
            family=Family.MARK,
            tier=Tier.T0,
            operands=(1, 3),  # of (ptr, device, requested_size, stream)
            is_essential=True,
        ),
        CallSpec(
            call_id=371,
            name="pytorch:free",
            kind=PointKind.TORCH_FREE,
            family=Family.MARK,
            tier=Tier.T0,
            operands=(1,),
            is_essential=True,
        ),
    ),
)
