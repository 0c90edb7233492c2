# SPDX-License-Identifier: Apache-2.0
"""Windows as log events, through OpenTelemetry's own encoder."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk.resources import Resource

from hotstage.detect.finding import Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.sinks.otlp.events import EventMaker
from hotstage.sinks.otlp.spans import context_of

OFFSET = 1_700_000_000_000_000_000
MAKER = EventMaker(Resource({"service.name": "hotstage"}), "0.1.0")


def encoded(record):
    (part,) = encode_logs([record]).resource_logs
    (scope,) = part.scope_logs
    (found,) = scope.log_records
    return found


def attributes(record):
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in encoded(record).attributes
    }


def test_an_opened_window_is_an_event_at_its_beginning(make):
    record = MAKER.opened(make.window("w-1"), OFFSET, 9)
    found = encoded(record)
    assert found.event_name == "hotstage.anomaly.window.opened"
    assert (found.time_unix_nano, found.observed_time_unix_nano) == (5_000 + OFFSET, 9)
    assert (found.severity_number, found.severity_text) == (13, "warning")
    assert found.body.string_value == "vision_encode is slow"
    assert found.trace_id == b""
    assert attributes(record) == {
        "hotstage.window.id": "w-1",
        "hotstage.window.kind": "stage_latency",
        "hotstage.window.severity": "warning",
        "hotstage.window.score": 3.5,
        "hotstage.cause.kind": "stage_latency",
        "hotstage.cause.confidence": 0.9,
        "hotstage.stage": "vision_encode",
        "hotstage.modality": "image",
    }


def test_a_closed_window_says_how_long_it_was_and_points_to_a_request_it_touched(make):
    touched = context_of(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    gpu = Entity(EntityKind.gpu, gpu_uuid="GPU-a", pci_bus_id="0000:01:00.0")
    window = make.window("w-1", closed_ns=5_000 + 2_500_000_000, entity=gpu, severity=Severity.critical)
    record = MAKER.closed(window, OFFSET, 9, touched)
    found = encoded(record)
    assert found.event_name == "hotstage.anomaly.window.closed"
    assert found.time_unix_nano == window.closed_ns + OFFSET
    assert (found.severity_number, found.severity_text) == (9, "critical")
    assert found.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert attributes(record)["hotstage.window.seconds"] == 2.5
    assert attributes(record)["hw.id"] == "GPU-a"


def test_a_critical_window_opens_as_an_error(make):
    record = MAKER.opened(make.window(severity=Severity.critical), OFFSET, 9)
    assert encoded(record).severity_number == 17
