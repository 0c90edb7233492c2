# SPDX-License-Identifier: Apache-2.0
"""Windows that open and close → OTLP log events. The one module that touches OpenTelemetry's `_logs`: the
underscore says that they may still change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

from hotstage.detect.finding import Severity
from hotstage.sinks.otlp import attributes as names
from hotstage.sinks.otlp.session import CollectorSession
from hotstage.windows.window import AnomalyWindow

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.util.types import AnyValue

_SEVERITIES = {
    Severity.info: SeverityNumber.INFO,
    Severity.warning: SeverityNumber.WARN,
    Severity.critical: SeverityNumber.ERROR,
}
_PLACES = {
    "stage": names.STAGE,
    "modality": names.MODALITY,
    "endpoint": names.ENDPOINT,
    "instance": names.INSTANCE,
    "gpu_uuid": names.HW_ID,
    "pid": names.PROCESS_PID,
}


EventRecord = ReadableLogRecord
"""What `EventMaker` makes and `EventExporter` takes; others need not know what it is."""


class EventMaker:
    """Makes log records of one resource."""

    def __init__(self, resource: Resource, version: str) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("hotstage", version, names.SCHEMA_URL)

    def opened(self, window: AnomalyWindow, wall_offset_ns: int, now_ns: int) -> EventRecord:
        """It has no trace: what it touched is still in flight, or not judged yet. `now_ns` is wall time."""
        at_ns = window.opened_ns + wall_offset_ns
        severity = _SEVERITIES[window.severity]
        return self._record(names.WINDOW_OPENED, window, at_ns, now_ns, severity, None, {})

    def closed(
        self, window: AnomalyWindow, wall_offset_ns: int, now_ns: int, touched: SpanContext | None
    ) -> EventRecord:
        """`touched` is the last exported request that the window touched, if there was one."""
        closed_ns = window.updated_ns if window.closed_ns is None else window.closed_ns
        lasted = {names.WINDOW_SECONDS: (closed_ns - window.opened_ns) / 1e9}
        at_ns = closed_ns + wall_offset_ns
        return self._record(names.WINDOW_CLOSED, window, at_ns, now_ns, SeverityNumber.INFO, touched, lasted)

    def _record(
        self,
        name: str,
        window: AnomalyWindow,
        at_ns: int,
        now_ns: int,
        severity: SeverityNumber,
        touched: SpanContext | None,
        more: Mapping[str, AnyValue],
    ) -> EventRecord:
        context = Context() if touched is None else set_span_in_context(NonRecordingSpan(touched), Context())
        record = LogRecord(
            timestamp=at_ns,
            observed_timestamp=now_ns,
            context=context,
            severity_number=severity,
            severity_text=window.severity.name,
            body=window.cause.summary,
            attributes={**_attributes(window), **more},
            event_name=name,
        )
        return ReadableLogRecord(record, self._resource, self._scope)


class EventExporter:
    """`export(records)` → whether the collector took them."""

    def __init__(
        self, url: str, headers: Mapping[str, str], timeout_seconds: float, session: CollectorSession
    ) -> None:
        self._exporter = OTLPLogExporter(url, headers=headers, timeout=timeout_seconds, session=session)

    def export(self, records: Sequence[EventRecord]) -> bool:
        return self._exporter.export(records) is LogRecordExportResult.SUCCESS


def _attributes(window: AnomalyWindow) -> dict[str, AnyValue]:
    places = {_PLACES[part]: value for part, value in window.entity.labels().items() if part in _PLACES}
    return {
        names.WINDOW_ID: window.id,
        names.WINDOW_KIND: window.kind,
        names.WINDOW_SEVERITY: window.severity.name,
        names.WINDOW_SCORE: window.score,
        names.CAUSE_KIND: window.cause.kind,
        names.CAUSE_CONFIDENCE: window.cause.confidence,
        **places,
    }
