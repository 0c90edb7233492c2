# SPDX-License-Identifier: Apache-2.0
"""Threads whose probes have gone: what they were in is over for us. Descriptors in, nothing kept."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.maps import layout

_AT = layout.THREAD_DTYPE.itemsize - layout.THREAD_STATE_DTYPE.itemsize


def rest(threads_fd: int, threads: NDArray[np.void]) -> None:
    """Write THREAD_DTYPE rows back as threads in no call, stage, request or batch; device, context and totals
    stay.

    Only while no program runs for them: a thread's state is its own otherwise.
    """
    rows = threads.copy()
    for name in ("call", "depth", "in_batch", "request_hash", "source", "rules_generation", "rule_flags"):
        rows[name] = 0
    for name in ("stage", "inferred_stage", "rule_stage"):
        rows[name] = layout.NO_STAGE
    for name in ("modality", "inferred_modality", "rule_modality"):
        rows[name] = layout.MODALITIES - 1
    for row in rows:
        bpf.update(threads_fd, struct.pack("<I", row["tid"]), row.tobytes()[_AT:])
