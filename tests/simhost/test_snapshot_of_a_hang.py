# SPDX-License-Identifier: Apache-2.0
"""In a hang a snapshot names, request by request, the stage and the call it sits in, and since when."""

from __future__ import annotations

import time

import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.config.snapshots import RecoveryConfig
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.engine import ProbeEngine
from hotstage.stages.places import Places
from hotstage.stages.recovery import recovery_plan
from hotstage.stages.snapshot import snapshot
from hotstage.stages.snapshot_diff import diff, sits_in

pytestmark = pytest.mark.kernel

WAITS = {"cuEventSynchronize", "cuStreamSynchronize"}
CALLS = {call_id: call.name for call_id, call in calls_by_id().items()}
DEADLINE_SECONDS = 10.0


@pytest.fixture
def engine():
    made = ProbeEngine(ProbesConfig(xid=False, driver=False), SystemClock())
    made.start()
    yield made
    made.close()


def is_attached(engine, pid):
    """Every library of the process: what it does from now on is seen."""
    found = [each.libraries for each in engine.coverage().processes if each.pid == pid]
    kinds = {library.kind for libraries in found for library in libraries if library.since_ns is not None}
    return {"libcuda", "marks"} <= kinds


def look(engine, clock):
    sample = engine.read_fast()
    return snapshot(sample, clock, CALLS, Places(engine.told.contexts(), engine.told.device_uuids()))


def stuck(taken, pid):
    """Requests of the process whose longest wait is older than 1.5 s."""
    found = {}
    for request in taken.requests:
        thread, source = sits_in(request)
        if request.pid == pid and thread is not None and thread.age_seconds > 1.5:
            found[request.key] = request, thread, source
    return found


def test_every_stuck_request_names_its_stage_and_call_and_since_when(start, engine):
    clock = SystemClock()
    run = start("--seed", "3", "--fault", "hang@1.5-12")
    pid = next(event["pid"] for event in run.events if event.get("instance") == "i-0")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_attached(engine, pid):
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s for the server to be attached"
        time.sleep(0.02)
    run.say("go")
    began_ns = clock.wall_ns_of(run.until("fault", state="began")["at_ns"])
    while len(stuck(first := look(engine, clock), pid)) < 3:
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s for requests that stand still"
        time.sleep(0.05)
    time.sleep(0.3)
    second = look(engine, clock)
    waits, again = stuck(first, pid), stuck(second, pid)
    for key, (request, thread, source) in waits.items():
        assert thread.call in WAITS
        assert thread.stage in {part.stage for part in request.open}
        assert began_ns - 1e9 < thread.since_ns < first.taken_at_ns - 1.5e9
        assert again[key][1].since_ns == thread.since_ns
        assert again[key][1].age_seconds > thread.age_seconds
        assert [device.ordinal for device in request.devices] == [0]
        assert request.devices[0].uuid.startswith("GPU-")
        assert request.contexts
        assert (source == "request") == bool(request.threads)
    still = {each.key: each for each in diff(first, second).still}
    assert waits.keys() <= still.keys()
    assert all(still[key].call.call in WAITS for key in waits)
    plans = {plan.key: plan for plan in recovery_plan(second, RecoveryConfig()).requests}
    for key, (request, _, _) in again.items():
        assert plans[key].open_stages == [part.stage for part in request.open]
        assert plans[key].redo[-1] == plans[key].open_stages[-1]
