# SPDX-License-Identifier: Apache-2.0
"""What the agent says of itself → metrics. Values only: whoever has the facts hands them in."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hotstage.probes.custom.watch import CustomReading
from hotstage.probes.driver.report import DriverReport
from hotstage.sinks import self_metrics
from hotstage.sinks.kernel_metrics import KERNEL_LAUNCHES
from hotstage.sinks.memory import conflict_children
from hotstage.sinks.metric import Metric
from hotstage.sinks.now import Children
from hotstage.store.deliveries import NotifierReport
from hotstage.store.journal import JournalState
from hotstage.store.outbox import OutboxState

_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class OtlpState:
    """Since the start: spans that the collector took, spans dropped by reason, events dropped, exports that
    failed by signal.
    """

    exported: int
    dropped: Mapping[str, int]
    events_dropped: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SelfFacts:
    """What the agent says of itself; asked for at each scrape. None = unknown, and then absent."""

    version: str
    loader: str
    rung: str
    fast_ticks: int
    slow_ticks: int
    late_ticks: int
    fast_tick_p99_seconds: float | None
    slow_tick_p99_seconds: float | None
    attached_symbols: int
    missed_symbols: int
    map_bytes: int
    page_dropped: int
    is_ticking: bool
    """Whether a tick has come to its end lately."""
    losses: Mapping[str, int] = field(default_factory=dict)
    launches: Mapping[str, int] = field(default_factory=dict)
    """Launch-class calls by what tells their stage."""
    sink_errors: Mapping[str, int] = field(default_factory=dict)
    journal: JournalState | None = None
    outbox: OutboxState | None = None
    notifier: NotifierReport | None = None
    is_reload_refused: bool = False
    otlp: OtlpState | None = None
    threadless: int = 0
    """Connections that were closed because no thread could be had."""
    driver: DriverReport | None = None
    """What tracepoints of GPU drivers have told."""
    conflicts: Mapping[str, int] = field(default_factory=dict)
    """Large allocations by what became of them in the kernel."""
    custom: tuple[CustomReading, ...] = ()
    """What the operator's own programs have counted."""
    log_records: Mapping[str, int] = field(default_factory=dict)
    """Those that systemd's journal did not take: refused (written to standard error), dropped."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """Processes by how much is recorded of them."""
    kernels: tuple[tuple[str, int], ...] = ()
    """Kernels launched most of late, the rest last: launches ever."""
    probe_cost_ratio: float | None = None
    """The dearest process's."""


def self_children(facts: SelfFacts) -> dict[Metric, Children]:
    """Every self metric with what is known for it; unknown is left out."""
    children: dict[Metric, Children] = {
        self_metrics.BUILD_INFO: [((facts.version, facts.loader, facts.rung), 1.0)],
        self_metrics.UP: [((), float(facts.is_ticking))],
        self_metrics.TICKS: [(("fast",), float(facts.fast_ticks)), (("slow",), float(facts.slow_ticks))],
        self_metrics.TICKS_LATE: [((), float(facts.late_ticks))],
        self_metrics.TICK_P99: [
            ((tick,), seconds)
            for tick, seconds in (
                ("fast", facts.fast_tick_p99_seconds),
                ("slow", facts.slow_tick_p99_seconds),
            )
            if seconds is not None
        ],
        self_metrics.LOSSES: [((name,), float(count)) for name, count in facts.losses.items()],
        self_metrics.LAUNCHES: [((source,), float(count)) for source, count in facts.launches.items()],
        KERNEL_LAUNCHES: [((name,), float(count)) for name, count in facts.kernels],
        self_metrics.ATTACHED: [((), float(facts.attached_symbols))],
        self_metrics.MISSED: [((), float(facts.missed_symbols))],
        self_metrics.AGENT_CPU: [((), sum(os.times()[:2]))],
        self_metrics.AGENT_RESIDENT: [((), float(_resident_bytes()))],
        self_metrics.MAP_BYTES: [((), float(facts.map_bytes))],
        self_metrics.RELOAD_OK: [((), float(not facts.is_reload_refused))],
        self_metrics.PAGE_DROPPED: [((), float(facts.page_dropped))],
        self_metrics.API_THREADLESS: [((), float(facts.threadless))],
        self_metrics.LOG_RECORDS: [((fate,), float(count)) for fate, count in facts.log_records.items()],
        self_metrics.SINK_ERRORS: [((name,), float(count)) for name, count in facts.sink_errors.items()],
    }
    children |= conflict_children(facts.conflicts)
    children[self_metrics.GOVERNOR_LEVEL] = [((name,), float(n)) for name, n in facts.levels.items()]
    if facts.probe_cost_ratio is not None:
        children[self_metrics.PROBE_COST] = [((), facts.probe_cost_ratio)]
    if facts.otlp is not None:
        children[self_metrics.OTLP_SPANS] = [((), float(facts.otlp.exported))]
        children[self_metrics.OTLP_DROPPED] = [((name,), float(n)) for name, n in facts.otlp.dropped.items()]
        children[self_metrics.OTLP_EVENTS_DROPPED] = [((), float(facts.otlp.events_dropped))]
        children[self_metrics.OTLP_FAILURES] = [
            ((name,), float(n)) for name, n in facts.otlp.failures.items()
        ]
    if facts.journal is not None:
        children[self_metrics.STORE_PENDING] = [((), float(facts.journal.pending))]
        children[self_metrics.STORE_COMMITTED] = [((), float(facts.journal.committed_total))]
        children[self_metrics.STORE_LOST] = [((), float(facts.journal.lost_total))]
    if facts.outbox is not None:
        children[self_metrics.OUTBOX_PENDING] = [((), float(facts.outbox.pending))]
        children[self_metrics.OUTBOX_ENQUEUED] = [((), float(facts.outbox.enqueued_total))]
        oldest_ns = facts.outbox.oldest_created_ns
        age = 0.0 if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9)
        children[self_metrics.OUTBOX_AGE] = [((), age)]
    if facts.notifier is not None:
        children |= _webhook_children(facts.notifier)
    return children


def _webhook_children(report: NotifierReport) -> dict[Metric, Children]:
    return {
        self_metrics.WEBHOOK_DELIVERIES: [
            ((each.name, result), float(count))
            for each in report.destinations
            for result, count in (
                ("delivered", each.delivered),
                ("failed", each.failed),
                ("dead", each.dead),
            )
        ],
        self_metrics.WEBHOOK_PENDING: [((each.name,), float(each.pending)) for each in report.destinations],
        self_metrics.WEBHOOK_AGE: [
            ((each.name,), each.oldest_age_seconds or 0.0) for each in report.destinations
        ],
        self_metrics.WEBHOOK_DISABLED: [
            ((each.name,), float(each.is_disabled)) for each in report.destinations
        ],
        self_metrics.WEBHOOK_REFUSED: [
            ((each.name,), float(each.is_refused)) for each in report.destinations
        ],
    }


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
