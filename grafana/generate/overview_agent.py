# SPDX-License-Identifier: Apache-2.0
"""The overview's last rows: do webhooks arrive, and is the agent itself well. Collapsed; the alerts watch "
"them."""

from __future__ import annotations

from generate.board import Row
from generate.panels import GREEN, ORANGE, RED, Panel, State, Target
from generate.promql import DASHBOARD, highest, total
from hotstage.sinks import self_metrics

_LATE = total(DASHBOARD.rate(self_metrics.TICKS_LATE))
_FAST = total(DASHBOARD.rate(self_metrics.TICKS, 'tick="fast"'))

WEBHOOKS = Row(
    "Webhooks",
    (
        Panel(
            "Outbox",
            "Events that no notifier has taken over, and the age of the oldest. Growing: the notifier is "
            "down.",
            "timeseries",
            "short",
            (
                Target(DASHBOARD.select(self_metrics.OUTBOX_PENDING), "pending on {{instance}}"),
                Target(DASHBOARD.select(self_metrics.OUTBOX_AGE), "oldest, seconds, on {{instance}}"),
            ),
        ),
        Panel(
            "Waiting deliveries by destination",
            "Deliveries that wait in the notifier for a retry or for their turn.",
            "timeseries",
            "short",
            (
                Target(
                    total(DASHBOARD.select(self_metrics.WEBHOOK_PENDING), "destination"), "{{destination}}"
                ),
            ),
        ),
        Panel(
            "Oldest delivery by destination",
            "How long the oldest delivery has been waiting.",
            "timeseries",
            "s",
            (Target(highest(DASHBOARD.select(self_metrics.WEBHOOK_AGE), "destination"), "{{destination}}"),),
        ),
        Panel(
            "Deliveries",
            "Attempts per second and their result. `failed` is tried again, `dead` is given up and kept for "
            "replay.",
            "timeseries",
            "ops",
            (
                Target(
                    total(DASHBOARD.rate(self_metrics.WEBHOOK_DELIVERIES), "destination", "result"),
                    "{{destination}} {{result}}",
                ),
            ),
        ),
        Panel(
            "P95 of an attempt",
            "From connect to answer, whatever the answer was.",
            "timeseries",
            "s",
            (
                Target(
                    DASHBOARD.quantile(0.95, self_metrics.WEBHOOK_DURATION, by=("destination",)),
                    "{{destination}}",
                ),
            ),
            needs="encoder-stall",
        ),
        Panel(
            "Destinations",
            "A destination that answered 410 is disabled until the notifier is restarted.",
            "state",
            "none",
            (
                Target(
                    highest(DASHBOARD.select(self_metrics.WEBHOOK_DISABLED), "destination"), "{{destination}}"
                ),
            ),
            states=(State(0, "enabled", GREEN), State(1, "disabled", RED)),
        ),
    ),
)

