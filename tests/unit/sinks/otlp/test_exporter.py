# SPDX-License-Identifier: Apache-2.0
"""The exporter's steps, with collectors that only take or refuse."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hotstage.config.settings import OtlpConfig
from hotstage.sinks.otlp.channel import Channel, LastWords, Rejection
from hotstage.sinks.otlp.channels import channels
from hotstage.sinks.otlp.collector import Collector
from hotstage.sinks.otlp.exporter import EVENT_ATTEMPTS, EVENTS_KEPT, Exporter, resource_of
from hotstage.sinks.otlp.notes import Notes, Outcome

WAIT = 5.0
HIGH = "00-ffffffffffffffffffffffffffffffff-b7ad6b7169203331-01"


class Bench:
    """An exporter whose channels end in lists; `is_well` says whether they take."""

    def __init__(self, clock, identity, **settings):
        self.clock = clock
        self.is_well = True
        self.sent = {"traces": [], "metrics": [], "events": []}
        self.notes, self.outcome = Notes(), Outcome()
        self.exporter = Exporter(
            OtlpConfig(**settings),
            Collector(None, None, None),
            notes=self.notes,
            outcome=self.outcome,
            readings=SimpleNamespace(collect=tuple),
            clock=clock,
            identity=identity,
        )
        self.exporter._channels = {
            name: Channel(name, "http://c", lambda batch, name=name: self._take(name, batch), LastWords())
            for name in self.sent
        }

    def _take(self, name, batch):
        self.sent[name].append(batch)
        return self.is_well

    def after(self, seconds):
        self.clock.advance(seconds)
        self.exporter.step()

    @property
    def names(self):
        return [span.name for batch in self.sent["traces"] for span in batch]

    @property
    def state(self):
        return self.outcome.state()


@pytest.fixture
def bench(clock, identity):
    return lambda **settings: Bench(clock, identity, **settings)


def test_a_request_waits_for_the_window_it_may_have_caused(bench, a_note, a_request, make, clock):
    found = bench(baseline_ratio=0.0)
    found.notes.put(a_note([a_request(traceparent=HIGH)], at_ns=clock.now_ns))
    found.after(WAIT - 1)
    assert found.names == []
    window = make.window("w-1", opened_ns=clock.now_ns)
    found.notes.put(a_note(opened=(window,), open=(window,), at_ns=clock.now_ns))
    found.after(1)
    assert found.names == ["vision_encode", "llm_prefill", "/v1/chat"]
    (request,) = [span for batch in found.sent["traces"] for span in batch if span.name == "/v1/chat"]
    assert request.attributes["hotstage.window.ids"] == ("w-1",)
    assert found.state.exported == 3


def test_what_is_not_sampled_is_counted_by_reason(bench, a_note, a_request, clock):
    found = bench(baseline_ratio=0.5)
    unsampled = a_request(1, traceparent=HIGH[:-2] + "00")
    found.notes.put(a_note([unsampled, a_request(2, traceparent=HIGH)], at_ns=clock.now_ns))
    found.after(WAIT)
    assert found.sent["traces"] == []
    assert found.state.dropped["parent_not_sampled"] == 3
    assert found.state.dropped["not_sampled"] == 3


def test_an_error_goes_out_and_the_rate_bounds_it(bench, a_note, a_request, clock):
    found = bench(baseline_ratio=0.0, spans_per_second=30)
    found.notes.put(a_note([a_request(number, outcome=1) for number in range(12)], at_ns=clock.now_ns))
    found.after(WAIT)
    assert found.state.exported == 30
    assert found.state.dropped["rate_limit"] == 6


def test_spans_that_the_collector_does_not_take_are_counted_and_not_sent_again(
    bench, a_note, a_request, clock
):
    found = bench(baseline_ratio=1.0)
    found.is_well = False
    found.notes.put(a_note([a_request()], at_ns=clock.now_ns))
    found.after(WAIT)
    found.is_well = True
    found.after(WAIT)
    assert (found.state.exported, found.state.dropped["export_failed"]) == (0, 3)
    assert found.state.failures["traces"] == 1
    assert len(found.names) == 3


def test_settled_requests_make_room(bench, a_note, a_request, clock):
    found = bench()
    note = a_note([a_request(number) for number in range(3_000)], at_ns=clock.now_ns)
    assert found.notes.put(note)
    assert not found.notes.put(note)
    found.after(WAIT)
    assert found.notes.put(note)


def test_metrics_go_out_at_once_and_then_once_a_period(bench):
    found = bench(period_seconds=15.0)
    for _ in range(31):
        found.after(1)
    assert len(found.sent["metrics"]) == 3


def test_events_are_tried_again_until_they_are_taken(bench, a_note, make, clock):
    found = bench()
    found.is_well = False
    found.notes.put(a_note(opened=(make.window(),), at_ns=clock.now_ns))
    found.after(1)
    found.is_well = True
    found.after(1)
    found.after(1)
    assert [len(batch) for batch in found.sent["events"]] == [1, 1]
    assert (found.state.failures["events"], found.state.events_dropped) == (1, 0)


def test_events_are_given_up_in_the_end_and_counted(bench, a_note, make, clock):
    found = bench()
    found.is_well = False
    found.notes.put(a_note(opened=(make.window(),), at_ns=clock.now_ns))
    for _ in range(EVENT_ATTEMPTS + 2):
        found.after(1)
    assert len(found.sent["events"]) == EVENT_ATTEMPTS
    assert found.state.events_dropped == 1


def test_events_that_wait_are_bounded(bench, a_note, make, clock):
    found = bench()
    found.is_well = False
    windows = tuple(make.window(f"w-{number}") for number in range(EVENTS_KEPT + 5))
    found.notes.put(a_note(opened=windows, at_ns=clock.now_ns))
    found.after(1)
    assert found.state.events_dropped == 5
    assert len(found.sent["events"][0]) == EVENTS_KEPT


def test_a_windows_end_points_to_a_request_that_it_touched(bench, a_note, a_request, make, clock):
    found = bench()
    window = make.window("w-1", opened_ns=clock.now_ns)
    found.notes.put(a_note([a_request()], opened=(window,), open=(window,), at_ns=clock.now_ns))
    found.after(WAIT)
    closed = make.window("w-1", opened_ns=window.opened_ns, closed_ns=clock.now_ns)
    found.notes.put(a_note(closed=(closed,), at_ns=clock.now_ns))
    found.after(1)
    opened, over = (record.log_record for batch in found.sent["events"] for record in batch)
    assert opened.trace_id == 0
    assert f"{over.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"


def test_the_end_exports_all_that_is_left_without_waiting(bench, a_note, a_request, make, clock):
    found = bench(baseline_ratio=1.0)
    found.notes.put(a_note([a_request()], opened=(make.window(),), at_ns=clock.now_ns))
    found.exporter.finish()
    assert len(found.names) == 3
    assert [len(found.sent[name]) for name in ("events", "metrics")] == [1, 1]


def test_at_the_end_a_collector_that_failed_last_is_not_tried(bench, a_note, a_request, clock):
    found = bench(baseline_ratio=1.0, period_seconds=1.0)
    found.is_well = False
    found.notes.put(a_note([a_request()], at_ns=clock.now_ns))
    found.after(WAIT)
    found.notes.put(a_note([a_request()], at_ns=clock.now_ns))
    found.exporter.finish()
    assert len(found.sent["traces"]) == 1
    assert found.state.dropped["export_failed"] == 6


def test_the_resource_says_who_exports_and_the_environment_has_the_last_word(identity, monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=renamed,deployment.environment.name=test")
    found = resource_of(identity).attributes
    assert (found["service.name"], found["service.instance.id"], found["host.id"]) == (
        "hotstage",
        "host-1",
        "host-1",
    )
    assert (found["host.name"], found["deployment.environment.name"]) == ("renamed", "test")


def test_only_what_the_collector_takes_has_a_channel():
    collector = Collector("http://c/v1/traces", None, "http://c/v1/logs", {"x": "y"})
    assert set(channels(OtlpConfig(), collector)) == {"traces", "events"}


def test_what_a_collector_rejects_of_a_batch_that_it_takes_is_counted_by_its_reason(
    bench, a_note, a_request, make, clock
):
    found = bench(baseline_ratio=1.0)
    for name in found.sent:
        found.exporter._channels[name] = Channel(
            name, "http://c", lambda batch: True, LastWords(), lambda: Rejection(2, "too old")
        )
    windows = tuple(make.window(f"w-{number}") for number in range(3))
    found.notes.put(a_note([a_request()], opened=windows, at_ns=clock.now_ns))
    found.after(WAIT)
    assert (found.state.exported, found.state.dropped["rejected"]) == (1, 2)
    assert found.state.events_dropped == 2
    assert found.state.failures["metrics"] == 1
