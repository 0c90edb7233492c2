# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from support.pulses import I0, I1, SECOND, process, pulse, request

from hotstage.config.settings import FrameConfig
from hotstage.devices.samples import DEVICE_DTYPE, DeviceSample, DevicesState, no_devices
from hotstage.frame.columns import COLUMNS
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.fuse import Fuser
from hotstage.host.samples import HostSample, ProcessLoad
from hotstage.stages.tracker import PROBES_OFF

NOW = 1000 * SECOND
FIRST, SECOND_ONE = (Entity(EntityKind.instance, instance=name) for name in ("i-0", "i-1"))
GPU = Entity(EntityKind.gpu, gpu_uuid="GPU-1", pci_bus_id="00000000:65:00.0")


def load(pid, cpu, memory):
    return ProcessLoad(pid, cpu * 8, memory * 2**33, cpu, memory)


def host(*loads, at_ns=NOW, cpu=0.5):
    return HostSample(at_ns, 8, cpu, 2**33, 0.25, {each.pid: each for each in loads})


def busy_pulse(at_ns=NOW, *, first=1, second=1, **others):
    """`first` requests on i-0, `second` on i-1, all of them begun now."""
    waiting = [request(n, at_ns, instance=I0) for n in range(first)]
    waiting += [request(100 + n, at_ns, instance=I1) for n in range(second)]
    processes = [process(100, instance=I0), process(101, instance=I1), process(102, instance=I1)]
    return pulse(at_ns, requests_open=waiting, processes=processes, **others)


def gpu_rows(**values):
    row = np.zeros(1, DEVICE_DTYPE)
    for name in DEVICE_DTYPE.names:
        if DEVICE_DTYPE[name].kind == "f":
            row[name] = np.nan
    row["uuid"], row["pci_bus_id"], row["at_ns"] = b"GPU-1", b"00000000:65:00.0", NOW - SECOND
    for name, value in values.items():
        row[name] = value
    return row


@pytest.fixture
def fuser():
    return Fuser(FrameConfig())


def test_the_load_of_an_instance_is_the_mean_of_the_cpu_and_memory_of_its_processes(fuser):
    frame = fuser.fuse(
        NOW, [busy_pulse()], host=host(load(100, 0.6, 0.2), load(101, 0.1, 0.1), load(102, 0.2, 0.1))
    )
    assert frame.get(FIRST, "load_ratio") == pytest.approx(0.4)
    assert frame.get(SECOND_ONE, "cpu_load_ratio") == pytest.approx(0.3)
    route = Entity(EntityKind.route, endpoint="/v1/vision", instance="i-0")
    assert frame.get(route, "load_ratio") == pytest.approx(0.4)
    assert frame.get(Entity(EntityKind.process, pid=102), "memory_load_ratio") == pytest.approx(0.1)
    assert frame.get(HOST, "load_ratio") == pytest.approx(0.375)


def test_an_instance_keeps_its_load_between_two_requests_and_loses_it_with_its_process(fuser):
    def at(seconds, *processes, lives=True):
        now = NOW + seconds * SECOND
        sampled = host(*[load(100, 0.9, 0.9)] * lives, at_ns=now)
        return fuser.fuse(now, [pulse(now, processes=processes)], host=sampled).value(FIRST, "load_ratio")

    assert at(0, process(100, instance=I0)) == pytest.approx(0.9)
    assert at(1) == pytest.approx(0.9)
    assert at(2, process(100, instance=0)) == pytest.approx(0.9), "it launches, and holds no request"
    assert at(3, lives=False) is None, "its process has gone"
    assert at(4) == pytest.approx(0.9)
    assert at(5, process(100, instance=I0, is_dead=True)) is None
    assert at(6, process(100, instance=I0)) == pytest.approx(0.9)
    assert at(66) is None, "nothing was seen of it for a minute"


def test_the_deviation_is_the_load_share_over_the_heat_share(fuser):
    loads = (load(100, 0.4, 0.4), load(101, 0.05, 0.05), load(102, 0.05, 0.05))
    frame = fuser.fuse(NOW, [busy_pulse(first=2, second=6)], host=host(*loads))
    # i-0: 0.8 of the load for 0.25 of the heat; i-1: 0.2 for 0.75
    assert frame.get(FIRST, "dispatch_deviation") == pytest.approx(math.log2(0.8 / 0.25))
    assert frame.get(SECOND_ONE, "dispatch_deviation") == pytest.approx(math.log2(0.2 / 0.75))