AGENT = Row(
    "The agent itself",
    (
        Panel(
            "Sources",
            "Fresh or stale, by source. A stale source says nothing: what is missing is not drawn as zero.",
            "state",
            "none",
            (Target(DASHBOARD.select(self_metrics.COLLECTOR_UP), "{{collector}} on {{instance}}"),),
            width=12,
            states=(State(0, "stale", RED), State(1, "fresh", GREEN)),
        ),
        Panel(
            "Age of the sources",
            "Seconds since each source was last fresh.",
            "timeseries",
            "s",
            (
                Target(
                    f"time() - {DASHBOARD.select(self_metrics.COLLECTOR_LAST)}",
                    "{{collector}} on {{instance}}",
                ),
            ),
            width=6,
        ),
        Panel(
            "Losses",
            "What the kernel side could not keep, per second. While it is not zero, counts and stages may "
            "be too low.",
            "timeseries",
            "cps",
            (Target(total(DASHBOARD.rate(self_metrics.LOSSES), "loss"), "{{loss}}"),),
            width=6,
        ),
        Panel(
            "Ticks",
            "Ticks per second: 10 fast and 1 slow on each host, as long as the agent keeps up.",
            "timeseries",
            "ops",
            (
                Target(
                    total(DASHBOARD.rate(self_metrics.TICKS), "tick", "instance"), "{{tick}} on {{instance}}"
                ),
            ),
            width=6,
        ),
        Panel(
            "Late ticks",
            "Share of the fast ticks that came too late.",
            "timeseries",
            "percentunit",
            (Target(f"{_LATE} / {_FAST}", "late"),),
            width=6,
            limits=((0.05, RED),),
        ),
        Panel(
            "P99 of a tick",
            "Time that a tick takes, over the last ten minutes. A fast tick has 100 ms.",
            "timeseries",
            "s",
            (Target(DASHBOARD.select(self_metrics.TICK_P99), "{{tick}} on {{instance}}"),),
            width=6,
            limits=((0.1, RED),),
        ),
        Panel(
            "CPU",
            "Cores that the agent uses, the probes themselves not counted: those run in the server's own "
            "calls.",
            "timeseries",
            "percentunit",
            (Target(DASHBOARD.rate(self_metrics.AGENT_CPU), "{{instance}}"),),
            width=6,
        ),
        Panel(
            "Memory",
            "Resident memory of the agent, and kernel memory of its BPF maps.",
            "timeseries",
            "bytes",
            (
                Target(DASHBOARD.select(self_metrics.AGENT_RESIDENT), "resident on {{instance}}"),
                Target(DASHBOARD.select(self_metrics.MAP_BYTES), "maps on {{instance}}"),
            ),
            width=6,
        ),
        Panel(
            "Probes",
            "Symbols that carry a probe, and catalogued ones that do not; `hotstage coverage` names them.",
            "timeseries",
            "short",
            (
                Target(DASHBOARD.select(self_metrics.ATTACHED), "attached on {{instance}}"),
                Target(DASHBOARD.select(self_metrics.MISSED), "missed on {{instance}}"),
            ),
            width=6,
        ),
        Panel(
            "Series",
            "Series that the agent exports; a host stays below 5,000.",
            "timeseries",
            "short",
            (Target(DASHBOARD.select(self_metrics.SERIES), "{{instance}}"),),
            width=6,
            limits=((5000, ORANGE),),
        ),
        Panel(
            "Series dropped",
            "Observations that went to `other` because their metric is full. Zero is drawn while an agent "
            "answers.",
            "timeseries",
            "cps",
            (
                Target(
                    f"{total(DASHBOARD.rate(self_metrics.SERIES_DROPPED), 'metric')} or "
                    f'label_replace(0 * sum({DASHBOARD.select(self_metrics.UP)}), "metric", "none", "", "")',
                    "{{metric}}",
                ),
            ),
            width=6,
        ),
        Panel(
            "Scrape",
            "Time that the body of the last scrape took.",
            "timeseries",
            "s",
            (Target(DASHBOARD.select(self_metrics.SCRAPE_SECONDS), "{{instance}}"),),
            width=6,
        ),
        Panel(
            "Store",
            "Changes that wait for the disk, and changes per second that it refused for good.",
            "timeseries",
            "short",
            (
                Target(DASHBOARD.select(self_metrics.STORE_PENDING), "waiting on {{instance}}"),
                Target(DASHBOARD.rate(self_metrics.STORE_LOST), "lost per second on {{instance}}"),
            ),
            width=6,
        ),
        Panel(
            "Configuration",
            "Whether the last reload was taken. `refused`: the agent goes on with the configuration before "
            "it.",
            "state",
            "none",
            (Target(DASHBOARD.select(self_metrics.RELOAD_OK), "{{instance}}"),),
            width=6,
            states=(State(0, "refused", RED), State(1, "taken", GREEN)),
        ),
        Panel(
            "Failures of outputs",
            "Outputs that failed, per second, breakers that found no place on the shared page, and "
            "connections that found no thread.",
            "timeseries",
            "cps",
            (
                Target(total(DASHBOARD.rate(self_metrics.SINK_ERRORS), "sink"), "{{sink}}"),
                Target(total(DASHBOARD.rate(self_metrics.PAGE_DROPPED)), "no place on the page"),
                Target(total(DASHBOARD.rate(self_metrics.API_THREADLESS)), "no thread for a connection"),
            ),
            width=6,
        ),
        Panel(
            "Version",
            "What runs where, with which compiler of its counters and which kind of probe.",
            "table",
            "none",
            (Target(DASHBOARD.select(self_metrics.BUILD_INFO), ""),),
            width=12,
            height=6,
            hidden_columns=("Time", "__name__", "job", "Value"),
            column_names={"instance": "host"},
        ),
    ),
)

AGENT_ROWS = (
    Row(WEBHOOKS.title, WEBHOOKS.panels, collapsed=True),
    Row(AGENT.title, AGENT.panels, collapsed=True),
)
