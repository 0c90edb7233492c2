# SPDX-License-Identifier: Apache-2.0
"""Where an argument is that has no plain position: in a structure, in an array, behind another one. As in
bpf/include/abi.h; no symbol here.
"""

from __future__ import annotations

import platform

STREAM_IN_LAUNCH_CONFIG = 64
"""The stream stands 32 bytes behind the first argument (CUlaunchConfig.hStream in cuda.h, and the stream of
cudaLaunchConfig_t in driver_types.h).
"""
BYTES_IN_2D, BYTES_IN_3D, BYTES_IN_BATCH = 64, 65, 66
"""The size is in memory: width × height of a CUDA_MEMCPY2D, width × height × depth of a CUDA_MEMCPY3D behind
the first argument (cuda.h); the sum of as many sizes behind the third argument as the fourth one says.
"""
BYTES_IN_ARRAY, BYTES_IN_ARRAY_3D, BYTES_BEHIND = 67, 68, 69
"""The size is in memory: what a CUDA_ARRAY_DESCRIPTOR or CUDA_ARRAY3D_DESCRIPTOR behind the second argument
makes of it, with as many levels as argument `factor_argument` says; a number of 8 bytes, `bytes_offset`
behind the address in argument `factor_argument`.
"""

BYTES_IN_PARAMETERS, BYTES_IN_PEER_PARAMETERS = 70, 71
"""The same of a cudaMemcpy3DParms, a cudaMemcpy3DPeerParms (driver_types.h), where no array takes part."""

KIND_IN_PARAMETERS, KIND_AROUND, KIND_IN_2D, KIND_IN_3D = 64, 65, 66, 67
"""A copy's direction is a member of its cudaMemcpy3DParms; is what the runtime's call around it says; is told
by the kinds of memory in its CUDA_MEMCPY2D or CUDA_MEMCPY3D, or around it.
"""

GRID_IN_LAUNCH_CONFIG, GRID_BY_VALUE = 64, 65
"""The grid is the first three members behind the first argument (CUlaunchConfig in cuda.h, and
cudaLaunchConfig_t); is a dim3 in the second and third argument.
"""

RANKS_IN_ORDER = 64
"""The first argument has a communicator for each rank, in order (ncclCommInitAll)."""

LAST_STACK_ARGUMENT = 9
SIZES_IN_MEMORY = (
    BYTES_IN_2D,
    BYTES_IN_3D,
    BYTES_IN_BATCH,
    BYTES_IN_ARRAY,
    BYTES_IN_ARRAY_3D,
    BYTES_BEHIND,
    BYTES_IN_PARAMETERS,
    BYTES_IN_PEER_PARAMETERS,
)


def by_machine(*, x86_64: int, aarch64: int) -> int:
    """An argument's position behind a structure that is passed by value, on this machine."""
    return aarch64 if platform.machine() == "aarch64" else x86_64
