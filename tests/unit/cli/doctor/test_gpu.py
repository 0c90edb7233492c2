# SPDX-License-Identifier: Apache-2.0
"""What doctor says of drivers, NVML and GPUs, from files and from answers that a survey gave."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from types import SimpleNamespace

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.gpu import READING_NAMES, check_binding, check_driver, check_nvml, find_nvml
from hotstage.cli.doctor.gpu_survey import Gpu, Survey, survey_gpus
from hotstage.config.settings import Config, DevicesConfig
from hotstage.devices.survey import READINGS

VERSION = {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Thu\n"}


def survey(*gpus: Gpu, **changed) -> Survey:
    values = {"library": "/usr/lib/libnvidia-ml.so.570.86.10", "driver": "570.86.10", "init_seconds": 0.012}
    return Survey(**{**values, **changed, "gpus": {gpu.index: gpu for gpu in gpus}})


def gpu(
    index: int = 0, slow: dict[str, float] | None = None, lacking: tuple[str, ...] = (), **changed
) -> Gpu:
    readings = {
        name: {"supported": name not in lacking, "lacking": [], "seconds": (slow or {}).get(name, 0.001)}
        for name in READING_NAMES
    }
    return Gpu(index, f"GPU-{index}", "H100", f"0000:0{index}:00.0", readings, **changed)


def test_the_names_are_those_of_the_sampler():
    assert tuple(name for name, _ in READINGS) == READING_NAMES


def test_a_host_without_a_gpu_lacks_nothing(host):
    (finding,) = check_driver(host)
    assert (finding.status, finding.detail) == (Status.ABSENT, "no NVIDIA driver is loaded")


def test_a_card_without_its_driver_and_a_driver_without_its_files_are_lacks(host):
    host.write({"sys/class/drm/card0/device/vendor": "0x10de\n"})
    (finding,) = check_driver(host)
    assert (finding.status, finding.remedy) == (Status.WARN, "load the nvidia module (modprobe nvidia)")
    (finding,) = check_driver(host.write(VERSION))
    assert finding.status is Status.WARN
    assert "nvidia-modprobe" in (finding.remedy or "")
    (finding,) = check_driver(host.write({"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": ""}))
    assert (finding.status, finding.detail) == (Status.OK, "NVIDIA 570.86.10, 2 device files in /dev")


def test_a_gpu_that_is_not_opened_is_told_beside_those_that_are(host, by_name):
    found = by_name(check_nvml(host.given(survey_gpus, survey(gpu(), refused=["GPU 1: GPU is lost"]))))
    assert found["GPU 1"].status is Status.WARN and "GPU is lost" in found["GPU 1"].detail


def test_other_vendors_cards_are_named_with_their_driver(host):
    host.write(
        {"sys/class/drm/card1/device/vendor": "0x1002\n", "sys/class/drm/card1-DP-1/device/vendor": "0x1"}
    )
    host.link("sys/class/drm/card1/device/driver", "../../bus/pci/drivers/amdgpu")
    (finding,) = check_driver(host)
    assert finding.data["cards"] == ["AMD (amdgpu)"]


def test_the_binding_is_nvidias_own(host):
    (finding,) = check_binding(host)
    assert finding.status is Status.OK
    assert finding.data["nvidia_ml_py"] == importlib.metadata.version("nvidia-ml-py")


def test_a_package_of_the_modules_name_is_an_impostor(host, monkeypatch):
    origin = "/venv/site-packages/pynvml/__init__.py"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=origin))
    (finding,) = check_binding(host)
    assert finding.status is Status.WARN
    assert origin in finding.detail


def test_a_library_of_another_driver_is_a_mismatch(host):
    lib = "usr/lib/x86_64-linux-gnu"
    host.write({**VERSION, f"{lib}/libnvidia-ml.so.550.163.01": ""})
    host.link(f"{lib}/libnvidia-ml.so.1", "libnvidia-ml.so.550.163.01")
    host.given(survey_gpus, Survey(reason="Driver/library version mismatch"))
    (finding,) = check_nvml(host)
    assert finding.status is Status.WARN
    assert finding.detail.endswith("is 550.163.01, the loaded driver 570.86.10")


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (Survey(has_library=False), Status.ABSENT, "and no NVIDIA driver or card: no device values"),
        (survey(reason="Driver Not Loaded"), Status.WARN, "is there and refuses: Driver Not Loaded"),
        (survey(hangs_in="power of GPU 1"), Status.WARN, "had not come back from power of GPU 1 after 2 s"),
        (Survey(not_started="python: Permission denied"), Status.UNKNOWN, "does not start: python"),
        (survey(gpu()), Status.OK, "of driver 570.86.10: 1 GPU, started in 12 ms"),
        (survey(), Status.WARN, "of driver 570.86.10: 0 GPUs"),
    ],
)
def test_nvml_answers_refuses_hangs_or_is_not_there(host, by_name, answer, status, said):
    found = by_name(check_nvml(host.given(survey_gpus, answer)))["NVML"]
    assert found.status is status
    assert said in found.detail


def test_a_driver_without_its_library_is_a_lack(host):
    (finding,) = check_nvml(host.write(VERSION).given(survey_gpus, Survey(has_library=False)))
    assert finding.status is Status.WARN
    assert "libnvidia-ml.so.1 is not found: no device values" in finding.detail


def test_each_gpu_is_told_with_what_it_can_tell(host, by_name):
    lacking = gpu(1, lacking=("energy",), mig=True, persistence=False)
    found = by_name(check_nvml(host.given(survey_gpus, survey(gpu(mig=False, persistence=True), lacking))))
    assert found["GPU 0"].detail == (
        "H100, GPU-0 at 0000:00:00.0; MIG off, persistence on; 7 of 7 values; slowest call 1 ms"
    )
    assert found["GPU 0"].status is Status.OK
    assert "MIG on, persistence off; 6 of 7 values, not energy" in found["GPU 1"].detail
    assert found["GPU 1"].data["values"]["energy"] is False


def test_a_slow_call_and_a_lost_gpu_are_named(host, by_name):
    slow, lost = gpu(0, slow={"power": 0.045}), gpu(1, is_lost=True)
    found = by_name(check_nvml(host.given(survey_gpus, survey(slow, lost))))
    assert found["GPU 0"].status is Status.WARN
    assert "slow: power 45 ms" in found["GPU 0"].detail
    assert found["GPU 1"].detail.startswith("the driver says that it is lost")


def test_what_is_switched_off_is_not_asked(host):
    host.config = Config(devices=DevicesConfig(enabled=False))
    (finding,) = check_nvml(host)
    assert finding.status is Status.ABSENT


def test_the_configured_place_of_nvml_is_the_only_one(host, tmp_path):
    host.write({"usr/lib/libnvidia-ml.so.1": ""})
    assert find_nvml(host) == host.root / "usr/lib/libnvidia-ml.so.1"
    host.config = Config(devices=DevicesConfig(library_directory=str(tmp_path / "opt")))
    assert find_nvml(host) is None
