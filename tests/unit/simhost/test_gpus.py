# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hotstage.simhost.gpus import GPUS, GpuModel, log_xid
from hotstage.simhost.page import Page


@pytest.fixture
def page():
    return Page()


@pytest.fixture
def model(page):
    model = GpuModel(page)
    page.processes[0].pid, page.processes[0].device = 10, 1
    model.advance(1_000_000_000)
    return model


def test_gpus_have_their_identities(page, model):
    assert page.device_count == 2
    assert [page.devices[i].uuid.decode() for i in range(2)] == [gpu.uuid for gpu in GPUS]


def test_load_is_the_share_of_time_with_work(page, model):
    page.processes[0].busy_ns = 250_000_000
    model.advance(2_000_000_000)
    assert [page.devices[i].utilization_percent for i in range(2)] == [0, 25]
    page.processes[0].busy_ns += 9_000_000_000
    model.advance(3_000_000_000)
    assert page.devices[1].utilization_percent == 100


def test_power_and_energy_follow_the_load(page, model):
    page.processes[0].busy_ns = 1_000_000_000
    model.advance(2_000_000_000)
    idle, busy = page.devices[0], page.devices[1]
    assert (idle.power_milliwatts, busy.power_milliwatts) == (62_000, 340_000)
    assert (idle.energy_millijoules, busy.energy_millijoules) == (62_000, 340_000)
    assert busy.temperature_celsius > idle.temperature_celsius
    assert (idle.sm_clock_mhz, busy.sm_clock_mhz) == (210, 1410)


def test_a_hung_gpu_looks_busy_and_draws_little(page, model):
    page.devices[1].hang = 1
    model.advance(2_000_000_000)
    assert page.devices[1].utilization_percent == 100
    assert page.devices[1].power_milliwatts < 150_000


def test_a_clock_that_stands_still_changes_nothing(page, model):
    page.devices[1].utilization_percent = 42
    model.advance(1_000_000_000)
    assert page.devices[1].utilization_percent == 42


def test_the_kernel_line_is_the_drivers(tmp_path):
    log = tmp_path / "kmsg"
    log_xid(GPUS[0], 79, 1234, kernel_log=log)
    assert log.read_text().startswith("<3>NVRM: Xid (PCI:0000:65:00): 79, pid=1234,")


def test_a_kernel_log_that_may_not_be_written_is_an_error(tmp_path):
    with pytest.raises(OSError):
        log_xid(GPUS[0], 79, 1, kernel_log=tmp_path)


def test_a_gpu_off_the_bus_is_lost_until_it_is_reset_and_counts_energy_anew(page, model):
    model.advance(60_000_000_000)
    used = page.devices[1].energy_millijoules
    model.fail(1, 48)
    assert not page.devices[1].lost
    model.fail(1, 79)
    assert [page.devices[i].lost for i in range(2)] == [0, 1]
    model.reset(1)
    model.advance(61_000_000_000)
    assert not page.devices[1].lost
    assert 0 < page.devices[1].energy_millijoules < used / 10
