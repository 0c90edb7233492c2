# SPDX-License-Identifier: Apache-2.0
"""NVTX ranges of PyTorch where nothing was injected: local functions in `libtorch_python.so`'s symbol table.

They are compiled into it from NVTX's headers and exported by nobody, so their names are looked for among the
local symbols; a copy of each compilation unit is numbered (`nvtxRangePushA#2`).
"""

from __future__ import annotations

from hotstage.probes.catalogue.spec import CallSpec, Family, Layer, LibrarySpec
from hotstage.probes.loader.base import PointKind

COPIES = 4
"""Of one function in one file; PyTorch has one."""

_FUNCTIONS = (
    (491, "nvtxRangePushA", PointKind.NVTX_PUSH),
    (492, "nvtxRangePop", PointKind.NVTX_POP),
)

TORCH_NVTX = LibrarySpec(
    kind="torch_nvtx",
    layer=Layer.DRIVER,
    has_placement_rule=True,
    calls=tuple(
        CallSpec(
            call_id=call_id,
            name=name,
            variants=tuple(f"{name}#{copy}" for copy in range(2, COPIES + 1)),
            kind=kind,
            family=Family.MARK,
            is_essential=True,
        )
        for call_id, name, kind in _FUNCTIONS
    ),
)
