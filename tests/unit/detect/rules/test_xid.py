# SPDX-License-Identifier: Apache-2.0
import pytest
from support.pulses import SECOND, pulse

from hotstage.config.settings import DetectConfig
from hotstage.detect.finding import Severity
from hotstage.detect.rules.xid import Xid, normal_bus_id
from hotstage.probes.samples import XidEvent

START = 1000 * SECOND


def xid(number=79, bus="PCI:0000:65:00", at_ns=START, source="kernel_log"):
    return XidEvent(at_ns, bus, number, f"NVRM: Xid ({bus}): {number}, GPU has fallen off the bus", source)


@pytest.fixture
def detector():
    return Xid(DetectConfig())


def test_an_xid_is_found_in_its_own_pulse_and_is_a_hard_fact(detector):
    (finding,) = detector.observe_pulse(pulse(START, xids=(xid(),)))
    assert (finding.kind, finding.severity, finding.is_hard) == ("gpu_xid", Severity.critical, True)
    assert finding.entity.pci_bus_id == "0000:65:00"
    assert "79" in finding.summary and "fallen off the bus" in finding.summary


def test_the_gpu_is_named_by_its_uuid_where_the_devices_are_known(detector):
    detector.know_gpus({"00000000:65:00.0": "GPU-1"})
    assert detector.observe_pulse(pulse(START, xids=(xid(),)))[0].entity.gpu_uuid == "GPU-1"


def test_the_same_xid_from_two_sources_is_one(detector):
    twice = (xid(), xid(bus="00000000:65:00.0", source="nvml"))
    (finding,) = detector.observe_pulse(pulse(START, xids=twice))
    assert {item.column: item.value for item in finding.evidence}["xid_count"] == 2.0


def test_two_gpus_and_two_numbers_are_apart(detector):
    events = (xid(), xid(bus="PCI:0000:b3:00"), xid(number=31))
    assert len(detector.observe_pulse(pulse(START, xids=events))) == 3


def test_it_clears_five_seconds_after_the_last(detector):
    detector.observe_pulse(pulse(START, xids=(xid(),)))
    assert detector.observe_pulse(pulse(START + 4 * SECOND, xids=(xid(at_ns=START + 4 * SECOND),)))
    assert detector.observe_pulse(pulse(START + 8 * SECOND))
    assert detector.observe_pulse(pulse(START + 9 * SECOND)) == []


def test_an_application_fault_is_a_warning(detector):
    assert detector.observe_pulse(pulse(START, xids=(xid(number=31),)))[0].severity is Severity.warning


@pytest.mark.parametrize("bus", ["00000000:3B:00.0", "0000:3b:00", "PCI:0000:3b:00", "3B:00.0"])
def test_all_spellings_of_a_bus_id_are_one(bus):
    assert normal_bus_id(bus) == "0000:3b:00"
