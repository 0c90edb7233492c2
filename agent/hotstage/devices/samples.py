# SPDX-License-Identifier: Apache-2.0
"""What is known of the GPUs as of now: one row per GPU, one state for all of it. Values and layout only.

Times are CLOCK_MONOTONIC in ns; NaN = unsupported or unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.devices.wire import DEVICE_FIELDS
from hotstage.probes.samples import XidEvent

_NUMPY_CODES = {"Q": "<u8", "I": "<u4", "d": "<f8"}

DEVICE_DTYPE = np.dtype([(name, _NUMPY_CODES.get(code, f"S{code[:-1]}")) for name, code in DEVICE_FIELDS])
"""The record on the pipe as a row; the fields are described in `wire.DEVICE_FIELDS`."""

HARDWARE_SLOWDOWN = 0x08 | 0x40 | 0x80
"""HW slowdown, thermal slowdown, power brake (nvml.h, nvmlClocksEventReason*); software capping is normal."""


class DevicesState(StrEnum):
    """What the agent knows about NVML."""

    starting = "starting"
    sampling = "sampling"
    no_library = "no_library"  # a host without the driver; looked for again once a minute
    failed = "failed"  # NVML refused, or the process died; tried again
    hung = "hung"  # it said nothing for too long and was abandoned; tried again
    disabled = "disabled"


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """The last word of the devices process; `rows` is DEVICE_DTYPE (G,), old ones when not fresh."""

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

    @property
    def uuid_by_bus(self) -> Mapping[str, str]:
        """PCI bus id → GPU UUID, as NVML writes both."""
        return {
            bus.decode("ascii", "replace"): uuid.decode("ascii", "replace")
            for bus, uuid in zip(self.rows["pci_bus_id"].tolist(), self.rows["uuid"].tolist(), strict=True)
        }

    @property
    def index_by_uuid(self) -> Mapping[str, int]:
        """GPU UUID → its index, as NVML counts."""
        uuids, indices = self.rows["uuid"].tolist(), self.rows["index"].tolist()
        return {uuid.decode("ascii", "replace"): at for uuid, at in zip(uuids, indices, strict=True)}


def no_devices(at_ns: int, state: DevicesState, reason: str) -> DeviceSample:
    """A sample of nothing, with the reason for people."""
    return DeviceSample(at_ns, state, reason, np.zeros(0, DEVICE_DTYPE))
