# SPDX-License-Identifier: Apache-2.0
"""The line on simulated samples: ordinary traffic stays quiet, a hard signal opens and moves at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.load import Load, Maps

from hotstage.breaker.record import BreakerRecord
from hotstage.config.settings import Config
from hotstage.daemon.line import Line
from hotstage.detect.rules.rule_file import load_rules
from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.probes.samples import XidEvent
from hotstage.stages.tracker import Tracker

DEMO = Load("demo", requests_per_second=8.4, stretch=1.0, threads=40, call_keys=60, seconds=20.0)


@pytest.fixture
def line(clock) -> Line:
    return Line(Config(), clock, rules=(), tracker=Tracker(is_alive=lambda pid: True))


def test_ordinary_traffic_opens_nothing_and_fills_frames(line: Line):
    frames = []
    for sample, calls in Maps(DEMO, seed=7):
        step = line.fast(sample)
        assert step.windows.open == ()
        assert step.transitions == ()
        if calls is not None:
            frames.append(line.slow(sample.at_ns, calls, None, None))
    assert len(frames) == 20
    kinds = {entity.kind for entity in frames[-1].entities}
    assert {EntityKind.stage, EntityKind.endpoint, EntityKind.route, EntityKind.instance} <= kinds
    assert line.history.latest is frames[-1]
    for modality in ("text", "image"):
        entity = Entity(EntityKind.modality, modality=modality)
        assert frames[-1].value(entity, "ttft_samples") > 0
    table = line.timings.latency(frames[-1].at_ns)
    assert table.total.ttft_samples == frames[-1].value(HOST, "ttft_samples") > 0
    assert line.timings.components(frames[-1].at_ns).request.count >= table.total.ttft_samples


def test_an_xid_becomes_a_window_and_moves_the_gpus_breaker_in_one_tick(line: Line):
    for sample, _ in Maps(replace(DEMO, seconds=1.0), seed=7):
        last = sample
        line.fast(sample)
    xid = XidEvent(last.at_ns, "0000:65:00", 79, "NVRM: Xid ...", "kernel_log")
    step = line.fast(replace(last, at_ns=last.at_ns + 100_000_000, finished=last.finished[:0], xids=(xid,)))
    (window,) = step.windows.opened
    assert (window.kind, window.entity.pci_bus_id) == ("gpu_xid", "0000:65:00")
    (move,) = step.transitions
    assert move.name.startswith("gpu:")


def test_the_breaker_of_a_broken_gpu_stays_open_until_it_is_back(line: Line):
    for sample, _ in Maps(replace(DEMO, seconds=1.0), seed=7):
        last = replace(sample, finished=sample.finished[:0])
    xid = XidEvent(last.at_ns, "0000:65:00", 48, "NVRM: Xid ...", "kernel_log")
    line.slow(last.at_ns, None, gpu(last.at_ns, energy=900.0), None)
    line.fast(replace(last, xids=(xid,)))

    def seconds(first: int, end: int, energy: float) -> BreakerRecord:
        for second in range(first, end):
            at_ns = last.at_ns + second * 1_000_000_000
            line.slow(at_ns, None, gpu(at_ns, energy=energy + second), None)
            line.fast(replace(last, at_ns=at_ns))
        return next(record for record in line.breakers.records if record.name == "gpu:GPU-abc")

    assert seconds(1, 120, 1000.0).state == "open"
    assert seconds(120, 130, 0.0).state == "half_open"


def test_a_gpu_that_falls_off_the_bus_is_one_window_and_one_breaker(clock):
    """The driver tells it by XID 79, NVML says a second later that the GPU is lost; then it is back."""
    line = Line(Config(), clock, rules=load_rules(())[0], tracker=Tracker(is_alive=lambda pid: True))
    for sample, _ in Maps(replace(DEMO, seconds=1.0), seed=7):
        last = replace(sample, finished=sample.finished[:0])
    line.slow(last.at_ns, None, gpu(last.at_ns, energy=900.0), None)
    xid = XidEvent(last.at_ns, "0000:65:00", 79, "NVRM: Xid ...", "kernel_log")
    line.fast(replace(last, xids=(xid,)))
    for second in range(1, 6):
        at_ns = last.at_ns + second * 1_000_000_000
        line.slow(at_ns, None, gpu(at_ns, energy=0.0, is_lost=True), None)
        step = line.fast(replace(last, at_ns=at_ns))
    (window,) = step.windows.open
    assert (window.kind, window.entity.labels()) == ("gpu_xid", GPU_LABELS)
    assert [each.kind for each in window.cause.candidates] == ["gpu_xid", "gpu_lost"]
    assert {each.column for each in window.evidence} == {"xid", "xid_count", "gpu_lost"}
    closed = []
    for second in range(6, 12):
        at_ns = last.at_ns + second * 1_000_000_000
        line.slow(at_ns, None, gpu(at_ns, energy=0.0), None)
        closed += line.fast(replace(last, at_ns=at_ns)).windows.closed
    (ended,) = closed
    assert ended.id == window.id
    assert ended.cause.summary.endswith(
        "6 s later its energy is counted from nothing again, as after a reset: it is taken to be back"
    )
    assert [each.name for each in line.breakers.records] == ["gpu:GPU-abc"]


def test_the_window_of_a_server_names_that_of_the_xid_on_its_gpu(clock):
    """Both stay: each has a breaker of its own, and the server's may well be over before the GPU is back."""
    pids = {}
    line = Line(
        Config(), clock, rules=(), tracker=Tracker(is_alive=lambda pid: True), gpu_of_pid=lambda: pids
    )
    for sample, _ in Maps(replace(DEMO, seconds=1.0), seed=7):
        last = replace(sample, finished=sample.finished[:0])
        pulse = line.fast(last).pulse
    pids.update(dict.fromkeys(pulse.processes["pid"].tolist(), "GPU-abc"))
    line.slow(last.at_ns, None, gpu(last.at_ns, energy=900.0), None)
    xid = XidEvent(last.at_ns, "0000:65:00", 48, "NVRM: Xid ...", "kernel_log")
    line.fast(replace(last, xids=(xid,)))
    for tick in range(1, 1400):
        at_ns = last.at_ns + tick * 100_000_000
        windows = line.fast(replace(last, at_ns=at_ns)).windows.open
        if len(windows) > 1:
            break
    broken, *servers = windows
    assert (broken.kind, {each.kind for each in servers}) == ("gpu_xid", {"alive_but_hung"})
    assert (broken.caused_by, {each.caused_by for each in servers}) == (None, {broken.id})


