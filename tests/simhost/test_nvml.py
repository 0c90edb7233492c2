# SPDX-License-Identifier: Apache-2.0
"""The unmodified nvidia-ml-py on the stub libnvidia-ml."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hotstage.simhost import build
from hotstage.simhost.gpus import GPUS, GpuModel
from hotstage.simhost.page import PAGE_FILE, UNSUPPORTED, shared_page


@pytest.fixture
def stubs(tmp_path):
    return build.lay_out(tmp_path / "lib")


@pytest.fixture
def page(stubs):
    with shared_page(stubs.folder / PAGE_FILE) as page:
        GpuModel(page)
        page.processes[0].pid, page.processes[0].device, page.processes[0].held_bytes = (
            os.getpid(),
            1,
            5 << 30,
        )
        device = page.devices[1]
        device.utilization_percent, device.power_milliwatts, device.temperature_celsius = 61, 250_000, 55
        device.energy_millijoules, device.sm_clock_mhz, device.memory_clock_mhz = 123_456, 1410, 1593
        device.ecc_corrected, device.ecc_uncorrected = 3, 1
        yield page


def ask(stubs, statements, meanwhile=lambda: None):
    """Statements that fill `answer`, with `nvml` and two handles; `wait()` returns after `meanwhile`."""
    program = f"""
import json, time
import pynvml as nvml
nvml.nvmlInit()
answer = {{}}
def wait():
    print("waiting", flush=True)
    input()
def code(function, *arguments):
    try: return function(*arguments) and 0
    except nvml.NVMLError as error: return error.value
first, second = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
{statements}
print(json.dumps(answer))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(stubs.folder)},
    )
    with process:
        if "wait()" in statements:
            assert process.stdout.readline() == "waiting\n"
            meanwhile()
        out, errors = process.communicate("\n", timeout=20)
    assert process.returncode == 0, errors
    return json.loads(out)


def test_identity_is_found_by_every_key(stubs, page):
    answer = ask(
        stubs,
        f"""
answer["count"] = nvml.nvmlDeviceGetCount()
answer["driver"] = nvml.nvmlSystemGetDriverVersion()
for key, handle in (
    ("index", second),
    ("uuid", nvml.nvmlDeviceGetHandleByUUID({GPUS[1].uuid!r})),
    ("bus", nvml.nvmlDeviceGetHandleByPciBusId("0000:b3:00.0")),
):
    answer[key] = [nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetPciInfo(handle).busId]
""",
    )
    assert (answer["count"], answer["driver"]) == (2, "550.00-simulated")
    assert answer["index"] == answer["uuid"] == answer["bus"] == [GPUS[1].uuid, GPUS[1].pci_bus_id]


def test_memory_and_processes_are_the_allocators_own(stubs, page):
    answer = ask(
        stubs,
        """
new = nvml.nvmlDeviceGetMemoryInfo(second, version=nvml.nvmlMemory_v2)
old = nvml.nvmlDeviceGetMemoryInfo(second)
answer["new"] = [new.total, new.reserved, new.used, new.free]
answer["old"] = [old.total, old.used, old.free]
answer["processes"] = [(p.pid, p.usedGpuMemory) for p in nvml.nvmlDeviceGetComputeRunningProcesses(second)]
answer["none"] = nvml.nvmlDeviceGetComputeRunningProcesses(first)
""",
    )
    total, reserved, used = 80 << 30, 512 << 20, 5 << 30
    assert answer["new"] == [total, reserved, used, total - reserved - used]
    assert answer["old"] == [total, reserved + used, total - reserved - used]
    assert answer["processes"] == [[os.getpid(), used]]
    assert answer["none"] == []


def test_what_a_dead_process_held_is_free(stubs, page):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    page.processes[0].pid = gone.pid
    answer = ask(stubs, "answer['used'] = nvml.nvmlDeviceGetMemoryInfo(second, nvml.nvmlMemory_v2).used")
    assert answer["used"] == 0


def test_readings_are_the_pages(stubs, page):
    answer = ask(
        stubs,
        """
rates = nvml.nvmlDeviceGetUtilizationRates(second)
answer["load"] = rates.gpu
answer["power"] = nvml.nvmlDeviceGetPowerUsage(second)
answer["heat"] = nvml.nvmlDeviceGetTemperature(second, nvml.NVML_TEMPERATURE_GPU)
answer["energy"] = nvml.nvmlDeviceGetTotalEnergyConsumption(second)
answer["clocks"] = [nvml.nvmlDeviceGetClockInfo(second, kind) for kind in (1, 2)]
answer["ecc"] = [nvml.nvmlDeviceGetTotalEccErrors(second, kind, 0) for kind in (0, 1)]
fields = nvml.nvmlDeviceGetFieldValues(second, [83, 186, 138])
answer["fields"] = [fields[0].value.ullVal, fields[1].value.uiVal, fields[2].nvmlReturn]
answer["gpm"] = nvml.nvmlGpmQueryDeviceSupport(second).isSupportedDevice
""",
    )
    assert answer == {
        "load": 61,
        "power": 250_000,
        "heat": 55,
        "energy": 123_456,
        "clocks": [1410, 1593],
        "ecc": [3, 1],
        "fields": [123_456, 250_000, 3],
        "gpm": 0,
    }


def test_what_is_not_supported_is_said_so_and_the_rest_goes_on(stubs, page):
    page.devices[1].unsupported = UNSUPPORTED["utilization"] | UNSUPPORTED["ecc"]
    answer = ask(
        stubs,
        """
answer["load"] = code(nvml.nvmlDeviceGetUtilizationRates, second)
answer["ecc"] = code(nvml.nvmlDeviceGetTotalEccErrors, second, 0, 0)
answer["power"] = nvml.nvmlDeviceGetPowerUsage(second)
answer["function"] = code(nvml.nvmlDeviceGetFanSpeed, second)
""",
    )
    assert answer == {"load": 3, "ecc": 3, "power": 250_000, "function": 13}


def test_one_lost_gpu_leaves_the_other_alone(stubs, page):
    def lose():
        page.devices[0].lost = 1

    answer = ask(
        stubs,
        """
wait()
answer["lost"] = [code(nvml.nvmlDeviceGetPowerUsage, first), code(nvml.nvmlDeviceGetHandleByIndex, 0)]
answer["other"] = nvml.nvmlDeviceGetPowerUsage(second)
""",
        meanwhile=lose,
    )
    assert answer == {"lost": [15, 15], "other": 250_000}


def test_an_xid_arrives_as_an_event_of_its_gpu(stubs, page):
    def fail():
        page.raise_xid(0, 13, 1)
        page.raise_xid(1, 79, 2)

    answer = ask(
        stubs,
        """
events = nvml.nvmlEventSetCreate()
nvml.nvmlDeviceRegisterEvents(second, nvml.nvmlEventTypeXidCriticalError, events)
answer["before"] = code(nvml.nvmlEventSetWait_v2, events, 1)
wait()
data = nvml.nvmlEventSetWait_v2(events, 5000)
answer["xid"] = [data.eventType, data.eventData, nvml.nvmlDeviceGetUUID(data.device)]
answer["after"] = code(nvml.nvmlEventSetWait_v2, events, 1)
""",
        meanwhile=fail,
    )
    assert answer == {"before": 10, "xid": [8, 79, GPUS[1].uuid], "after": 10}
