# SPDX-License-Identifier: Apache-2.0
"""What the devices process says: one row per GPU, one state for all of it. Values and layout only.

The row is also the record on the pipe. Times are CLOCK_MONOTONIC in ns; NaN = unsupported or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.samples import XidEvent

MAX_GPUS = 64

DEVICE_DTYPE = np.dtype(
    [
        ("uuid", "S48"),
        ("pci_bus_id", "S32"),
        ("name", "S64"),
        ("at_ns", "<u8"),  # memory
        ("slow_at_ns", "<u8"),  # utilisation, clocks, power, temperature
        ("index", "<u4"),
        ("is_lost", "<u4"),  # the driver says that the GPU is lost or needs a reset
        ("memory_used_bytes", "<f8"),
        ("memory_total_bytes", "<f8"),
        ("utilisation_ratio", "<f8"),  # duty cycle: share of time with a kernel running
        ("memory_busy_ratio", "<f8"),  # share of time memory was accessed; not bandwidth
        ("power_watts", "<f8"),
        ("power_limit_watts", "<f8"),
        ("temperature_celsius", "<f8"),
        ("sm_clock_hertz", "<f8"),
        ("memory_clock_hertz", "<f8"),
        ("energy_joules", "<f8"),  # since the driver was loaded
        ("event_reasons", "<u8"),  # bit mask of NVML's clocks event reasons
        ("call_seconds", "<f8"),  # slowest NVML call of this round
    ]
)

HARDWARE_SLOWDOWN = 0x08 | 0x40 | 0x80
"""HW slowdown, thermal slowdown, power brake (nvml.h, nvmlClocksEventReason*); software capping is normal."""


class DevicesState(StrEnum):
    """What the agent knows about NVML."""

    starting = "starting"
    sampling = "sampling"
    no_library = "no_library"  # no libnvidia-ml.so.1: a host without the driver
    failed = "failed"  # NVML refused to start, or the process died; tried again
    hung = "hung"  # it said nothing for too long and was abandoned; tried again
    disabled = "disabled"


class RecordKind(IntEnum):
    """First word of a record on the pipe."""

    state = 1
    device = 2
    xid = 3


HEADER_DTYPE = np.dtype([("magic", "<u4"), ("kind", "<u4"), ("size", "<u4"), ("count", "<u4")])
"""Before every record; `size` is in bytes and counts what follows the header."""

MAGIC = 0x48534456

STATE_DTYPE = np.dtype(
    [("at_ns", "<u8"), ("is_working", "<u4"), ("gpus", "<u4"), ("driver", "S32"), ("reason", "S184")]
)
XID_DTYPE = np.dtype([("at_ns", "<u8"), ("xid", "<u8"), ("pci_bus_id", "S32")])


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """The last word of the devices process; `rows` is DEVICE_DTYPE (G,), empty when there is none."""

    at_ns: int
    state: DevicesState
    reason: str
    rows: NDArray[Any]
    driver: str = ""
    xids: tuple[XidEvent, ...] = ()
    """Since the sample before, from NVML's events."""
    restarts: int = 0
    is_fresh: bool = False
    """The rows are young enough to speak of now."""
    uuid_by_bus: Mapping[str, str] = field(default_factory=dict)


def no_devices(at_ns: int, state: DevicesState, reason: str) -> DeviceSample:
    """A sample of nothing, with the reason for people."""
    return DeviceSample(at_ns, state, reason, np.zeros(0, DEVICE_DTYPE))