GPU_LABELS = {"gpu_uuid": "GPU-abc", "pci_bus_id": "0000:65:00"}


def gpu(at_ns: int, *, energy: float, is_lost: bool = False) -> DeviceSample:
    row = np.zeros(1, DEVICE_DTYPE)
    row["pci_bus_id"], row["uuid"], row["is_lost"] = b"0000:65:00", b"GPU-abc", is_lost
    row["memory_total_bytes"], row["energy_joules"] = 80e9, energy
    return DeviceSample(at_ns, DevicesState.sampling, "", row, is_fresh=True)


def test_a_gpu_is_called_by_its_uuid_once_the_devices_have_told_it(line: Line):
    row = np.zeros(1, DEVICE_DTYPE)
    row["pci_bus_id"], row["uuid"] = b"00000000:65:00.0", b"GPU-abc"
    line.slow(1_000, None, DeviceSample(0, DevicesState.sampling, "", row), None)
    for sample, _ in Maps(replace(DEMO, seconds=0.2), seed=7):
        last = sample
        line.fast(sample)
    xid = XidEvent(last.at_ns, "0000:65:00", 79, "NVRM: Xid ...", "nvml")
    step = line.fast(replace(last, at_ns=last.at_ns + 100_000_000, finished=last.finished[:0], xids=(xid,)))
    assert step.windows.opened[0].entity.gpu_uuid == "GPU-abc"


def test_a_second_without_sources_is_a_frame_that_says_so(line: Line):
    frame = line.slow(1_000_000_000, None, None, None)
    assert {"requests", "calls", "host"} <= frame.stale
    assert np.isnan(frame.values).all()
