# SPDX-License-Identifier: Apache-2.0
"""The parent with children that are not the devices process: it must not depend on their manners."""

import os
import sys
import time

import pytest

from hotstage.config.settings import DevicesConfig
from hotstage.devices.parent import Devices
from hotstage.devices.samples import DevicesState
from hotstage.devices.wire import RecordKind, Status, pack

NO_LIBRARY = pack(RecordKind.state, (1, Status.no_library, 0, b"", b"NVML Shared Library Not Found"))


def child(code):
    return (sys.executable, "-S", "-c", f"import os, sys, time\n{code}")


class Parent:
    def __init__(self, clock, command, **config):
        self.clock = clock
        self.devices = Devices(DevicesConfig(**config), clock, command)

    def until(self, state, *, advance=0.0):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            sample = self.devices.poll()
            if sample.state is state:
                return sample
            self.clock.advance(advance)
            time.sleep(0.005)
        pytest.fail(f"waited 10 s for {state}; last: {sample.state} {sample.reason}")


@pytest.fixture
def parent(clock):
    made = []

    def make(command, **config):
        made.append(Parent(clock, command, **config))
        return made[-1]

    yield make
    for each in made:
        each.devices.close()


def test_a_host_without_nvml_is_a_state_with_a_reason_and_looked_at_again_in_a_minute(parent, clock):
    watching = parent(child(f"os.write(1, {NO_LIBRARY!r}); sys.exit(3)"))
    sample = watching.until(DevicesState.no_library)
    assert sample.reason == "NVML Shared Library Not Found"
    end = time.monotonic() + 10
    while watching.devices.poll().restarts == 0 and time.monotonic() < end:
        time.sleep(0.005)
    clock.advance(59)
    assert watching.devices.poll().restarts == 1 and watching.devices._child is None
    clock.advance(2)
    watching.devices.poll()
    assert watching.devices._child is not None


def test_a_child_that_crashes_is_started_again_after_growing_pauses(parent, clock):
    watching = parent(child("os.kill(os.getpid(), 11)"))
    starts, last = [], 0
    end = time.monotonic() + 20
    while len(starts) < 4 and time.monotonic() < end:
        sample = watching.devices.poll()
        if sample.restarts > last:
            last = sample.restarts
            starts.append(watching.devices._start_at_ns - clock.monotonic_ns())
        elif watching.devices._child is None:
            clock.advance(0.5)
        time.sleep(0.002)
    assert [round(pause / 1e9) for pause in starts] == [1, 2, 4, 8]


def test_a_child_that_says_nothing_is_abandoned(parent, clock):
    watching = parent(child("time.sleep(60)"), hang_after_seconds=3.0)
    watching.devices.poll()
    pid = watching.devices._child.pid
    clock.advance(3.5)
    sample = watching.devices.poll()
    assert sample.state is DevicesState.hung
    end = time.monotonic() + 10
    while watching.devices._abandoned and time.monotonic() < end:
        watching.devices.poll()
        time.sleep(0.005)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_talks_nonsense_is_replaced(parent):
    sample = parent(child("os.write(1, b'x' * 4096); time.sleep(60)")).until(DevicesState.failed)
    assert "not a record" in sample.reason


def test_a_command_that_does_not_exist_is_a_failure_not_an_exception(parent):
    assert "does not start" in parent(("/nonexistent/hotstage",)).until(DevicesState.failed).reason


def test_switched_off_it_starts_nothing(parent):
    watching = parent(child("time.sleep(60)"), enabled=False)
    assert watching.devices.poll().state is DevicesState.disabled
    assert watching.devices._child is None


def test_a_poll_never_waits_for_a_flood(parent):
    watching = parent(child(f"data = {NO_LIBRARY!r} * 100\nwhile True: os.write(1, data)"))
    watching.devices.poll()
    time.sleep(0.1)
    spent = []
    for _ in range(5):
        began = time.perf_counter()
        watching.devices.poll()
        spent.append(time.perf_counter() - began)
    assert min(spent) < 0.5


def test_its_process_is_known_as_its_own(parent, clock):
    watching = parent(child("time.sleep(60)"))
    assert not watching.devices.owns(os.getpid())
    watching.devices.poll()
    assert watching.devices.owns(watching.devices._child.pid)
