# SPDX-License-Identifier: Apache-2.0
"""Alerts on what leaves the agent: store, webhooks, page, metrics, traces, configuration. All make "
"tickets."""

from __future__ import annotations

from generate.alert import Alert, Fires, Input, Scene, given
from generate.overview import UID as OVERVIEW
from generate.promql import RULE
from hotstage.sinks import metrics, self_metrics
from hotstage.sinks.metric import Metric

_DEAD = 'result="dead"'


def _grew(counter: Metric, *matchers: str) -> str:
    """In the last 15 minutes, the first time included, which `increase` alone would miss."""
    selector = RULE.select(counter, *matchers)
    grown = RULE.increase(counter, *matchers, range="15m")
    return f"{grown} > 0 or ({selector} unless {selector} offset 15m) > 0"


_SPANS_LOST = RULE.rate(self_metrics.OTLP_DROPPED, 'reason=~"queue_full|export_failed|rejected"')


def _spans(values: str, reason: str) -> Input:
    return given("hotstage_otlp_spans_dropped_total", values, reason=reason)


def _delivered(values: str, result: str) -> Input:
    return given("hotstage_webhook_deliveries_total", values, destination="on-call", result=result)


OUTPUT = (
    Alert(
        "HotstageStoreStuck",
        f"{RULE.select(self_metrics.STORE_PENDING)} > 0",
        "5m",
        "warning",
        "{{ $value | humanize }} changes on {{ $labels.instance }} wait for the disk",
        "Windows, breakers and webhooks are held back until it takes them. Free space on the state "
        "directory; its log gives the disk's error.",
        OVERVIEW,
        Fires((given("hotstage_store_pending_changes", "3x40"),), "6m", {}, "3"),
        Scene((given("hotstage_store_pending_changes", "3x8 0 3x8 0x20"),), "6m"),
    ),
    Alert(
        "HotstageStoreLost",
        _grew(self_metrics.STORE_LOST),
        "30s",
        "warning",
        "The agent on {{ $labels.instance }} has dropped changes that the disk refused",
        "History and webhooks have a gap. Free space on the state directory, and check the disk.",
        OVERVIEW,
        Fires((given("hotstage_store_lost_changes_total", "0x40 4x40"),), "12m", {}),
        Scene((given("hotstage_store_lost_changes_total", "4x120"),), "20m"),
    ),
    Alert(
        "HotstageOutboxNotDrained",
        f"{RULE.select(self_metrics.OUTBOX_AGE)} > 60",
        "1m",
        "warning",
        "No notifier takes events from {{ $labels.instance }}",
        "Nobody is told of windows and breakers there. `systemctl status hotstage-notify`; it must reach "
        "the agent's socket.",
        OVERVIEW,
        Fires((given("hotstage_webhook_outbox_oldest_age_seconds", "0+15x40"),), "8m", {}),
        Scene((given("hotstage_webhook_outbox_oldest_age_seconds", "0+15x4 0x40"),), "8m"),
    ),
    Alert(
        "HotstageWebhookBacklog",
        f"{RULE.select(self_metrics.WEBHOOK_AGE)} > 300",
        "1m",
        "warning",
        "Webhooks to {{ $labels.destination }} wait on {{ $labels.instance }}",
        "The oldest has waited {{ $value | humanizeDuration }}. `hotstage webhook test` shows what the "
        "destination answers.",
        OVERVIEW,
        Fires(
            (given("hotstage_webhook_oldest_age_seconds", "600x20", destination="on-call"),),
            "2m",
            {"destination": "on-call"},
            "10m 0s",
        ),
        Scene((given("hotstage_webhook_oldest_age_seconds", "120x20", destination="on-call"),), "2m"),
    ),
    Alert(
        "HotstageWebhookDead",
        _grew(self_metrics.WEBHOOK_DELIVERIES, _DEAD),
        "30s",
        "warning",
        "Webhooks to {{ $labels.destination }} from {{ $labels.instance }} were given up",
        "They were refused, or tried for too long. `hotstage webhook replay` sends them again once the "
        "destination is well.",
        OVERVIEW,
        Fires((_delivered("0x40 1x20", "dead"),), "12m", {"destination": "on-call", "result": "dead"}),
        Scene((_delivered("2x120", "dead"), _delivered("0+1x120", "failed")), "20m"),
    ),
    Alert(
        "HotstageWebhookDisabled",
        f"{RULE.select(self_metrics.WEBHOOK_DISABLED)} == 1",
        "1m",
        "warning",
        "{{ $labels.destination }} has told {{ $labels.instance }} to stop",
        "It answered 410 Gone, so nothing is sent there any more. Correct its URL and restart the notifier.",
        OVERVIEW,
        Fires(
            (given("hotstage_webhook_disabled", "1x20", destination="on-call"),),
            "2m",
            {"destination": "on-call"},
        ),
        Scene((given("hotstage_webhook_disabled", "0x20", destination="on-call"),), "2m"),
    ),
    Alert(
        "HotstageBreakerStale",
        f"{RULE.select(metrics.BREAKER_STALE)} == 1",
        "5m",
        "warning",
        "{{ $labels.breaker }} of {{ $labels.instance }} has no data to judge by",
        "It keeps its state; callers fall back to its policy, mostly to admit. Look at Sources and Losses.",
        OVERVIEW,
        Fires(
            (given("hotstage_breaker_stale", "1x40", breaker="instance:i-0"),),
            "6m",
            {"breaker": "instance:i-0"},
        ),
        Scene((given("hotstage_breaker_stale", "1x8 0x40", breaker="instance:i-0"),), "6m"),
    ),
    Alert(
        "HotstagePageFull",
        _grew(self_metrics.PAGE_DROPPED),
        "30s",
        "warning",
        "A breaker of {{ $labels.instance }} found no place on the shared page",
        "Callers that read the page admit, whatever that breaker says. Narrow `[breakers] scopes`.",
        OVERVIEW,
        Fires((given("hotstage_page_dropped_total", "0x40 1x40"),), "12m", {}),
        Scene((given("hotstage_page_dropped_total", "1x120"),), "20m"),
    ),
    Alert(
        "HotstageSinkErrors",
        _grew(self_metrics.SINK_ERRORS),
        "1m",
        "warning",
        "The output {{ $labels.sink }} of {{ $labels.instance }} fails",
        "The others go on. The agent's log has the error.",
        OVERVIEW,
        Fires((given("hotstage_sink_errors_total", "0+1x60", sink="otlp"),), "12m", {"sink": "otlp"}),
        Scene((given("hotstage_sink_errors_total", "0x60", sink="otlp"),), "12m"),
    ),
    Alert(
        "HotstageSeriesDropped",
        _grew(self_metrics.SERIES_DROPPED),
        "1m",
        "warning",
        "{{ $labels.metric }} on {{ $labels.instance }} has more label values than it may",
        "What is beyond is counted under `other`. Mostly a server names its endpoints by request: give "
        "route templates.",
        OVERVIEW,
        Fires(
            (given("hotstage_series_dropped_total", "_x40 5x40", metric="hotstage_calls_total"),),
            "12m",
            {"metric": "hotstage_calls_total"},
        ),
        Scene((given("hotstage_series_dropped_total", "5x120", metric="hotstage_calls_total"),), "20m"),
    ),
    Alert(
        "HotstageOtlpFailing",
        f"{RULE.rate(self_metrics.OTLP_FAILURES)} > 0",
        "5m",
        "warning",
        "The OTLP collector does not take the {{ $labels.signal }} of {{ $labels.instance }}",
        "What is scraped and sent by webhook goes on. The agent's log has the collector's answer; check "
        "`[otlp]`.",
        OVERVIEW,
        Fires(
            (given("hotstage_otlp_export_failures_total", "0+1x60", signal="traces"),),
            "12m",
            {"signal": "traces"},
        ),
        Scene((given("hotstage_otlp_export_failures_total", "7x60", signal="traces"),), "12m"),
    ),
    Alert(
        "HotstageSpansDropped",
        f"{_SPANS_LOST} > 0",
        "5m",
        "warning",
        "Spans of {{ $labels.instance }} are lost: {{ $labels.reason }}",
        "Traces have gaps beyond what sampling leaves out. Check the collector; raise "
        "`[otlp] spans_per_second` only if it is well.",
        OVERVIEW,
        Fires((_spans("0+5x60", "queue_full"),), "12m", {"reason": "queue_full"}),
        Scene((_spans("0+50x60", "not_sampled"), _spans("7x60", "export_failed")), "12m"),
    ),
    Alert(
        "HotstageConfigReloadFailed",
        f"{RULE.select(self_metrics.RELOAD_OK)} == 0",
        "1m",
        "warning",
        "The agent on {{ $labels.instance }} has refused its new configuration",
        "It goes on with the one before. `hotstage config check` names the key and the remedy.",
        OVERVIEW,
        Fires((given("hotstage_config_last_reload_successful", "1x2 0x20"),), "3m", {}),
        Scene((given("hotstage_config_last_reload_successful", "1x20"),), "3m"),
    ),
)
