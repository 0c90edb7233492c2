# SPDX-License-Identifier: Apache-2.0
"""NVML, call by call and timed: the only importer of pynvml, in the devices process only. No thresholds.

Unsupported is NaN and not asked again; a lost GPU is a state of that GPU; a changed driver is NvmlGoneError,
since pynvml keeps the old library and only a new process heals it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

from hotstage.devices.wire import Status
from hotstage.text import normal_bus_id

_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
_GONE = (
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
)
_UNSUPPORTED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
)
_EVENT_WAIT_MS = 1000
_XID_EVENT = 8  # nvmlEventTypeXidCriticalError, nvml.h


class NvmlGoneError(Exception):
    """NVML does not work (any more) in this process. `status` says whether it is there at all."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(slots=True)
class Device:
    """One GPU as NVML names it, and what it cannot tell."""

    handle: Any
    index: int
    uuid: str
    pci_bus_id: str
    name: str
    is_lost: bool = False
    unsupported: set[str] = field(default_factory=set)
    call_seconds: float = 0.0
    """Slowest call since it was last reset to 0."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What NVML gave at the start. `refused` says of each GPU that cannot be opened why: a lost one has no
    UUID to be known by, and does not keep the others from being sampled.
    """

    driver: str
    devices: list[Device]
    refused: tuple[str, ...]


def open_nvml() -> Opened:
    """Raises NvmlGoneError, which says why and whether the library is missing, when no GPU can be sampled."""
    devices: list[Device] = []
    refused: list[str] = []
    try:
        pynvml.nvmlInitWithFlags(0)
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                devices.append(_device(index))
            except pynvml.NVMLError as error:
                refused.append(f"GPU {index}: {error}")
    except pynvml.NVMLError as error:
        missing = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        raise NvmlGoneError(Status.no_library if missing else Status.refused, str(error)) from None
    if refused and not devices:
        raise NvmlGoneError(Status.refused, "; ".join(refused))
    return Opened(driver, devices, tuple(refused))


def close_nvml() -> None:
    """Let the driver go, so that a GPU can be reset or a module unloaded."""
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return


def memory(device: Device) -> tuple[float, float]:
    """(used, total) bytes. The driver's reserve counts as used in version 1 and is not asked apart."""
    info = _call(device, "memory", pynvml.nvmlDeviceGetMemoryInfo, device.handle)
    return (math.nan, math.nan) if info is None else (float(info.used), float(info.total))


def utilisation(device: Device) -> tuple[float, float]:
    """(share of time a kernel ran, share of time memory was accessed), over the last 1/6 to 1 s."""
    rates = _call(device, "utilisation", pynvml.nvmlDeviceGetUtilizationRates, device.handle)
    return (math.nan, math.nan) if rates is None else (rates.gpu / 100, rates.memory / 100)


def power(device: Device) -> tuple[float, float]:
    """(draw, enforced limit) in watts."""
    draw = _call(device, "power", pynvml.nvmlDeviceGetPowerUsage, device.handle)
    limit = _call(device, "power_limit", pynvml.nvmlDeviceGetEnforcedPowerLimit, device.handle)
    return _scaled(draw, 1e-3), _scaled(limit, 1e-3)


def temperature(device: Device) -> float:
    """Degrees Celsius of the core."""
    celsius = _call(
        device, "temperature", pynvml.nvmlDeviceGetTemperature, device.handle, pynvml.NVML_TEMPERATURE_GPU
    )
    return _scaled(celsius, 1.0)


def clocks(device: Device) -> tuple[float, float]:
    """(SM clock, memory clock) in Hz."""
    sm = _call(device, "sm_clock", pynvml.nvmlDeviceGetClockInfo, device.handle, pynvml.NVML_CLOCK_SM)
    memory_clock = _call(
        device, "memory_clock", pynvml.nvmlDeviceGetClockInfo, device.handle, pynvml.NVML_CLOCK_MEM
    )
    return _scaled(sm, 1e6), _scaled(memory_clock, 1e6)


def energy(device: Device) -> float:
    """Joules since the driver was loaded."""
    return _scaled(_call(device, "energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, device.handle), 1e-3)


def event_reasons(device: Device) -> int:
    """Bit mask of clocks event reasons; 0 when unknown (none of its bits is claimed)."""
    reasons = _call(device, "reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, device.handle)
    return 0 if reasons is None else int(reasons)


def mig_mode(device: Device) -> bool | None:
    """Whether the GPU is cut into instances; None where it cannot be."""
    modes = _call(device, "mig", pynvml.nvmlDeviceGetMigMode, device.handle)
    return None if modes is None else bool(modes[0])


def persistence_mode(device: Device) -> bool | None:
    """Whether the driver stays loaded while nobody uses the GPU; without, the first user waits for it."""
    mode = _call(device, "persistence", pynvml.nvmlDeviceGetPersistenceMode, device.handle)
    return None if mode is None else bool(mode)


def library_version() -> str | None:
    """Version of the NVML library itself, which must be the driver's."""
    try:
        return _text(pynvml.nvmlSystemGetNVMLVersion())
    except pynvml.NVMLError:
        return None


class XidEvents:
    """NVML's events of critical XIDs; `wait` blocks up to a second. For a thread of its own."""

    def __init__(self, devices: list[Device]) -> None:
        self._set: Any = None
        try:
            self._set = pynvml.nvmlEventSetCreate()
            self._watched = sum(self._register(device) for device in devices)
        except pynvml.NVMLError:
            self._watched = 0

    def wait(self) -> tuple[str, int] | None:
        """(PCI bus id, XID), or None after a second without one. NvmlGoneError: nothing to wait for."""
        if self._set is None or not self._watched:
            raise NvmlGoneError(Status.refused, "no GPU of this host reports XIDs through NVML")
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, _EVENT_WAIT_MS)
            return normal_bus_id(_text(pynvml.nvmlDeviceGetPciInfo(event.device).busId)), int(event.eventData)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise NvmlGoneError(Status.refused, str(error)) from None

    def _register(self, device: Device) -> bool:
        try:
            pynvml.nvmlDeviceRegisterEvents(device.handle, _XID_EVENT, self._set)
        except pynvml.NVMLError:
            return False
        return True


def _device(index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Device(
        handle=handle,
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        pci_bus_id=normal_bus_id(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
    )


def _call(device: Device, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None when there is none. Times every call."""
    if what in device.unsupported or device.is_lost:
        return None
    began = time.perf_counter()
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _GONE:
            raise NvmlGoneError(Status.refused, str(error)) from None
        device.is_lost = error.value in _LOST
        if error.value in _UNSUPPORTED:
            device.unsupported.add(what)
        return None
    finally:
        device.call_seconds = max(device.call_seconds, time.perf_counter() - began)


def _scaled(value: float | None, factor: float) -> float:
    return math.nan if value is None else value * factor


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
