# SPDX-License-Identifier: Apache-2.0
"""Metrics of launched kernels. A part of `metrics.py`."""

from __future__ import annotations

from hotstage.sinks.metric import Metric

KERNELS_MAX = 16
"""Names at most; besides there are (graphs), (unnamed) and other."""
KERNEL_LAUNCHES = Metric(
    "hotstage_kernel_launches_total",
    "counter",
    ("kernel",),
    "Launches by kernel, of all processes: those launched most, (graphs), (unnamed), and other for the rest.",
    cap=KERNELS_MAX + 3,
    counts="call",
)

KERNEL_METRICS: tuple[Metric, ...] = (KERNEL_LAUNCHES,)
