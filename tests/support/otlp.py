# SPDX-License-Identifier: Apache-2.0
"""A real OTLP/HTTP receiver on loopback: protobuf in, decoded by OpenTelemetry's own schema, kept for asking.

It can refuse, or be slow: `answer` is the status it gives, `delay_seconds` how long it takes about it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_TYPES = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


@dataclass(frozen=True)
class Span:
    """One span as it came; ids in hex, `parent_id` empty for a root, times in wall-clock ns."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_ns: int
    end_ns: int
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass(frozen=True)
class LogEvent:
    """One log record."""

    name: str
    at_ns: int
    severity: int
    body: str
    trace_id: str
    attributes: dict[str, Any]


@dataclass
class Received:
    """What came, and how the next will be answered."""

    port: int = 0
    answer: int = 200
    delay_seconds: float = 0.0
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    """(path, headers, decoded message), in order of arrival, the refused ones included."""
    taken: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[Span]:
        return [
            _span(span, attributes(part.resource.attributes))
            for message in self._of("/v1/traces")
            for part in message.resource_spans
            for scope in part.scope_spans
            for span in scope.spans
        ]

    @property
    def events(self) -> list[LogEvent]:
        return [
            LogEvent(
                record.event_name,
                record.time_unix_nano,
                record.severity_number,
                record.body.string_value,
                record.trace_id.hex(),
                attributes(record.attributes),
            )
            for message in self._of("/v1/logs")
            for part in message.resource_logs
            for scope in part.scope_logs
            for record in scope.log_records
        ]

    def metrics(self) -> list[dict[str, Any]]:
        """Each export as {metric's name: protobuf Metric}, oldest first."""
        return [
            {
                metric.name: metric
                for part in message.resource_metrics
                for scope in part.scope_metrics
                for metric in scope.metrics
            }
            for message in self._of("/v1/metrics")
        ]

    def _of(self, path: str) -> list[Any]:
        return [message for at, _, message in list(self.requests) if at == path]


@contextmanager
def receiver() -> Iterator[Received]:
    """A running receiver; it is gone at the end."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/x-protobuf"
            headers = {name.lower(): value for name, value in self.headers.items()}
            received.requests.append((self.path, headers, _TYPES[self.path].FromString(body)))
            if received.delay_seconds:
                time.sleep(received.delay_seconds)
            self.send_response(received.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()
            received.taken += received.answer < 300

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test says what came."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    received.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def attributes(pairs: Any) -> dict[str, Any]:
    """OTLP key-value pairs as plain values."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        status=span.status.code,
        attributes=attributes(span.attributes),
        resource=resource,
    )
