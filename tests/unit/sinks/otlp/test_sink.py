# SPDX-License-Identifier: Apache-2.0
"""The tick's side: what it leaves, what it never does, how it ends."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from hotstage.config.settings import OtlpConfig
from hotstage.errors import ConfigError
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.sinks.otlp import sink as module
from hotstage.sinks.otlp.notes import REQUESTS_HELD
from hotstage.sinks.otlp.sink import CLOSE_SECONDS, otlp_sink
from hotstage.sinks.readings import Readings
from hotstage.windows.window import WindowUpdate

NOWHERE = "http://127.0.0.1:9"
"""The discard port: nobody listens there."""


@pytest.fixture
def build(clock, identity):
    def make_sink(**settings):
        return otlp_sink(
            OtlpConfig(**settings), {}, readings=Readings(SimpleNamespace), clock=clock, identity=identity
        )

    return make_sink


def held(sink):
    return sink._notes.take()


def test_without_a_collector_there_is_no_sink_and_a_bad_one_is_refused(build):
    assert build() is None
    with pytest.raises(ConfigError):
        build(endpoint="nonsense")


def test_a_quiet_tick_leaves_nothing(build, a_tick):
    sink = build(endpoint=NOWHERE)
    sink.publish(a_tick())
    assert held(sink) == []


def test_a_burst_of_twenty_thousand_loses_no_span_uncounted(build, a_tick, a_request, clock):
    sink = build(endpoint=NOWHERE, baseline_ratio=0.0)
    rows = np.array([a_request()] * 5_000, FINISHED_DTYPE)
    for _ in range(4):
        sink.publish(a_tick(finished=rows))
    assert sink.state().dropped["queue_full"] == 3 * (20_000 - REQUESTS_HELD)
    sink._thread.start()
    clock.advance(60)
    sink.close()
    dropped = sink.state().dropped
    assert sink.state().exported + sum(dropped.values()) == 3 * 20_000, dropped
    assert dropped["not_sampled"] == 3 * REQUESTS_HELD


def test_finished_requests_are_copied(build, a_tick, a_request):
    sink = build(endpoint=NOWHERE)
    rows = np.array([a_request()], FINISHED_DTYPE)
    sink.publish(a_tick(finished=rows, gpu_of_pid={100: "GPU-a"}))
    rows["id"] = b"changed"
    (note,) = held(sink)
    assert note.finished["id"].tolist() == [b"r-1"]
    assert note.gpu_of_pid == {100: "GPU-a"}


def test_windows_are_noted_when_they_open_and_close(build, a_tick, make):
    sink = build(endpoint=NOWHERE)
    window = make.window()
    sink.publish(a_tick(windows=WindowUpdate(opened=(window,), open=(window,))))
    sink.publish(a_tick(windows=WindowUpdate(updated=(window,), open=(window,))))
    sink.publish(a_tick(windows=WindowUpdate(closed=(window,))))
    assert [(len(note.opened), len(note.closed)) for note in held(sink)] == [(1, 0), (0, 1)]


def test_what_is_switched_off_is_not_noted(build, a_tick, a_request, make):
    rows = np.array([a_request()], FINISHED_DTYPE)
    opened = WindowUpdate(opened=(make.window(),))
    only_metrics = build(endpoint=NOWHERE, traces=False, events=False)
    only_metrics.publish(a_tick(finished=rows, windows=opened))
    assert held(only_metrics) == []
    only_events = build(endpoint=NOWHERE, traces=False)
    only_events.publish(a_tick(finished=rows, windows=opened))
    assert [len(note.finished) for note in held(only_events)] == [0]


def test_a_full_queue_drops_and_counts_requests_and_still_takes_windows(build, a_tick, a_request, make):
    sink = build(endpoint=NOWHERE)
    rows = np.array([a_request(number) for number in range(1_000)], FINISHED_DTYPE)
    for _ in range(4):
        sink.publish(a_tick(finished=rows))
    assert sink.state().dropped["queue_full"] == 0
    room = REQUESTS_HELD - 4_000
    sink.publish(a_tick(finished=rows))
    assert sink.state().dropped["queue_full"] == 3 * (1_000 - room)
    sink.publish(a_tick(finished=rows, windows=WindowUpdate(opened=(make.window(),))))
    assert sink.state().dropped["queue_full"] == 3 * (2_000 - room)
    assert sink.state().events_dropped == 0
    assert [len(note.opened) for note in held(sink)] == [0] * 5 + [1]


def test_before_its_start_it_can_be_closed(build):
    build(endpoint=NOWHERE).close()


def test_an_absent_collector_delays_neither_ticks_nor_the_end(build, a_tick, a_request, clock):
    sink = build(endpoint=NOWHERE, metrics=False, baseline_ratio=1.0, timeout_seconds=30.0)
    sink.start()
    rows = np.array([a_request()], FINISHED_DTYPE)
    slowest = 0.0
    for _ in range(100):
        began = time.perf_counter()
        sink.publish(a_tick(finished=rows))
        slowest = max(slowest, time.perf_counter() - began)
    began = time.perf_counter()
    sink.close()
    assert time.perf_counter() - began < CLOSE_SECONDS + 1
    assert slowest < 0.1


def test_an_agent_imports_no_client_and_no_explorer_that_it_has_no_use_for():
    code = (
        "import sys, hotstage.daemon.process;"
        "unwanted = {'opentelemetry', 'urllib3', 'dash', 'plotly'};"
        "print(sorted(unwanted & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_error_that_nobody_foresaw_does_not_end_the_exports(clock, identity, monkeypatch, caplog):
    monkeypatch.setattr(module, "STEP_SECONDS", 0.01)
    asked = []

    def collect():
        asked.append(1)
        clock.advance(60)
        raise OverflowError("cannot convert float infinity to integer")

    sink = otlp_sink(
        OtlpConfig(endpoint=NOWHERE, traces=False, events=False),
        {},
        readings=SimpleNamespace(collect=collect),
        clock=clock,
        identity=identity,
    )
    sink.start()
    deadline = time.monotonic() + 10
    while len(asked) < 3:
        assert time.monotonic() < deadline, "no third export within 10 s"
        time.sleep(0.01)
    sink.close()
    assert sink.state().failures["metrics"] >= 2
    assert [record.message for record in caplog.records] == ["the OTLP exporter has failed and goes on"]
