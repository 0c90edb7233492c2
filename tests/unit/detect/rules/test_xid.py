# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from support.pulses import SECOND, pulse

from hotstage.config.settings import DetectConfig
from hotstage.detect.finding import Severity
from hotstage.detect.rules.xid import Xid
from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState, no_devices
from hotstage.frame.entity import Entity, EntityKind
from hotstage.probes.samples import XidEvent
from hotstage.text import normal_bus_id

START = 1000 * SECOND


def xid(number=79, bus="PCI:0000:65:00", at_ns=START, source="kernel_log"):
    return XidEvent(at_ns, bus, number, f"NVRM: Xid ({bus}): {number}, GPU has fallen off the bus", source)


def devices(at_ns, *, energy=1000.0, is_lost=False, is_fresh=True, bus=b"00000000:65:00.0", uuid=b"GPU-1"):
    """NVML's word of one GPU."""
    rows = np.zeros(1, DEVICE_DTYPE)
    rows["uuid"], rows["pci_bus_id"], rows["is_lost"] = uuid, bus, is_lost
    rows["memory_total_bytes"], rows["energy_joules"] = (np.nan, np.nan) if is_lost else (80e9, energy)
    return DeviceSample(at_ns, DevicesState.sampling, "", rows, driver="580.1", is_fresh=is_fresh)


@pytest.fixture
def detector():
    return Xid(DetectConfig())


def test_an_xid_is_found_in_its_own_pulse_and_is_a_hard_fact(detector):
    (finding,) = detector.observe_pulse(pulse(START, xids=(xid(),)))
    assert (finding.kind, finding.severity, finding.is_hard) == ("gpu_xid", Severity.critical, True)
    assert finding.entity.pci_bus_id == "0000:65:00"
    assert "79" in finding.summary and "fallen off the bus" in finding.summary


def test_the_gpu_is_named_by_its_uuid_where_the_devices_are_known(detector):
    detector.know_devices(devices(START))
    assert detector.observe_pulse(pulse(START, xids=(xid(),)))[0].entity.gpu_uuid == "GPU-1"


def test_the_same_xid_from_two_sources_is_one(detector):
    twice = (xid(), xid(bus="00000000:65:00.0", source="nvml"))
    (finding,) = detector.observe_pulse(pulse(START, xids=twice))
    assert {item.column: item.value for item in finding.evidence}["xid_count"] == 2.0


def test_two_gpus_and_two_numbers_are_apart(detector):
    events = (xid(), xid(bus="PCI:0000:b3:00"), xid(number=31))
    assert len(detector.observe_pulse(pulse(START, xids=events))) == 3


def test_it_clears_five_seconds_after_the_last(detector):
    detector.observe_pulse(pulse(START, xids=(xid(109),)))
    assert detector.observe_pulse(pulse(START + 4 * SECOND, xids=(xid(109, at_ns=START + 4 * SECOND),)))
    assert detector.observe_pulse(pulse(START + 8 * SECOND))
    (last,) = detector.observe_pulse(pulse(START + 9 * SECOND))
    assert last.is_over
    assert detector.observe_pulse(pulse(START + 9 * SECOND)) == []


BROKEN = (48, 62, 64, 74, 79, 95, 119, 120)


def firing(detector, seconds, sample=None):
    """Whether it still fires that much later, after this word of NVML."""
    if sample is not None:
        detector.know_devices(sample)
    return any(not each.is_over for each in detector.observe_pulse(pulse(START + seconds * SECOND)))


def last_word(detector, seconds, sample=None):
    if sample is not None:
        detector.know_devices(sample)
    (found,) = detector.observe_pulse(pulse(START + seconds * SECOND))
    assert found.is_over
    return found.summary


@pytest.mark.parametrize("number", BROKEN)
def test_a_gpu_that_is_broken_stays_so_while_nvml_goes_on_giving_values(detector, number):
    detector.know_devices(devices(START))
    (found,) = detector.observe_pulse(pulse(START, xids=(xid(number),)))
    assert found.summary.endswith(", and nothing has shown the GPU back since")
    for hour in range(1, 25):
        at = hour * 3600
        assert firing(detector, at, devices(START + at * SECOND, energy=1000.0 + at))


@pytest.mark.parametrize("number", [13, 31, 43, 94, 109])
def test_what_an_application_can_recover_from_is_over_by_itself(detector, number):
    assert detector.observe_pulse(pulse(START, xids=(xid(number),)))
    assert not firing(detector, 5)


def test_a_lost_gpu_is_well_when_nvml_has_its_values_again(detector):
    detector.know_devices(devices(START))
    detector.observe_pulse(pulse(START, xids=(xid(),)))
    assert firing(detector, 10, devices(START + 10 * SECOND, is_lost=True))
    assert firing(detector, 20, devices(START + 20 * SECOND, is_fresh=False))
    assert not firing(detector, 30, devices(START + 30 * SECOND))


