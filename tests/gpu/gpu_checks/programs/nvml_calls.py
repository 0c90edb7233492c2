# SPDX-License-Identifier: Apache-2.0
"""NVML read by itself, each call timed: the second opinion on the devices process. It changes nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pynvml as nvml

from gpu_checks.programs.dialogue import Answer, serve

REPEATS = 20
_TOTAL_ENERGY_FIELD = 83  # NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, nvml.h
_GPM = {"sm_util": 2, "sm_occupancy": 3, "any_tensor_util": 5, "dram_bandwidth_util": 10}
_GPM_PAUSE_SECONDS = 0.2  # nvml.h asks for more than 100 ms


class Program:
    """GPU 0 through nvidia-ml-py."""

    def __init__(self) -> None:
        self._handle: Any = None

    def identity(self) -> Answer:
        """Who the GPU is; `error` in words where NVML does not start."""
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            return {"failure": str(error)}
        self._handle = handle = nvml.nvmlDeviceGetHandleByIndex(0)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "gpu": _text(nvml.nvmlDeviceGetName(handle)),
            "gpu_uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
            "pci_bus_id": _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
            "cuda_driver_version": _try(nvml.nvmlSystemGetCudaDriverVersion),
            "gpus": nvml.nvmlDeviceGetCount(),
            "mig_mode": _try(lambda: nvml.nvmlDeviceGetMigMode(handle)[0]),
            "memory_total_bytes": int(memory.total),
        }

    def readings(self) -> Answer:
        """The values that the devices process reads, now."""
        handle = self._handle
        memory, rates = (
            nvml.nvmlDeviceGetMemoryInfo(handle),
            _try(lambda: nvml.nvmlDeviceGetUtilizationRates(handle)),
        )
        return {
            "memory_used_bytes": int(memory.used),
            "utilisation_ratio": None if rates is None else rates.gpu / 100,
            "power_watts": _scaled(lambda: nvml.nvmlDeviceGetPowerUsage(handle), 1e-3),
            "temperature_celsius": _scaled(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU), 1
            ),
            "sm_clock_hertz": _scaled(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM), 1e6),
        }

    def timings(self) -> Answer:
        """Each call so many times: median and largest seconds, or the reason that it is not supported."""
        handle = self._handle
        calls: dict[str, Callable[[], Any]] = {
            "memory_info": lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
            "utilization_rates": lambda: nvml.nvmlDeviceGetUtilizationRates(handle),
            "power_usage": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
            "enforced_power_limit": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
            "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "clock_info_sm": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "clocks_event_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "total_energy": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
            "field_values": lambda: nvml.nvmlDeviceGetFieldValues(handle, [_TOTAL_ENERGY_FIELD]),
            "compute_processes": lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            "ecc_uncorrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
            "pcie_link_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        }
        return {"calls": {name: _timed(call) for name, call in calls.items()}}

    def gpm(self) -> Answer:
        """One pair of GPM samples in percent and the seconds each took; `supported` False before Hopper."""
        if not _try(lambda: nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice):
            return {"supported": False}
        samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
        try:
            return {"supported": True, **_gpm_pair(self._handle, samples)}
        except nvml.NVMLError as error:
            return {"supported": True, "failure": str(error)}
        finally:
            for sample in samples:
                nvml.nvmlGpmSampleFree(sample)


def _gpm_pair(handle: Any, samples: list[Any]) -> Answer:
    took = []
    for pause, sample in zip((0.0, _GPM_PAUSE_SECONDS), samples, strict=True):
        time.sleep(pause)
        began = time.perf_counter()
        nvml.nvmlGpmSampleGet(handle, sample)
        took.append(time.perf_counter() - began)
    wanted = nvml.c_nvmlGpmMetricsGet_t()
    wanted.version = nvml.NVML_GPM_METRICS_GET_VERSION
    wanted.numMetrics = len(_GPM)
    wanted.sample1, wanted.sample2 = samples
    for at, number in enumerate(_GPM.values()):
        wanted.metrics[at].metricId = number
    nvml.nvmlGpmMetricsGet(wanted)
    percent = {name: wanted.metrics[at].value for at, name in enumerate(_GPM)}
    return {"percent": percent, "sample_seconds": took}


def _timed(call: Callable[[], Any]) -> Answer:
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        try:
            call()
        except nvml.NVMLError as error:
            return {"median_seconds": None, "max_seconds": None, "error": str(error)}
        taken.append(time.perf_counter() - began)
    return {"median_seconds": statistics.median(taken), "max_seconds": max(taken), "error": None}


def _try(call: Callable[[], Any]) -> Any:
    """The answer, or None where NVML has none."""
    try:
        return call()
    except (nvml.NVMLError, AttributeError):
        return None


def _scaled(call: Callable[[], Any], factor: float) -> float | None:
    value = _try(call)
    return None if value is None else value * factor


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def main() -> None:
    program = Program()
    serve(
        {
            "identity": program.identity,
            "readings": program.readings,
            "timings": program.timings,
            "gpm": program.gpm,
        }
    )


if __name__ == "__main__":
    main()
