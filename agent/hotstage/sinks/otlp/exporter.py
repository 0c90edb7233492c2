# SPDX-License-Identifier: Apache-2.0
"""The exporter's thread: notes → spans and events, readings → metrics; drops are counted.

Everything here may be slow; nothing here is waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan

from hotstage.clock import Clock
from hotstage.config.settings import OtlpConfig
from hotstage.sinks.otlp import attributes as names
from hotstage.sinks.otlp.channels import channels
from hotstage.sinks.otlp.collector import Collector
from hotstage.sinks.otlp.events import EventMaker, EventRecord
from hotstage.sinks.otlp.notes import EXPORT_FAILED, REJECTED, Note, Notes, Outcome
from hotstage.sinks.otlp.points import metrics_data
from hotstage.sinks.otlp.requests import FinishedRequest, has_failed, key_of
from hotstage.sinks.otlp.sampling import DECISION_NS, Sampler, Watch
from hotstage.sinks.otlp.slowness import Slowness
from hotstage.sinks.otlp.spans import SpanMaker, context_of
from hotstage.sinks.readings import Readings
from hotstage.stages.labels import OwnNames, no_names
from hotstage.stages.waterfall import RequestTimes

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from hotstage.sinks.otlp.sink import Identity

SPANS_A_BATCH = 512
EVENTS_KEPT = 256
TOUCHED_KEPT = 256
EVENT_ATTEMPTS = 10
"""Windows are few and matter: a collector that is restarted gets them still."""


class Exporter:
    """`step` about once a second, `finish` once."""

    def __init__(
        self,
        config: OtlpConfig,
        collector: Collector,
        *,
        notes: Notes,
        outcome: Outcome,
        readings: Readings,
        clock: Clock,
        identity: Identity,
        own_names: Callable[[], OwnNames] = no_names,
    ) -> None:
        self._own_names = own_names
        self._period_ns = round(config.period_seconds * 1e9)
        self._notes = notes
        self._outcome = outcome
        self._readings = readings
        self._clock = clock
        self._identity = identity
        self._channels = channels(config, collector)
        self._resource = resource_of(identity)
        self._span_maker = SpanMaker(self._resource, identity.version)
        self._event_maker = EventMaker(self._resource, identity.version)
        self._watch = Watch()
        now_ns = clock.monotonic_ns()
        self._sampler = Sampler(config.baseline_ratio, config.spans_per_second, now_ns)
        self._slowness = Slowness()
        self._next_metrics_ns = now_ns
        self._waiting: deque[Note] = deque()
        self._events: deque[EventRecord] = deque()
        self._event_attempts = 0
        self._touched: dict[str, SpanContext] = {}

    def step(self) -> None:
        """What has come, what is due."""
        now_ns = self._clock.monotonic_ns()
        self._listen()
        self._export_requests(now_ns - DECISION_NS)
        self._export_events()
        if now_ns >= self._next_metrics_ns:
            self._next_metrics_ns = now_ns + self._period_ns
            self._export_metrics()

    def finish(self) -> None:
        """All that is left, on the channels that worked last."""
        self._channels = {name: each for name, each in self._channels.items() if not each.is_failing}
        self._listen()
        self._export_requests(self._clock.monotonic_ns())
        self._export_events()
        self._export_metrics()

    def _listen(self) -> None:
        for note in self._notes.take():
            self._watch.see((*note.open, *note.closed), note.at_ns)
            self._note_events(note)
            self._waiting.append(note)

    def _export_requests(self, until_ns: int) -> None:
        """Requests of the notes up to then: windows that were to open on them have."""
        while self._waiting and self._waiting[0].at_ns <= until_ns:
            spans: list[ReadableSpan] = []
            requests = 0
            try:
                while self._waiting and self._waiting[0].at_ns <= until_ns and len(spans) < SPANS_A_BATCH:
                    note = self._waiting.popleft()
                    requests += len(note.finished)
                    spans += self._spans(note)
                if spans:
                    self._send_spans(spans)
            finally:
                self._notes.settle(requests)

    def _spans(self, note: Note) -> list[ReadableSpan]:
        made: list[ReadableSpan] = []
        sizes = 1 + np.count_nonzero(note.finished["stages"]["count"], axis=1)
        is_slow = self._slowness.judge(note.finished)
        read = _Reader(note, self._own_names)
        for at, (size, was_slow) in enumerate(zip(sizes.tolist(), is_slow, strict=True)):
            made += self._spans_of(at, size, read, is_slow=was_slow)
        return made

    def _spans_of(self, at: int, size: int, read: _Reader, *, is_slow: bool) -> list[ReadableSpan]:
        """Of one request; empty, and counted, when it is not to be exported."""
        note, row = read.note, read.note.finished[at]
        parent = context_of(row["traceparent"])
        trace_id = int.from_bytes(key_of(row)) if parent is None else parent.trace_id
        request = read.request(at) if len(self._watch) else None
        window_ids = () if request is None else self._watch.touching(request)
        verdict = self._sampler.judge(
            trace_id=trace_id,
            is_parent_sampled=None if parent is None else parent.trace_flags.sampled,
            has_failed=has_failed(row),
            is_touched=bool(window_ids),
            is_slow=is_slow,
            spans=size,
            now_ns=note.at_ns,
        )
        if not verdict.is_exported:
            self._outcome.dropped(verdict.reason, size)
            return []
        spans = self._span_maker.make(
            request or read.request(at),
            parent,
            trace_id=trace_id,
            wall_offset_ns=note.wall_offset_ns,
            sampled_for=verdict.reason,
            window_ids=window_ids,
        )
        self._remember(window_ids, spans[-1])
        return spans

    def _remember(self, window_ids: tuple[str, ...], request: ReadableSpan) -> None:
        """For the event of the windows' end."""
        context = request.get_span_context()
        if context is None:
            return
        for window_id in window_ids:
            self._touched.pop(window_id, None)
            self._touched[window_id] = context
        while len(self._touched) > TOUCHED_KEPT:
            del self._touched[next(iter(self._touched))]

    def _send_spans(self, spans: list[ReadableSpan]) -> None:
        channel = self._channels.get("traces")
        if channel is None or not channel.send(spans):
            self._outcome.dropped(EXPORT_FAILED, len(spans))
            self._outcome.failed("traces")
            return
        rejected = min(channel.rejected, len(spans))
        self._outcome.exported(len(spans) - rejected)
        self._outcome.dropped(REJECTED, rejected)

    def _note_events(self, note: Note) -> None:
        if "events" not in self._channels:
            return
        now_ns, offset_ns = self._clock.wall_ns(), note.wall_offset_ns
        self._events += (self._event_maker.opened(window, offset_ns, now_ns) for window in note.opened)
        self._events += (
            self._event_maker.closed(window, offset_ns, now_ns, self._touched.pop(window.id, None))
            for window in note.closed
        )
        while len(self._events) > EVENTS_KEPT:
            self._events.popleft()
            self._outcome.events_dropped(1)

    def _export_events(self) -> None:
        if "events" not in self._channels or not self._events:
            return
        channel = self._channels["events"]
        if channel.send(tuple(self._events)):
            self._outcome.events_dropped(min(channel.rejected, len(self._events)))
            self._events.clear()
            self._event_attempts = 0
            return
        self._outcome.failed("events")
        self._event_attempts += 1
        if self._event_attempts >= EVENT_ATTEMPTS:
            self._outcome.events_dropped(len(self._events))
            self._events.clear()
            self._event_attempts = 0

    def _export_metrics(self) -> None:
        if "metrics" not in self._channels:
            return
        data = metrics_data(
            self._readings.collect(),
            self._resource,
            self._identity.version,
            started_ns=self._identity.started_ns,
            now_ns=self._clock.wall_ns(),
        )
        channel = self._channels["metrics"]
        if not channel.send(data) or channel.rejected:
            self._outcome.failed("metrics")


class _Reader:
    """Requests of one note; what is worked out for all of them at once is worked out when one is wanted."""

    def __init__(self, note: Note, own_names: Callable[[], OwnNames]) -> None:
        self.note = note
        self._own_names = own_names
        self._times: RequestTimes | None = None
        self._names: OwnNames = {}

    def request(self, at: int) -> FinishedRequest:
        if self._times is None:
            self._times = RequestTimes.of(self.note.finished)
            self._names = self._own_names() if self.note.finished["own_stages"].any() else {}
        row = self.note.finished[at]
        return FinishedRequest.of(row, self.note.gpu_of_pid, self._names, (self._times, at))


def resource_of(identity: Identity) -> Resource:
    """Who exports; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME have the last word."""
    ours = {
        names.SERVICE_NAME: "hotstage",
        names.SERVICE_VERSION: identity.version,
        names.SERVICE_INSTANCE_ID: identity.host_id,
        names.HOST_ID: identity.host_id,
        names.HOST_NAME: identity.host_name,
    }
    return Resource.create(ours, names.SCHEMA_URL).merge(OTELResourceDetector().detect())
