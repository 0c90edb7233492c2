# SPDX-License-Identifier: Apache-2.0
"""What is probed: one table a library. `LIBRARIES` is all of them."""

from __future__ import annotations

from collections.abc import Mapping

from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.probes.catalogue.marks import MARKS
from hotstage.probes.catalogue.spec import CallSpec, LibrarySpec
from hotstage.probes.catalogue.torch_allocator import TORCH_ALLOCATOR, TORCH_REQUESTS
from hotstage.probes.catalogue.torch_nvtx import TORCH_NVTX

LIBRARIES: tuple[LibrarySpec, ...] = (CUDA_DRIVER, MARKS, TORCH_NVTX, TORCH_ALLOCATOR, TORCH_REQUESTS)


def calls_by_id() -> Mapping[int, CallSpec]:
    """Every call of every library by its pinned id."""
    return {call.call_id: call for library in LIBRARIES for call in library.calls}
