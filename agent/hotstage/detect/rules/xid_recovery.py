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
        self._back_ns: dict[str, int] = {}

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
                if self._is_back(bus, float(row["energy_joules"])) or is_other_driver:
                    self._back_ns[bus] = sample.at_ns
                self._away.discard(bus)

    def is_back_since(self, bus: str, since_ns: int) -> bool:
        """Whether the GPU came back after that time (CLOCK_MONOTONIC)."""
        return self._back_ns.get(bus, 0) > since_ns

    def _is_back(self, bus: str, energy_joules: float) -> bool:
        before = self._energy.get(bus, math.nan)
        if math.isfinite(energy_joules):
            self._energy[bus] = energy_joules
        return bus in self._away or energy_joules < before