def test_without_load_or_heat_the_deviation_is_unknown(fuser):
    assert fuser.fuse(NOW, [busy_pulse()]).value(FIRST, "dispatch_deviation") is None
    idle = fuser.fuse(NOW + 60 * SECOND, [busy_pulse(NOW + 60 * SECOND, first=0, second=0)], host=host())
    assert idle.value(FIRST, "dispatch_deviation") is None


def test_a_gpu_has_what_the_driver_supports_and_nothing_else(fuser):
    rows = gpu_rows(
        memory_used_bytes=2**30, memory_total_bytes=2**32, temperature_celsius=61, event_reasons=0x40
    )
    devices = DeviceSample(NOW, DevicesState.sampling, "", rows, is_fresh=True)
    frame = fuser.fuse(NOW, [pulse(NOW)], devices=devices)
    assert frame.get(GPU, "gpu_memory_used_ratio") == 0.25
    assert frame.get(GPU, "gpu_hardware_slowdown") == 1.0
    assert frame.get(GPU, "gpu_sample_age_seconds") == 1.0
    assert frame.value(GPU, "gpu_power_watts") is None
    assert frame.get(HOST, "gpu_count") == 1.0
    assert "devices" not in frame.stale


def test_a_devices_process_that_fell_silent_leaves_unknown_values_and_says_stale(fuser):
    devices = DeviceSample(NOW, DevicesState.hung, "silent", gpu_rows(temperature_celsius=61), is_fresh=False)
    frame = fuser.fuse(NOW, [pulse(NOW)], devices=devices)
    assert frame.value(GPU, "gpu_temperature_celsius") is None
    assert "devices" in frame.stale


def test_a_host_without_nvml_is_not_stale_for_it(fuser):
    frame = fuser.fuse(NOW, [pulse(NOW)], devices=no_devices(NOW, DevicesState.no_library, "none"))
    assert "devices" not in frame.stale


def test_old_missing_and_lossy_sources_are_stale(fuser):
    frame = fuser.fuse(NOW, [], host=host(at_ns=NOW - 4 * SECOND))
    assert frame.stale == {"requests", "calls", "host"}
    lossy = fuser.fuse(NOW + SECOND, [pulse(NOW, stale=frozenset({"lost_threads"}))])
    assert "requests" in lossy.stale


def test_while_the_probes_are_off_a_frame_has_nothing_of_theirs_and_rates_begin_anew_after_it(fuser):
    busy = process(100, open_requests=3, call=7, since_ns=NOW - 9 * SECOND)
    seen = [request(n, NOW, ended_ns=NOW) for n in range(30)]
    before = fuser.fuse(NOW, [pulse(NOW, requests_ended=seen, processes=[busy])])
    assert before.get(HOST, "request_rate") > 0
    at_ns = NOW + SECOND
    off = fuser.fuse(
        at_ns, [pulse(at_ns, stale=frozenset({PROBES_OFF}), processes=[busy])], host=host(at_ns=at_ns)
    )
    told = {COLUMNS[place].source for place in np.flatnonzero(~np.isnan(off.values).all(axis=0))}
    assert told == {"host"} and off.stale == {"requests", "calls"}
    at_ns = NOW + 4 * SECOND  # on again for two seconds, of which each had a request
    pulses = [
        pulse(at_ns - 2 * SECOND),
        *(
            pulse(at - 1, requests_ended=[request(at, at - 1, ended_ns=at - 1)])
            for at in (at_ns - SECOND, at_ns)
        ),
    ]
    after = fuser.fuse(at_ns, pulses)
    assert after.get(HOST, "request_rate") == pytest.approx(1.0)
    assert after.get(HOST, "latency_samples") == 2


def test_losses_are_a_rate_and_late_marks_are_none(fuser):
    fuser.fuse(NOW, [pulse(NOW)])
    lost = pulse(NOW + 2 * SECOND, lost={"lost_threads": 6, "missed_request": 99})
    assert fuser.fuse(NOW + 2 * SECOND, [lost]).get(HOST, "loss_rate") == 3.0


def test_a_process_has_what_it_holds_and_how_long_it_sits_in_its_oldest_call(fuser):
    busy = process(100, open_requests=3, call=7, since_ns=NOW - 9 * SECOND)
    frame = fuser.fuse(NOW, [pulse(NOW, processes=[busy, process(101), process(102, is_dead=True)])])
    first, second, dead = (Entity(EntityKind.process, pid=pid) for pid in (100, 101, 102))
    assert frame.get(first, "open_requests") == 3
    assert frame.get(first, "longest_call_seconds") == pytest.approx(9.0)
    assert frame.value(second, "open_requests") == 0
    assert frame.value(second, "longest_call_seconds") is None
    assert dead not in frame.entities