def test_a_gpu_that_was_gone_from_the_list_is_well_when_it_is_back_and_keeps_its_name_meanwhile(detector):
    detector.know_devices(devices(START))
    detector.observe_pulse(pulse(START, xids=(xid(),)))
    detector.know_devices(devices(START + 10 * SECOND, bus=b"00000000:B3:00.0", uuid=b"GPU-2"))
    (found,) = detector.observe_pulse(pulse(START + 10 * SECOND))
    assert found.entity.gpu_uuid == "GPU-1"
    assert not firing(detector, 20, devices(START + 20 * SECOND))


def test_a_reset_shows_in_the_energy_counted_anew(detector):
    detector.know_devices(devices(START, energy=1000.0))
    detector.observe_pulse(pulse(START, xids=(xid(48),)))
    assert firing(detector, 10, devices(START + 10 * SECOND, energy=2000.0))
    assert not firing(detector, 20, devices(START + 20 * SECOND, energy=3.0))


def test_another_driver_means_that_it_was_loaded_anew(detector):
    detector.know_devices(devices(START))
    detector.observe_pulse(pulse(START, xids=(xid(119),)))
    assert not firing(detector, 20, replace(devices(START + 20 * SECOND), driver="590.1"))


OFF_THE_BUS = (
    "The driver reported XID 79 (GPU has fallen off the bus) for GPU GPU-1; NVIDIA's remedy is a reboot"
)


def test_no_sentence_claims_a_reset_that_nobody_saw(detector):
    """While it stands and when it is over the words say what has been seen of the GPU, and by what."""
    detector.know_devices(devices(START))
    (found,) = detector.observe_pulse(pulse(START, xids=(xid(),)))
    assert found.summary == f"{OFF_THE_BUS} of the host, and nothing has shown the GPU back since"
    assert firing(detector, 10, devices(START + 10 * SECOND, is_lost=True))
    said = last_word(detector, 30, devices(START + 30 * SECOND))
    assert said == (
        f"{OFF_THE_BUS} of the host; 30 s later NVML gives its values again: it is taken to be back"
    )


def test_the_last_word_names_the_sign_that_was_seen(detector):
    detector.know_devices(devices(START, energy=1000.0))
    detector.observe_pulse(pulse(START, xids=(xid(48),)))
    said = last_word(detector, 20, devices(START + 20 * SECOND, energy=3.0))
    assert said.endswith(
        "20 s later its energy is counted from nothing again, as after a reset: it is taken to be back"
    )


def test_an_xid_after_an_operators_word_stands_again(detector):
    detector.observe_pulse(pulse(START, xids=(xid(),)))
    detector.repaired(Entity(EntityKind.gpu, pci_bus_id="0000:65:00"))
    (found,) = detector.observe_pulse(pulse(START + SECOND, xids=(xid(at_ns=START + SECOND),)))
    assert (found.is_over, found.since_ns) == (False, START + SECOND)
    assert firing(detector, 60)


def test_a_fact_has_no_limit_that_it_is_over_by(detector):
    assert [each.score for each in detector.observe_pulse(pulse(START, xids=(xid(), xid(31))))] == [1.0, 1.0]


def test_a_silent_nvml_says_nothing_of_a_gpu(detector):
    detector.know_devices(devices(START))
    detector.observe_pulse(pulse(START, xids=(xid(95),)))
    gone = no_devices(START + 10 * SECOND, DevicesState.failed, "the devices process ended")
    assert firing(detector, 10, gone)
    assert firing(detector, 20, devices(START + 20 * SECOND, energy=1001.0))


def test_an_xid_after_the_reset_begins_anew(detector):
    detector.know_devices(devices(START, energy=1000.0))
    detector.observe_pulse(pulse(START, xids=(xid(48),)))
    assert not firing(detector, 20, devices(START + 20 * SECOND, energy=3.0))
    detector.observe_pulse(pulse(START + 21 * SECOND, xids=(xid(48, at_ns=START + 21 * SECOND),)))
    assert firing(detector, 60, devices(START + 60 * SECOND, energy=9.0))


@pytest.mark.parametrize("scope", [{"gpu_uuid": "GPU-1"}, {"pci_bus_id": "0000:65:00"}])
def test_an_operator_may_say_that_a_gpu_is_well(detector, scope):
    detector.know_devices(devices(START))
    detector.observe_pulse(pulse(START, xids=(xid(), xid(bus="PCI:0000:b3:00"))))
    detector.repaired(Entity(EntityKind.gpu, **scope))
    well, left = detector.observe_pulse(pulse(START + 10 * SECOND))
    assert well.is_over and "an operator has said since that the GPU is well" in well.summary
    (left,) = detector.observe_pulse(pulse(START + 11 * SECOND))
    assert left.entity.pci_bus_id == "0000:b3:00"


def test_which_xids_stand_is_a_setting(detector):
    detector.observe_pulse(pulse(START, xids=(xid(),)))
    detector.take_over(DetectConfig(xid_until_reset=[]))
    assert not firing(detector, 5)


def test_an_application_fault_is_a_warning(detector):
    assert detector.observe_pulse(pulse(START, xids=(xid(number=31),)))[0].severity is Severity.warning


@pytest.mark.parametrize("bus", ["00000000:3B:00.0", "0000:3b:00", "PCI:0000:3b:00", "3B:00.0"])
def test_all_spellings_of_a_bus_id_are_one(bus):
    assert normal_bus_id(bus) == "0000:3b:00"
