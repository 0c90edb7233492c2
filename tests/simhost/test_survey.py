# SPDX-License-Identifier: Apache-2.0
"""doctor's look at NVML, on the stub libnvidia-ml: what each GPU can tell, and what a lost one cannot."""

from __future__ import annotations

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.gpu import check_nvml
from hotstage.cli.doctor.host import Host
from hotstage.config.settings import Config, DevicesConfig
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
        yield page


def look(stubs):
    """Findings by name, with the stub's folder configured."""
    host = Host(config=Config(devices=DevicesConfig(library_directory=str(stubs.folder))))
    return {finding.name: finding for finding in check_nvml(host)}


def test_every_gpu_is_told_by_uuid_with_its_values(stubs, page):
    found = look(stubs)
    assert found["NVML"].status is Status.OK
    assert found["NVML"].data["library"] == str(stubs.libnvidia_ml.resolve())
    assert found["NVML"].data["gpus"] == len(GPUS)
    for index, gpu in enumerate(GPUS):
        finding = found[f"GPU {index}"]
        assert (finding.status, finding.data["uuid"]) == (Status.OK, gpu.uuid)
        assert all(finding.data["values"].values())
        assert 0 < max(finding.data["call_seconds"].values()) < 0.02


def test_what_one_gpu_cannot_tell_is_named_and_the_other_is_whole(stubs, page):
    page.devices[1].unsupported = UNSUPPORTED["utilization"] | UNSUPPORTED["energy"] | UNSUPPORTED["clocks"]
    found = look(stubs)
    assert "3 of 7 values, not utilisation, clocks, energy, reasons" in found["GPU 1"].detail
    assert found["GPU 1"].data["values"]["power"] is True
    assert "7 of 7 values" in found["GPU 0"].detail


def test_a_lost_gpu_makes_nvml_say_so(stubs, page):
    page.devices[0].lost = 1
    found = look(stubs)
    assert found["GPU 0"].status is Status.WARN and "does not open it" in found["GPU 0"].detail
    assert found["GPU 1"].status is Status.OK


def test_a_folder_without_the_library_is_told_with_its_key(tmp_path):
    host = Host(config=Config(devices=DevicesConfig(library_directory=str(tmp_path))))
    (finding,) = check_nvml(host)
    assert finding.status is Status.WARN
    assert f"{tmp_path} (devices.library_directory)" in finding.detail
