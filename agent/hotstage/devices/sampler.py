# SPDX-License-Identifier: Apache-2.0
"""When to ask NVML for what: memory ten times as often as the rest, less often while the driver is slow.

Runs in the devices process. It owns the pace, not the calls and not the pipe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hotstage.devices import nvml
from hotstage.devices.nvml import Device
from hotstage.devices.wire import RecordKind, pack

SLOW_CALL_SECONDS = 0.020
"""A call that takes this long holds the driver's lock that CUDA calls of the host need too."""

_SLOWEST = 16.0
_LOST_RETRY_ROUNDS = 50


@dataclass(slots=True)
class _Slow:
    """What is read at the slow pace, as last read."""

    at_ns: int = 0
    utilisation: tuple[float, float] = (math.nan, math.nan)
    power: tuple[float, float] = (math.nan, math.nan)
    temperature: float = math.nan
    clocks: tuple[float, float] = (math.nan, math.nan)
    energy: float = math.nan
    reasons: int = 0


class Sampler:
    """`round` reads what is due and packs it; `pause_seconds` says how long to sleep after it."""

    def __init__(self, devices: list[Device], period_seconds: float) -> None:
        self._devices = devices
        self._period = period_seconds
        self._slow = [_Slow() for _ in devices]
        self._due_ns = 0
        self._backoff = 1.0
        self._rounds = 0

    @property
    def pause_seconds(self) -> float:
        return self._period / 10 * self._backoff

    def round(self, now_ns: int) -> bytes:
        """Records of all GPUs. Raises NvmlGoneError."""
        self._rounds += 1
        is_due = now_ns >= self._due_ns
        if is_due:
            self._due_ns = now_ns + round(self._period * self._backoff * 1e9)
        records, slowest = b"", 0.0
        for device, slow in zip(self._devices, self._slow, strict=True):
            if device.is_lost and self._rounds % _LOST_RETRY_ROUNDS == 0:
                device.is_lost = False  # asked again: a reset brings it back
            device.call_seconds = 0.0
            used, total = nvml.memory(device)
            if is_due:
                _read_slow(device, slow, now_ns)
            slowest = max(slowest, device.call_seconds)
            records += _record(device, slow, now_ns, used, total)
        self._pace(slowest)
        return records

    def _pace(self, slowest: float) -> None:
        """Half as often after a slow call, back to the full pace in small steps."""
        if slowest > SLOW_CALL_SECONDS:
            self._backoff = min(2 * self._backoff, _SLOWEST)
        else:
            self._backoff = max(0.9 * self._backoff, 1.0)


def _read_slow(device: Device, slow: _Slow, now_ns: int) -> None:
    slow.at_ns = now_ns
    slow.utilisation = nvml.utilisation(device)
    slow.power = nvml.power(device)
    slow.temperature = nvml.temperature(device)
    slow.clocks = nvml.clocks(device)
    slow.energy = nvml.energy(device)
    slow.reasons = nvml.event_reasons(device)


def _record(device: Device, slow: _Slow, now_ns: int, used: float, total: float) -> bytes:
    return pack(
        RecordKind.device,
        (
            device.uuid.encode(),
            device.pci_bus_id.encode(),
            device.name.encode("ascii", "replace"),
            now_ns,
            slow.at_ns,
            device.index,
            int(device.is_lost),
            used,
            total,
            *slow.utilisation,
            *slow.power,
            slow.temperature,
            *slow.clocks,
            slow.energy,
            slow.reasons,
            device.call_seconds,
        ),
    )
