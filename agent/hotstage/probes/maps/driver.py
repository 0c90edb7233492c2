# SPDX-License-Identifier: Apache-2.0
"""The structures of bpf/include/driver.h as numpy dtypes. Names and sizes only, never logic."""

from __future__ import annotations

import numpy as np

from hotstage.probes.maps.layout import HISTOGRAM_SLOTS

EVENTS_MAX = 32
NAME = 32
UNKNOWN = (1 << 64) - 1

EVENT_INDEX_DTYPE = np.dtype([("index", "<u4")])
EVENT_COUNT_DTYPE = np.dtype([("hits", "<u8"), ("last_ns", "<u8")])
RING_DTYPE = np.dtype([("name", f"S{NAME}")])
COUNT_DTYPE = np.dtype([("count", "<u8")])
FENCE_KEY_DTYPE = np.dtype([("context", "<u4"), ("seqno", "<u4")])
OPEN_FENCE_DTYPE = np.dtype([("emitted_ns", "<u8"), ("driver", f"S{NAME}"), ("timeline", f"S{NAME}")])
TIMELINE_KEY_DTYPE = np.dtype([("driver", f"S{NAME}"), ("timeline", f"S{NAME}")])
TIMELINE_STAT_DTYPE = np.dtype(
    [
        *((name, "<u8") for name in ("emitted", "signaled", "total_ns", "max_ns")),
        ("counts", "<u8", (HISTOGRAM_SLOTS,)),
    ]
)
TGID_DTYPE = np.dtype([("tgid", "<u4")])
WAIT_STAT_DTYPE = np.dtype([("waits", "<u8"), ("total_ns", "<u8")])
GPU_MEMORY_KEY_DTYPE = np.dtype([("gpu", "<u4"), ("tgid", "<u4")])
GPU_MEMORY_DTYPE = np.dtype([("bytes", "<u8"), ("at_ns", "<u8")])
GPU_FILE_KEY_DTYPE = np.dtype([("tgid", "<u4"), ("fd", "<u4")])
DEVICE_DTYPE = np.dtype([("device", "<u4")])
IOCTL_KEY_DTYPE = np.dtype([("device", "<u4"), ("number", "<u4")])
IOCTL_STAT_DTYPE = np.dtype([(name, "<u8") for name in ("count", "errors", "slow", "total_ns", "max_ns")])

OOM_KILL, XID, SLOW_IOCTL = 1, 2, 3
OOM_EVENT_DTYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("at_ns", "<u8"),
        ("anon_kib", "<u8"),
        ("uid", "<u8"),
        ("comm", "S16"),
    ]
)
XID_EVENT_DTYPE = np.dtype(
    [("kind", "<u4"), ("xid", "<u4"), ("at_ns", "<u8"), ("bus", f"S{NAME}"), ("text", "S240")]
)
IOCTL_EVENT_DTYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("tgid", "<u4"),
        ("at_ns", "<u8"),
        ("duration_ns", "<u8"),
        ("tid", "<u4"),
        ("device", "<u4"),
        ("number", "<u4"),
        ("result", "<i4"),
    ]
)
RECORDS: dict[int, np.dtype[np.void]] = {
    OOM_KILL: OOM_EVENT_DTYPE,
    XID: XID_EVENT_DTYPE,
    SLOW_IOCTL: IOCTL_EVENT_DTYPE,
}
