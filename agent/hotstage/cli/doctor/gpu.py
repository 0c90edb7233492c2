# SPDX-License-Identifier: Apache-2.0
"""Checks of GPUs: drivers, device files, NVML and its Python binding, and each GPU with what can be sampled.

NVML itself is only ever loaded by `gpu_survey.py`'s child.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

from hotstage.cli.doctor.finding import Area, Finding, Status, plural
from hotstage.cli.doctor.gpu_survey import DEADLINE_SECONDS, Gpu, Survey, survey_gpus
from hotstage.cli.doctor.host import Host

GPU = Area.GPU
DEVICE_VALUES = ("device values",)
SLOW_CALL_SECONDS = 0.020
"""As the sampler has it: a call this long holds a lock that CUDA calls of the host need too."""
READING_NAMES = ("memory", "utilisation", "power", "temperature", "clocks", "energy", "reasons")
_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_VERSION = re.compile(r"\b(\d{3,4}\.\d+(?:\.\d+)?)\b")
_USUAL = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
)


def check_driver(host: Host) -> Iterator[Finding]:
    """Kernel drivers and their device files."""
    match = _VERSION.search(host.text("proc/driver/nvidia/version") or "")
    cards = sorted(set(_cards(host)))
    files = sorted(path.name for path in (host.root / "dev").glob("nvidia[0-9]*"))
    data = {"nvidia": match[1] if match else None, "cards": cards, "device_files": files}
    others = [card for card in cards if not card.startswith("NVIDIA")]
    beside = f"; also {', '.join(others)}" if others else ""
    if match is None:
        detail = f"no NVIDIA driver is loaded{beside}"
        status = Status.WARN if any(card.startswith("NVIDIA") for card in cards) else Status.ABSENT
        remedy = "load the nvidia module (modprobe nvidia)" if status is Status.WARN else None
        yield Finding(GPU, "driver", status, detail, remedy, features=DEVICE_VALUES, data=data)
        return
    detail = f"NVIDIA {match[1]}, {plural(len(files), 'device file')} in /dev{beside}"
    if files:
        yield Finding(GPU, "driver", Status.OK, detail, data=data)
    else:
        yield Finding(
            GPU, "driver", Status.WARN, detail,
            "nvidia-modprobe -c 0 -u; in a container: the NVIDIA runtime with NVIDIA_VISIBLE_DEVICES=all",
            features=DEVICE_VALUES, data=data,
        )  # fmt: skip


def _has_no_nvidia(host: Host) -> bool:
    """Neither the driver is loaded nor a card of NVIDIA shows."""
    version = host.text("proc/driver/nvidia/version") or ""
    return _VERSION.search(version) is None and not any(card.startswith("NVIDIA") for card in _cards(host))


def _cards(host: Host) -> Iterator[str]:
    """`AMD (amdgpu)` of each DRM card; NVIDIA's own driver shows none unless it drives a display."""
    for card in (host.root / "sys/class/drm").glob("card[0-9]*"):
        vendor = _text(card / "device/vendor").strip()
        try:
            driver = (card / "device/driver").readlink().name
        except OSError:
            driver = "no driver"
        if "-" not in card.name and vendor:
            yield f"{_VENDORS.get(vendor, vendor)} ({driver})"


def check_binding(host: Host) -> Iterator[Finding]:
    """nvidia-ml-py has the module `pynvml`; a distribution called pynvml may stand in its way."""
    version, other = _distribution("nvidia-ml-py"), _distribution("pynvml")
    spec = importlib.util.find_spec("pynvml")
    origin = spec.origin if spec else None
    is_shadowed = origin is not None and Path(origin).name == "__init__.py"
    data = {"nvidia_ml_py": version, "pynvml": other, "module": origin}
    if version is None:
        yield Finding(
            GPU, "nvidia-ml-py", Status.FAIL, "not installed: the devices process cannot start",
            "pip install nvidia-ml-py", features=DEVICE_VALUES, data=data,
        )  # fmt: skip
    elif is_shadowed:
        yield Finding(
            GPU, "nvidia-ml-py", Status.WARN,
            f"{version} is installed, but `pynvml` is taken by another distribution: {origin}",
            "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py", features=DEVICE_VALUES,
            data=data,
        )  # fmt: skip
    else:
        beside = f"; PyPI's pynvml {other} beside it is a wrapper and not needed" if other else ""
        yield Finding(GPU, "nvidia-ml-py", Status.OK, f"{version}{beside}", data=data)


def check_nvml(host: Host) -> Iterator[Finding]:
    """The library, whether it fits the driver and answers, and every GPU that it tells."""
    if not host.config.devices.enabled:
        yield Finding(GPU, "NVML", Status.ABSENT, "switched off by devices.enabled = false")
        return
    survey = host.once(survey_gpus)
    if survey.not_started is not None:
        yield Finding(
            GPU, "NVML", Status.UNKNOWN,
            f"the process that asks it does not start: {survey.not_started}",
            "install hotstage where this user may execute it", features=DEVICE_VALUES,
        )  # fmt: skip
        return
    yield _library(host, survey)
    for gpu in survey.gpus.values():
        yield _gpu(gpu)
    for told in survey.refused:
        yield Finding(
            GPU, told.partition(":")[0], Status.WARN, f"NVML lists it and does not open it: {told}",
            "see dmesg for its XIDs; reset it or reboot", features=DEVICE_VALUES,
        )  # fmt: skip


