# SPDX-License-Identifier: Apache-2.0
"""The channels of a collector's signals: OpenTelemetry's exporters, our session, what an answer rejects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

from hotstage.config.settings import OtlpConfig
from hotstage.sinks.otlp.channel import NOTHING_REJECTED, Channel, Rejection, hush
from hotstage.sinks.otlp.collector import Collector, shown
from hotstage.sinks.otlp.events import EventExporter
from hotstage.sinks.otlp.session import CollectorSession

_REPLIES: dict[str, tuple[type[Any], str]] = {
    "traces": (ExportTraceServiceResponse, "rejected_spans"),
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points"),
    "events": (ExportLogsServiceResponse, "rejected_log_records"),
}


def channels(config: OtlpConfig, collector: Collector) -> dict[str, Channel]:
    """One a signal that is on, each with a session of its own."""
    words = hush()
    found: dict[str, Channel] = {}
    for signal in collector.signals:
        url, session = str(getattr(collector, signal)), CollectorSession()
        export = _export_of(signal, url, config.timeout_seconds, dict(collector.headers), session)
        found[signal] = Channel(signal, shown(url), export, words, _rejection_of(signal, session))
    return found


def _export_of(
    signal: str, url: str, seconds: float, headers: dict[str, str], session: CollectorSession
) -> Callable[[Any], bool]:
    if signal == "traces":
        spans = OTLPSpanExporter(url, headers=headers, timeout=seconds, session=session)
        return lambda batch: spans.export(batch) is SpanExportResult.SUCCESS
    if signal == "metrics":
        points = OTLPMetricExporter(url, headers=headers, timeout=seconds, session=session)
        return lambda data: points.export(data) is MetricExportResult.SUCCESS
    return EventExporter(url, headers, seconds, session).export


def _rejection_of(signal: str, session: CollectorSession) -> Callable[[], Rejection]:
    return lambda: rejection(signal, session.answer)


def rejection(signal: str, answer: bytes) -> Rejection:
    """What the body of a 2xx answer says was not wanted. One that is no OTLP says nothing."""
    reply, count = _REPLIES[signal]
    try:
        partial = reply.FromString(answer).partial_success
    except DecodeError:
        return NOTHING_REJECTED
    return Rejection(max(0, getattr(partial, count)), partial.error_message)
