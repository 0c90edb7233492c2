# SPDX-License-Identifier: Apache-2.0
"""The devices process with the real pynvml on a stub library that does as it is told."""

import math
import subprocess
import time
from pathlib import Path

import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import DevicesConfig
from hotstage.devices.parent import Devices
from hotstage.devices.samples import DevicesState

DEADLINE_SECONDS = 15.0


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml_stub.c")
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libnvidia-ml.so.1",
            "-o",
            folder / "libnvidia-ml.so.1",
            source,
        ],
        check=True,
    )
    return folder


class Watch:
    def __init__(self, library, state, **config):
        self.state = state
        config = {"period_seconds": 0.2, "hang_after_seconds": 2.0, **config}
        self.devices = Devices(DevicesConfig(library_directory=str(library), **config), SystemClock())
        self.xids = []

    def until(self, what, test):
        """The first sample for which `test` holds."""
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            sample = self.devices.poll()
            self.xids += sample.xids
            if test(sample):
                return sample
            time.sleep(0.01)
        pytest.fail(f"waited {DEADLINE_SECONDS:.0f} s for {what}; last: {sample.state} {sample.reason}")


@pytest.fixture
def watch(library, tmp_path, monkeypatch):
    state = tmp_path / "state"
    state.write_text("")
    monkeypatch.setenv("NVML_STUB_STATE", str(state))
    made = Watch(library, state)
    yield made
    made.devices.close()


def is_sampling(sample):
    return sample.is_fresh and len(sample.rows) == 2


def test_both_gpus_are_read_in_base_units(watch):
    sample = watch.until("two GPUs", is_sampling)
    row = sample.rows[0]
    assert (row["uuid"], row["pci_bus_id"], sample.driver) == (b"GPU-1", b"0000:65:00", "550.stub")
    assert (row["memory_used_bytes"], row["memory_total_bytes"]) == (2**30, 80 * 2**30)
    assert (row["utilisation_ratio"], row["memory_busy_ratio"]) == (0.42, 0.17)
    assert row["power_watts"] == pytest.approx(123.456) and row["power_limit_watts"] == pytest.approx(700)
    assert (row["sm_clock_hertz"], row["memory_clock_hertz"]) == (1.98e9, 2.619e9)
    assert (row["energy_joules"], row["temperature_celsius"], row["event_reasons"]) == (5.0, 61.0, 0x40)
    assert sample.uuid_by_bus == {"0000:65:00": "GPU-1", "0000:66:00": "GPU-2"}


def test_what_the_driver_does_not_support_is_nan_and_the_rest_goes_on(watch):
    watch.state.write_text("nopower")
    row = watch.until("two GPUs", is_sampling).rows[0]
    assert math.isnan(row["power_watts"]) and row["temperature_celsius"] == 61.0


def test_a_lost_gpu_is_a_state_of_that_gpu_alone(watch):
    watch.until("two GPUs", is_sampling)
    watch.state.write_text("lost")
    sample = watch.until("a lost GPU", lambda sample: sample.rows["is_lost"].any())
    assert sample.rows["is_lost"].tolist() == [0, 1]
    assert math.isnan(sample.rows["memory_used_bytes"][1]) and sample.rows["memory_used_bytes"][0] == 2**30


def test_a_gpu_that_is_lost_before_the_start_does_not_keep_the_others_from_being_sampled(watch):
    watch.state.write_text("absent")
    sample = watch.until("the other GPU", lambda sample: sample.is_fresh and len(sample.rows) == 1)
    assert len(sample.rows) == 1 and "GPU 1" in sample.reason


def test_a_driver_that_was_changed_underneath_gets_a_new_process(watch):
    watch.until("two GPUs", is_sampling)
    watch.state.write_text("mismatch")
    failed = watch.until("a failure", lambda sample: sample.state is DevicesState.failed)
    assert "mismatch" in failed.reason and not failed.is_fresh
    watch.state.write_text("")
    assert watch.until("a new process", is_sampling).restarts >= 1


def test_a_driver_that_hangs_is_abandoned_and_tried_again(watch):
    watch.until("two GPUs", is_sampling)
    watch.state.write_text("hang")
    hung = watch.until("the hang", lambda sample: sample.state is DevicesState.hung)
    assert "not answered" in hung.reason and not hung.is_fresh
    assert len(hung.rows) == 2, "the last values stay, as old ones"
    watch.state.write_text("")
    assert watch.until("a new process", is_sampling).restarts == 1


def test_a_slow_driver_is_asked_less_often(watch):
    watch.state.write_text("slow")
    sample = watch.until("two GPUs", is_sampling)
    first = int(sample.rows["at_ns"][0])
    sample = watch.until("the next round", lambda sample: int(sample.rows["at_ns"][0]) > first)
    assert float(sample.rows["call_seconds"][0]) >= 0.03
    assert (int(sample.rows["at_ns"][0]) - first) / 1e9 > 5 * 0.02, "at full pace it would be 0.02 s"


def test_an_xid_comes_through_the_pipe_with_its_gpu(watch):
    watch.until("two GPUs", is_sampling)
    watch.state.write_text("xid")
    watch.until("an XID", lambda sample: bool(watch.xids))
    event = watch.xids[0]
    assert (event.pci_bus_id, event.xid, event.source) == ("0000:66:00", 79, "nvml")


def test_nvml_that_refuses_to_start_is_a_failure_with_its_reason(watch):
    watch.state.write_text("refused")
    failed = watch.until("the refusal", lambda sample: sample.state is DevicesState.failed)
    assert failed.reason and len(failed.rows) == 0
