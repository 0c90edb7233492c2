# SPDX-License-Identifier: Apache-2.0
"""How the kernel is told of a call: the dtype equal to `struct call_spec` of bpf/include/abi.h; no logic."""

from __future__ import annotations

import numpy as np

CALL_SPEC_DTYPE = np.dtype(
    [
        ("bytes_argument", "u1"),
        ("factor_argument", "u1"),
        ("bytes_shift", "u1"),
        ("stream_argument", "u1"),
        ("effect", "u1"),
        ("device_argument", "u1"),
        ("wait", "u1"),
        ("function_argument", "u1"),
        ("step", "u1"),
        ("grid_argument", "u1"),
        ("detail", "u1"),
        ("answer", "u1"),
        ("type_argument", "u1"),
        ("rank_argument", "u1"),
        ("no_error", "i1"),
        ("kind_argument", "u1"),
    ]
)
