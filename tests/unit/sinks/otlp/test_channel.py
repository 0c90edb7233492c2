# SPDX-License-Identifier: Apache-2.0
"""What is said of a collector: a change, once; never what OpenTelemetry says by itself."""

from __future__ import annotations

import logging

from hotstage.sinks.otlp.channel import Channel, hush


class Collector:
    """Takes batches while `is_well`; complains as the exporters do."""

    def __init__(self):
        self.is_well = True

    def __call__(self, batch):
        if not self.is_well:
            logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error(
                "Failed to export %s batch code: %s", "spans", 500
            )
        return self.is_well


def test_a_failure_and_its_end_are_told_once_with_the_exporters_reason(caplog):
    caplog.set_level(logging.INFO)
    collector = Collector()
    channel = Channel("traces", "http://c/v1/traces", collector, hush())
    assert channel.send([1])
    collector.is_well = False
    assert [channel.send([1]) for _ in range(3)] == [False] * 3
    assert channel.is_failing
    collector.is_well = True
    assert [channel.send([1]) for _ in range(3)] == [True] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "the OTLP collector does not take traces: Failed to export spans batch code: 500",
        "the OTLP collector takes traces again",
    ]


def test_an_exporter_that_raises_has_failed(caplog):
    def broken(batch):
        raise ValueError("no such field")

    channel = Channel("metrics", "http://c/v1/metrics", broken, hush())
    assert not channel.send([1])
    assert "does not take metrics: ValueError: no such field" in caplog.text


def test_a_header_that_cannot_be_parsed_is_not_told(caplog, monkeypatch):
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    words = hush()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "secret without equals sign")
    OTLPSpanExporter("http://127.0.0.1:9/v1/traces")
    assert caplog.text == ""
    assert words.text == ""
