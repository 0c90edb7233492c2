# SPDX-License-Identifier: Apache-2.0
"""Alerts on hotstage itself: is it there, does it see, do its words arrive. Nearly all make tickets."""

from __future__ import annotations

from generate.alert import JOB, Alert, Fires, Scene, given
from generate.overview import UID as OVERVIEW
from generate.promql import RULE, total
from hotstage.sinks import self_metrics

_LOST = RULE.increase(self_metrics.LOSSES, 'loss=~"lost_.+"')
_LATE = RULE.rate(self_metrics.TICKS_LATE)
_FAST = RULE.rate(self_metrics.TICKS, 'tick="fast"')
_ATTACHED, _MISSED = RULE.select(self_metrics.ATTACHED), RULE.select(self_metrics.MISSED)

AGENT = (
    Alert(
        "HotstageAgentDown",
        f'up{{job="{JOB}"}} == 0',
        "1m",
        "warning",
        "No agent answers on {{ $labels.instance }}",
        "The host is served unwatched. `systemctl status hotstage-agent` and `hotstage doctor` there say "
        "why.",
        OVERVIEW,
        Fires((given("up", "1x4 0x20"),), "3m", {}),
        Scene((given("up", "1x4 0 1x20"),), "3m"),
    ),
    Alert(
        "HotstageAbsent",
        f'absent(up{{job="{JOB}"}})',
        "5m",
        "critical",
        "Nothing of hotstage is scraped any more",
        "No target of the job is left: the whole fleet is served unwatched. Check the scrape configuration "
        "and service discovery.",
        OVERVIEW,
        Fires((), "6m", {"instance": ""}),
        Scene((given("up", "0x40"),), "6m"),
    ),
    Alert(
        "HotstageNotTicking",
        f"{RULE.select(self_metrics.UP)} == 0",
        "1m",
        "warning",
        "The agent on {{ $labels.instance }} answers and does not tick",
        "It serves old figures. Its log says what it waits for; restart it if it does not go on.",
        OVERVIEW,
        Fires((given("hotstage_up", "0x20"),), "2m", {}),
        Scene((given("hotstage_up", "0x2 1x20"),), "2m"),
    ),
    Alert(
        "HotstageCollectorStale",
        f"{RULE.select(self_metrics.COLLECTOR_UP)} == 0",
        "2m",
        "warning",
        "The agent on {{ $labels.instance }} has no fresh {{ $labels.collector }}",
        "What this source tells is missing, not zero. `hotstage doctor` says what is in the way; for "
        "devices, a driver that hangs is the usual cause.",
        OVERVIEW,
        Fires((given("hotstage_collector_up", "0x20", collector="devices"),), "3m", {"collector": "devices"}),
        Scene((given("hotstage_collector_up", "0x4 1x20", collector="devices"),), "3m"),
    ),
    Alert(
        "HotstageNotAttached",
        f"{_ATTACHED} == 0 and max_over_time({_ATTACHED}[1h]) > 0",
        "15m",
        "warning",
        "The agent on {{ $labels.instance }} has no probe attached any more",
        "Within the last hour it had. Either no CUDA process runs there now, which is fine, or attaching "
        "fails: `hotstage coverage` lists processes and reasons.",
        OVERVIEW,
        Fires((given("hotstage_coverage_attached_symbols", "60x4 0x80"),), "18m", {}),
        Scene((given("hotstage_coverage_attached_symbols", "0x80"),), "18m"),
    ),
    Alert(
        "HotstageCoverageLow",
        f"{_MISSED} / ({_ATTACHED} + {_MISSED}) > 0.2 and {_ATTACHED} > 0",
        "15m",
        "warning",
        "{{ $value | humanizePercentage }} of the known calls on {{ $labels.instance }} carry no probe",
        "Counts by call are incomplete. `hotstage coverage` names them; mostly a library is newer than the "
        "catalogue.",
        OVERVIEW,
        Fires(
            (
                given("hotstage_coverage_attached_symbols", "45x80"),
                given("hotstage_coverage_missed_symbols", "15x80"),
            ),
            "16m",
            {},
            "25%",
        ),
        Scene(
            (
                given("hotstage_coverage_attached_symbols", "60x80"),
                given("hotstage_coverage_missed_symbols", "3x80"),
            ),
            "16m",
        ),
    ),
    Alert(
        "HotstageTelemetryLost",
        f"{total(_LOST, 'job', 'instance', 'loss')} > 0",
        "2m",
        "warning",
        "The kernel side on {{ $labels.instance }} loses records: {{ $labels.loss }}",
        "Counts and stages may be too low meanwhile; those intervals say unknown. Raise the ring or the map "
        "that the loss names (`[probes]`).",
        OVERVIEW,
        Fires(
            (given("hotstage_losses_total", "0+2x40", loss="lost_events_ring"),),
            "8m",
            {"loss": "lost_events_ring"},
        ),
        Scene(
            (
                given("hotstage_losses_total", "9x40", loss="lost_events_ring"),
                given("hotstage_losses_total", "0+2x40", loss="missed_request"),
            ),
            "8m",
        ),
    ),
    Alert(
        "HotstageTicksLate",
        f"{_LATE} / ignoring (tick) {_FAST} > 0.05",
        "5m",
        "warning",
        "{{ $value | humanizePercentage }} of the ticks on {{ $labels.instance }} come late",
        "The agent gets too little CPU, so faults are seen later. Give it CPU, or look for what it waits "
        "for.",
        OVERVIEW,
        Fires(
            (
                given("hotstage_ticks_late_total", "0+15x60"),
                given("hotstage_ticks_total", "0+150x60", tick="fast"),
            ),
            "12m",
            {},
            "10%",
        ),
        Scene(
            (
                given("hotstage_ticks_late_total", "0+1x60"),
                given("hotstage_ticks_total", "0+150x60", tick="fast"),
            ),
            "12m",
        ),
    ),
    Alert(
        "HotstageAgentHeavy",
        f"{RULE.rate(self_metrics.AGENT_CPU)} > 0.5 "
        f"or {RULE.select(self_metrics.AGENT_RESIDENT)} > 512 * 1024 * 1024",
        "10m",
        "warning",
        "The agent on {{ $labels.instance }} uses more than it should",
        "More than half a core or 512 MiB: the observer must not hurt the host. `hotstage bench overhead` "
        "and its log say where it goes.",
        OVERVIEW,
        Fires((given("hotstage_agent_cpu_seconds_total", "0+12x80"),), "16m", {}),
        Scene(
            (
                given("hotstage_agent_cpu_seconds_total", "0+1x80"),
                given("hotstage_agent_resident_bytes", "80000000x80"),
            ),
            "16m",
        ),
    ),
)
