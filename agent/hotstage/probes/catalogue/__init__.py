# SPDX-License-Identifier: Apache-2.0
"""What is probed: one table a library. `LIBRARIES` is all of them."""

from __future__ import annotations

from collections.abc import Mapping

from hotstage.probes.catalogue.cuda_driver import CUDA_DRIVER
from hotstage.probes.catalogue.cuda_runtime import CUDA_RUNTIME
from hotstage.probes.catalogue.cudnn import CUDNN
from hotstage.probes.catalogue.libav import LIBAV
from hotstage.probes.catalogue.marks import MARKS
from hotstage.probes.catalogue.nccl import NCCL
from hotstage.probes.catalogue.onnxruntime import ONNX_RUNTIME
from hotstage.probes.catalogue.spec import CallSpec, Layer, LibrarySpec
from hotstage.probes.catalogue.torch_allocator import TORCH_ALLOCATOR, TORCH_REQUESTS
from hotstage.probes.catalogue.torch_nvtx import TORCH_NVTX

LIBRARIES: tuple[LibrarySpec, ...] = (
    CUDA_DRIVER,
    CUDA_RUNTIME,
    NCCL,
    CUDNN,
    *LIBAV,
    ONNX_RUNTIME,
    MARKS,
    TORCH_NVTX,
    TORCH_ALLOCATOR,
    TORCH_REQUESTS,
)


def calls_by_id() -> Mapping[int, CallSpec]:
    """Every call of every library by its pinned id."""
    return {call.call_id: call for library in LIBRARIES for call in library.calls}


def layers_by_id() -> Mapping[int, Layer]:
    """The layer of every call by its pinned id."""
    return {call.call_id: library.layer for library in LIBRARIES for call in library.calls}
