# SPDX-License-Identifier: Apache-2.0
"""The simulated GPUs: who they are, and what NVML says of them as the servers work.

Memory is the allocators' own (stub libcuda writes it); load is the share of time the device had work; power,
heat and energy are a model of that load. Owns no clock: the host says when.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hotstage.simhost.page import Device, Page

KERNEL_LOG = Path("/dev/kmsg")
IDLE_WATTS = 62.0
FULL_WATTS = 340.0
HUNG_WATTS = 118.0
"""A GPU that waits for itself: busy by NVML's count, and far from the power of real work."""
HEAT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """One GPU by the names that everything joins on."""

    uuid: str
    pci_bus_id: str
    name: str = "Simulated GPU 80GB"
    total_bytes: int = 80 << 30
    reserved_bytes: int = 512 << 20

    @property
    def log_bus_id(self) -> str:
        """As the driver writes it into the kernel log: four digits of domain, no function."""
        return self.pci_bus_id[4:].rsplit(".", 1)[0]


GPUS = (
    GpuIdentity("GPU-5a3c0de1-0000-4000-8000-000000000065", "00000000:65:00.0"),
    GpuIdentity("GPU-5a3c0de1-0000-4000-8000-0000000000b3", "00000000:B3:00.0"),
)

IDLE, HARDWARE_SLOWDOWN = 0x1, 0x8 | 0x40 | 0x80
"""NVML's clock event reasons. A hardware one stays on the page for as long as whoever set it wants."""

OFF_THE_BUS = 79
"""The XID after which NVML calls the GPU lost."""


class GpuModel:
    """Writes identities once and readings at every `advance`."""

    def __init__(self, page: Page, gpus: tuple[GpuIdentity, ...] = GPUS) -> None:
        self._page = page
        self._last_ns: int | None = None
        self._last_busy_ns = [0] * len(gpus)
        self._celsius = [36.0] * len(gpus)
        self._millijoules = [0.0] * len(gpus)
        page.device_count = len(gpus)
        for device, gpu in zip(page.devices, gpus, strict=False):
            device.uuid = gpu.uuid.encode()
            device.name = gpu.name.encode()
            device.pci_bus_id = gpu.pci_bus_id.encode()
            device.total_bytes = gpu.total_bytes
            device.reserved_bytes = gpu.reserved_bytes
            device.factor = 1.0

    def advance(self, now_ns: int) -> None:
        """Readings of the time since the last call; the first call only takes the time."""
        last_ns, self._last_ns = self._last_ns, now_ns
        if last_ns is None or now_ns <= last_ns:
            return
        for index in range(self._page.device_count):
            busy_ns = self._busy_ns(index)
            load = min(1.0, (busy_ns - self._last_busy_ns[index]) / (now_ns - last_ns))
            self._last_busy_ns[index] = busy_ns
            self._write(self._page.devices[index], index, load, (now_ns - last_ns) / 1e9)

    def fail(self, index: int, xid: int) -> None:
        """What the driver does to a GPU after this XID, beside telling it."""
        if xid == OFF_THE_BUS:
            self._page.devices[index].lost = 1

    def reset(self, index: int) -> None:
        """As `nvidia-smi --gpu-reset` does: NVML has it back, and its energy is counted from nothing."""
        device = self._page.devices[index]
        self._millijoules[index], device.energy_millijoules = 0.0, 0
        device.lost = 0

    def _busy_ns(self, index: int) -> int:
        return sum(
            process.busy_ns for process in self._page.processes if process.pid and process.device == index
        )

    def _write(self, device: Device, index: int, load: float, seconds: float) -> None:
        watts = IDLE_WATTS + (FULL_WATTS - IDLE_WATTS) * load
        if device.hang:
            load, watts = 1.0, HUNG_WATTS
        settled = 34.0 + 0.11 * watts
        self._celsius[index] += (settled - self._celsius[index]) * min(1.0, seconds / HEAT_SECONDS)
        self._millijoules[index] += watts * seconds * 1000
        device.utilization_percent = round(100 * load)
        device.memory_percent = round(55 * load)
        device.power_milliwatts = round(1000 * watts)
        device.temperature_celsius = round(self._celsius[index])
        device.sm_clock_mhz = 1410 if load > 0.02 else 210
        device.memory_clock_mhz = 1593
        hardware = device.clock_reasons & HARDWARE_SLOWDOWN
        device.clock_reasons = hardware if load > 0.02 else hardware | IDLE
        device.energy_millijoules = int(self._millijoules[index])


def log_xid(gpu: GpuIdentity, code: int, pid: int, *, kernel_log: Path = KERNEL_LOG) -> None:
    """The driver's line in the kernel log, opened anew each time: one descriptor is rate-limited.

    Raises OSError where the kernel log may not be written.
    """
    with kernel_log.open("w") as log:
        log.write(f"<3>NVRM: Xid (PCI:{gpu.log_bus_id}): {code}, pid={pid}, name=python, simulated error\n")
