# SPDX-License-Identifier: Apache-2.0
"""After which XIDs a GPU is broken until it is reset, and how to see that it was. Data, and one memory; no
verdict.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from hotstage.devices.samples import DeviceSample, DevicesState
from hotstage.text import normal_bus_id

NEEDS: Mapping[int, str] = {
    48: "a reset of the GPU",
    62: "a reset of the GPU",
    64: "a reset of the GPU",
    74: "a reset of the GPU and a look at its NVLinks",
    79: "a reboot of the host",
    95: "a reset of the GPU",
    110: "a reboot of the host",
    119: "a reset of the GPU",
    120: "a reset of the GPU",
    140: "a reset of the GPU",
}
"""What NVIDIA's catalogue has done before work goes on; `[detect] xid_until_reset` says which count."""

_VALUES = "NVML gives its values again"
_ENERGY = "its energy is counted from nothing again, as after a reset"
_DRIVER = "another version of the driver is loaded"


class Recovery:
    """When each GPU was last seen to come back, by NVML's word. Not thread-safe.

    Back is a GPU that gives values after it was lost or absent, that counts its energy from nothing again
    (the driver does so at a reset and when it is loaded), or that another version of the driver has. Silence
    of NVML, or of our process that asks it, is neither.
    """

    def __init__(self) -> None:
        self._away: set[str] = set()
        self._energy: dict[str, float] = {}
        self._driver = ""
        self._back: dict[str, tuple[int, str]] = {}

    def observe(self, sample: DeviceSample, watched: Collection[str]) -> None:
        """`watched`: normal bus ids of the GPUs that something is wrong with."""
        if sample.state is not DevicesState.sampling or not sample.is_fresh or not len(sample.rows):
            return
        is_other_driver = bool(self._driver) and sample.driver != self._driver
        self._driver = sample.driver
        rows = {normal_bus_id(row["pci_bus_id"].decode("ascii", "replace")): row for row in sample.rows}
        self._away |= set(watched) - rows.keys()
        for bus, row in rows.items():
            if row["is_lost"]:
                self._away.add(bus)
            elif math.isfinite(row["memory_total_bytes"]):
                sign = self._sign(bus, float(row["energy_joules"])) or (_DRIVER if is_other_driver else None)
                if sign is not None:
                    self._back[bus] = (sample.at_ns, sign)
                self._away.discard(bus)

    def back_since(self, bus: str, since_ns: int) -> tuple[int, str] | None:
        """(when the GPU was seen to be back, by what) where that is after `since_ns`; CLOCK_MONOTONIC."""
        back = self._back.get(bus)
        return back if back is not None and back[0] > since_ns else None

    def _sign(self, bus: str, energy_joules: float) -> str | None:
        """What shows it back, in words."""
        before = self._energy.get(bus, math.nan)
        if math.isfinite(energy_joules):
            self._energy[bus] = energy_joules
        if energy_joules < before:
            return _ENERGY
        return _VALUES if bus in self._away else None
