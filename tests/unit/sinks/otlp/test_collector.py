# SPDX-License-Identifier: Apache-2.0
"""Where exports go: configuration first, then the standard variables; secrets stay out of messages."""

from __future__ import annotations

import pytest

from hotstage.config.settings import OtlpConfig
from hotstage.errors import ConfigError
from hotstage.sinks.otlp.collector import Collector, read_headers, shown

URL = "http://127.0.0.1:4318"
BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}


def test_nothing_is_exported_unless_a_collector_is_named():
    assert Collector.of(OtlpConfig(), {}) is None


@pytest.mark.parametrize(
    ("config", "environment"),
    [(OtlpConfig(endpoint=URL), {}), (OtlpConfig(endpoint=f"{URL}/"), {}), (OtlpConfig(), BASE)],
)
def test_a_base_address_serves_all_signals(config, environment):
    found = Collector.of(config, environment)
    assert (found.traces, found.metrics, found.events) == (
        f"{URL}/v1/traces",
        f"{URL}/v1/metrics",
        f"{URL}/v1/logs",
    )
    assert found.signals == ("traces", "metrics", "events")


def test_the_configuration_has_precedence_over_the_environment():
    found = Collector.of(OtlpConfig(endpoint="https://c.example/otlp"), BASE)
    assert found.traces == "https://c.example/otlp/v1/traces"


def test_a_signals_own_variable_is_taken_as_it_is():
    own = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/spans"}
    assert Collector.of(OtlpConfig(), own).signals == ("traces",)
    assert Collector.of(OtlpConfig(), own | BASE).traces == "http://127.0.0.1:9/spans"
    assert Collector.of(OtlpConfig(), own | BASE).metrics == f"{URL}/v1/metrics"


def test_signals_can_be_switched_off_and_all_of_them_by_the_standard_variable():
    assert Collector.of(OtlpConfig(traces=False, events=False), BASE).signals == ("metrics",)
    assert Collector.of(OtlpConfig(traces=False, events=False, metrics=False), BASE) is None
    assert Collector.of(OtlpConfig(endpoint=URL), {"OTEL_SDK_DISABLED": "true"}) is None


@pytest.mark.parametrize(
    "bad",
    [
        "127.0.0.1:4318",
        "grpc://127.0.0.1:4317",
        "http://",
        "http://[::1",
        "http://x:99999999",
        "http://a b",
        "http://a\x1bb",
    ],
)
def test_an_address_that_is_no_url_is_refused_by_its_key(bad):
    with pytest.raises(ConfigError, match=r"otlp\.endpoint is no http"):
        Collector.of(OtlpConfig(endpoint=bad), {})
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"):
        Collector.of(OtlpConfig(), {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": bad})


def test_a_password_in_the_address_is_refused_without_being_told():
    with pytest.raises(ConfigError) as refused:
        Collector.of(OtlpConfig(endpoint="http://me:hunter2@127.0.0.1:4318"), {})
    assert "hunter2" not in refused.value.message
    assert "headers_file" in refused.value.remedy


def test_headers_come_from_a_file_and_are_not_shown(tmp_path):
    file = tmp_path / "headers"
    file.write_text("# a token\n\nAuthorization = Bearer abc=def\nx-tenant=blue\n")
    assert read_headers(file) == {"authorization": "Bearer abc=def", "x-tenant": "blue"}
    assert "abc" not in repr(Collector.of(OtlpConfig(endpoint=URL, headers_file=str(file)), {}))


@pytest.mark.parametrize("line", ["Bearer secret", "a b=secret", "=secret", "x=sec\x07ret"])
def test_a_line_that_is_no_header_is_named_by_its_number_only(tmp_path, line):
    file = tmp_path / "headers"
    file.write_text(f"x-tenant=blue\n{line}\n")
    with pytest.raises(ConfigError, match="line 2 is no header") as refused:
        read_headers(file)
    assert "sec" not in refused.value.message.replace("headers_file", "")


def test_a_headers_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere cannot be read: No such file"):
        read_headers(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe=1")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_headers(tmp_path / "binary")


@pytest.mark.parametrize("base", [f"{URL}?api-key=k1", f"{URL}/?api-key=k1", f"{URL}?api-key=k1#part"])
def test_a_query_stays_behind_the_path_that_is_appended_and_is_not_shown(base):
    for found in (
        Collector.of(OtlpConfig(endpoint=base), {}),
        Collector.of(OtlpConfig(), {"OTEL_EXPORTER_OTLP_ENDPOINT": base}),
    ):
        assert found.traces == f"{URL}/v1/traces?api-key=k1"
        assert shown(found.traces) == f"{URL}/v1/traces?…"


@pytest.mark.parametrize("value", ["naïve", "日本", "a\u200bb"])
def test_a_header_that_cannot_be_sent_is_refused_at_the_start(tmp_path, value):
    file = tmp_path / "headers"
    file.write_text(f"x-tenant={value}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1 is no header") as refused:
        Collector.of(OtlpConfig(endpoint=URL, headers_file=str(file)), {})
    assert value not in refused.value.message
