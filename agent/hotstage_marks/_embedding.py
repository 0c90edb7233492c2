# SPDX-License-Identifier: Apache-2.0
"""An embedding by reference: where a vector lies, so that a watcher may read it. Nothing is copied.

What has the buffer protocol (numpy's arrays, `array`, `memoryview`) is looked at by the extension. A tensor
has not; its address, length and type are asked of it here, by name, so that nothing needs to be imported.
"""

from __future__ import annotations

from typing import Any, Optional

import hotstage_marks as marks

try:
    from hotstage_marks._native import embedding as _tell
except ImportError:
    from hotstage_marks._silent import embedding as _tell


def embedding(
    vector: Any = None,
    *,
    stage: Any = "other",
    modality: Any = "unknown",
    request: Any = None,
    address: Optional[int] = None,  # noqa: UP045 - read by Python 3.9
    dims: int = 0,
    dtype: Any = None,
) -> bool:
    """Tell where the request's embedding lies; True when somebody was told.

    `vector` is one row of float32, float16, bfloat16 or float64 in the host's memory; or say `address`,
    `dims` and `dtype` yourself, and give as `vector` whatever owns that memory. The owner is kept until the
    request ends or has another embedding: what is read later is what it holds by then. A vector on a device,
    of another type or with gaps is refused and counted (`statistics()["embeddings_refused"]`).
    """
    if not marks.is_watched():
        return False
    if address is None and hasattr(vector, "data_ptr"):
        address, dims, dtype = _tensor(vector)
    return _tell(
        vector,
        stage=stage,
        modality=modality,
        request=request,
        address=address,
        dims=dims,
        dtype=dtype,
    )


def _tensor(tensor: Any) -> tuple[int, int, Any]:
    """(address, dims, type) of one row on the host; (0, 0, None), which is refused, of anything else."""
    try:
        count = int(tensor.numel())
        is_row = tensor.is_contiguous() and count == int(tensor.shape[-1])
        if tensor.device.type == "cpu" and is_row:
            return int(tensor.data_ptr()), count, tensor.dtype
    except Exception:  # it only looks like a tensor
        return 0, 0, None
    return 0, 0, None