def _library(host: Host, survey: Survey) -> Finding:
    file = find_nvml(host)
    driver = _VERSION.search(host.text("proc/driver/nvidia/version") or "")
    by_name = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", file.resolve().name) if file else None
    version = survey.version or (by_name[1] if by_name else None)
    place = survey.library or (str(file) if file else None)
    data = {
        "library": place,
        "version": version,
        "driver": survey.driver or (driver[1] if driver else None),
        "init_seconds": survey.init_seconds,
        "gpus": len(survey.gpus),
        "hangs_in": survey.hangs_in,
        "reason": survey.reason,
    }
    if survey.hangs_in is not None:
        return Finding(
            GPU, "NVML", Status.WARN,
            f"{place or 'NVML'} had not come back from {survey.hangs_in} after {DEADLINE_SECONDS:g} s",
            "start nvidia-persistenced (without it the driver starts at each first use); see dmesg for XIDs",
            features=DEVICE_VALUES, data=data,
        )  # fmt: skip
    if driver and version and version != driver[1]:
        return Finding(
            GPU, "NVML", Status.WARN, f"{place} is {version}, the loaded driver {driver[1]}",
            "reboot, or reload the driver: NVML refuses to talk across versions", features=DEVICE_VALUES,
            data=data,
        )  # fmt: skip
    if not survey.has_library:
        configured = host.config.devices.library_directory
        if not configured and _has_no_nvidia(host):
            detail = "libnvidia-ml.so.1 is not found, and no NVIDIA driver or card: no device values"
            return Finding(GPU, "NVML", Status.ABSENT, detail, features=DEVICE_VALUES, data=data)
        where = f" in {configured} (devices.library_directory)" if configured else ""
        return Finding(
            GPU, "NVML", Status.WARN, f"libnvidia-ml.so.1 is not found{where}: no device values",
            "install the driver's libraries, or set devices.library_directory", features=DEVICE_VALUES,
            data=data,
        )  # fmt: skip
    if survey.reason is not None:
        return Finding(
            GPU, "NVML", Status.WARN, f"{place or 'libnvidia-ml.so.1'} is there and refuses: {survey.reason}",
            "load the driver (modprobe nvidia), and see dmesg", features=DEVICE_VALUES, data=data,
        )  # fmt: skip
    took = f", started in {survey.init_seconds * 1e3:.2g} ms" if survey.init_seconds is not None else ""
    detail = f"{place} of driver {survey.driver}: {plural(len(survey.gpus), 'GPU')}{took}"
    if not survey.gpus:
        remedy = "see whether the devices are there for this user (ls /dev/nvidia*), and lspci"
        return Finding(GPU, "NVML", Status.WARN, detail, remedy, features=DEVICE_VALUES, data=data)
    return Finding(GPU, "NVML", Status.OK, detail, data=data)


def _gpu(gpu: Gpu) -> Finding:
    """One GPU: identity, modes, which values there will be, which calls are slow."""
    supported = [name for name in READING_NAMES if gpu.readings.get(name, {}).get("supported")]
    lacking = [name for name in READING_NAMES if name not in supported]
    slow = {
        name: line["seconds"] for name, line in gpu.readings.items() if line["seconds"] > SLOW_CALL_SECONDS
    }
    slowest = max((line["seconds"] for line in gpu.readings.values()), default=None)
    data = {
        "uuid": gpu.uuid,
        "name": gpu.name,
        "pci_bus_id": gpu.bus,
        "mig": gpu.mig,
        "persistence": gpu.persistence,
        "is_lost": gpu.is_lost,
        "values": {name: gpu.readings.get(name, {}).get("supported") for name in READING_NAMES},
        "call_seconds": {name: line["seconds"] for name, line in gpu.readings.items()},
    }
    parts = [
        f"{gpu.name}, {gpu.uuid} at {gpu.bus}",
        f"MIG {_word(gpu.mig)}, persistence {_word(gpu.persistence)}",
        f"{len(supported)} of {len(READING_NAMES)} values"
        + (f", not {', '.join(lacking)}" if lacking else ""),
    ]
    if slowest is not None:
        parts.append(f"slowest call {slowest * 1e3:.2g} ms")
    if gpu.is_lost:
        parts.insert(0, "the driver says that it is lost or needs a reset")
    if slow:
        named = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in slow.items())
        parts.append(f"slow: {named}; the sampler will ask less often")
    status = Status.WARN if gpu.is_lost or slow or not supported else Status.OK
    remedy = None
    if gpu.is_lost:
        remedy = "nvidia-smi --gpu-reset, or reboot"
    elif not supported:
        remedy = "a driver that supports this GPU: NVML gives no value of it"
    elif slow:
        remedy = "start nvidia-persistenced; ask for less elsewhere (nvidia-smi in a loop, another exporter)"
    if gpu.persistence is False:
        parts.append("without persistence the first user waits for the driver")
    return Finding(
        GPU, f"GPU {gpu.index}", status, "; ".join(parts), remedy, features=DEVICE_VALUES, data=data
    )


def find_nvml(host: Host) -> Path | None:
    """The file that the devices process would load; the usual places when none is configured."""
    configured = host.config.devices.library_directory
    own = (Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry)
    folders = [Path(configured)] if configured else [*own, *(host.root / entry for entry in _USUAL)]
    return next((f / "libnvidia-ml.so.1" for f in folders if (f / "libnvidia-ml.so.1").exists()), None)


def _word(mode: bool | None) -> str:
    return "not supported" if mode is None else "on" if mode else "off"


def _distribution(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""
