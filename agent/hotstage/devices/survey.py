# SPDX-License-Identifier: Apache-2.0
"""`python -m hotstage.devices.survey`: what NVML can tell on this host, each call named before it is made.

One JSON object a line on standard output. It may hang in the driver like every user of NVML: who starts it
gives it a deadline, and the last line names the call that hangs. It gives up all privileges first.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotstage.devices import nvml
from hotstage.devices.nvml import Device, NvmlGoneError
from hotstage.devices.wire import Status
from hotstage.privileges import give_up_capabilities

_PR_SET_PDEATHSIG = 1

READINGS: tuple[tuple[str, Callable[[Device], Any]], ...] = (
    ("memory", nvml.memory),
    ("utilisation", nvml.utilisation),
    ("power", nvml.power),
    ("temperature", nvml.temperature),
    ("clocks", nvml.clocks),
    ("energy", nvml.energy),
    ("reasons", nvml.event_reasons),
)
"""What the sampler reads, in its order."""


def main() -> int:
    """Exit status as the devices process: 0 told all, 3 no NVML, 4 NVML does not work."""
    # Whoever asked has ended, by a signal perhaps: nobody waits for a call that hangs.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    try:
        give_up_capabilities()
    except OSError as error:
        _tell(event="end", reason=f"capabilities could not be given up: {error}")
        return 4
    try:
        _survey()
    except NvmlGoneError as error:
        _tell(event="end", reason=error.reason)
        return 3 if error.status is Status.no_library else 4
    except BrokenPipeError:
        return 0
    finally:
        nvml.close_nvml()
    _tell(event="end", reason=None)
    return 0


def _survey() -> None:
    _tell(event="calling", call="init", gpu=None)
    began = time.perf_counter()
    opened = nvml.open_nvml()
    seconds = time.perf_counter() - began
    _tell(
        event="library",
        path=_loaded(),
        version=nvml.library_version(),
        driver=opened.driver,
        gpus=len(opened.devices),
        refused=opened.refused,
        seconds=seconds,
    )
    for device in opened.devices:
        _tell(event="gpu", index=device.index, uuid=device.uuid, name=device.name, bus=device.pci_bus_id)
        for name, reading in READINGS:
            _tell(event="calling", call=name, gpu=device.index)
            _tell(event="value", gpu=device.index, **_read(device, name, reading))
        _tell(event="calling", call="modes", gpu=device.index)
        mig, persistence = nvml.mig_mode(device), nvml.persistence_mode(device)
        _tell(event="modes", gpu=device.index, mig=mig, persistence=persistence, lost=device.is_lost)


def _read(device: Device, name: str, reading: Callable[[Device], Any]) -> dict[str, Any]:
    """One reading. `supported`: False where the driver says that this GPU has none, None where it did not say
    anything of use; `lacking` names the parts that it has not.
    """
    before = set(device.unsupported)
    device.call_seconds = 0.0
    value = reading(device)
    lacking = sorted(device.unsupported - before)
    numbers = value if isinstance(value, tuple) else (value,)
    is_told = name not in lacking and not all(math.isnan(number) for number in numbers)
    supported = True if is_told else False if lacking else None
    return {"name": name, "supported": supported, "lacking": lacking, "seconds": device.call_seconds}


def _loaded() -> str | None:
    """The NVML that the linker found, as this process has mapped it."""
    match = re.search(r"(/\S*/libnvidia-ml\.so\S*)$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return match[1] if match else None


def _tell(**line: Any) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
