# SPDX-License-Identifier: Apache-2.0
import numpy as np
from support.pulses import SECOND, pulse

from hotstage.config.settings import DetectConfig
from hotstage.detect.base import Detectors
from hotstage.detect.rules.rule_file import load_rules
from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST
from hotstage.frame.frame import Frame
from hotstage.frame.history import History
from hotstage.probes.samples import XidEvent

START = 1000 * SECOND


def frame_with(at_ns, **columns):
    values = np.full((1, len(COLUMNS)), np.nan)
    for name, value in columns.items():
        values[0, COLUMN_INDEX[name]] = value
    return Frame(at_ns, (HOST,), values)


def test_what_a_rule_found_stands_until_the_next_frame():
    detectors, history = Detectors(DetectConfig(), load_rules([])[0]), History(60)
    for second in range(6):
        frame = frame_with(START + second * SECOND, loss_rate=3.0)
        history.append(frame)
        detectors.observe_frame(frame, history)
    assert [finding.kind for finding in detectors.observe_pulse(pulse(START + 6 * SECOND))] == [
        "telemetry_lost"
    ]
    quiet = frame_with(START + 20 * SECOND, loss_rate=0.0)
    history.append(quiet)
    detectors.observe_frame(quiet, history)
    assert detectors.observe_pulse(pulse(START + 20 * SECOND)) == []


def test_gpus_become_known_to_the_xid_detector():
    detectors = Detectors(DetectConfig())
    row = np.zeros(1, DEVICE_DTYPE)
    row["pci_bus_id"], row["uuid"] = b"00000000:65:00.0", b"GPU-1"
    detectors.know_devices(DeviceSample(START, DevicesState.sampling, "", row))
    event = XidEvent(START, "PCI:0000:65:00", 79, "text", "kernel_log")
    (finding,) = detectors.observe_pulse(pulse(START, xids=(event,)))
    assert finding.entity.gpu_uuid == "GPU-1"
