# SPDX-License-Identifier: Apache-2.0
"""The overview's rows on what has happened: anomaly windows, breakers, and what the GPUs say."""

from __future__ import annotations

from generate.board import Row
from generate.panels import GREEN, GREY, ORANGE, RED, YELLOW, Panel, State, Target
from generate.promql import DASHBOARD, highest, total
from hotstage.sinks import metrics, self_metrics

_GPU = 'gpu_uuid=~"$gpu"'
_GPU_INFO = DASHBOARD.select(metrics.GPU_INFO, _GPU)
_UP = f"sum({DASHBOARD.select(self_metrics.UP)})"
_BREAKER_NUMBER = " + ignoring(state) ".join(
    f"{number} * {DASHBOARD.select(metrics.BREAKER_STATE, matcher)}"
    for number, matcher in enumerate(
        (
            'state="half_open"',
            'state="open"',
            'state="forced_open"',
            'state="disabled"',
            'state="metrics_only"',
        ),
        1,
    )
)

EVENTS = Row(
    "Windows and breakers",
    (
        Panel(
            "Windows open by kind",
            "What is wrong, how bad, in which stage. `none` is drawn while an agent answers, so an empty "
            "panel is no all-clear.",
            "timeseries",
            "short",
            (
                Target(
                    f"{total(DASHBOARD.select(metrics.WINDOW_ACTIVE), 'kind', 'severity', 'stage')} or "
                    f'label_replace(0 * {_UP}, "kind", "none", "", "")',
                    "{{kind}} {{stage}} {{severity}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Breakers",
            "The state that callers see. A breaker exists from its first window on; empty means that none "
            "was needed.",
            "state",
            "none",
            (Target(_BREAKER_NUMBER, "{{breaker}} on {{instance}}"),),
            width=12,
            states=(
                State(0, "closed", GREEN),
                State(1, "half-open", YELLOW),
                State(2, "open", RED),
                State(3, "forced open", RED),
                State(4, "disabled", GREY),
                State(5, "metrics only", GREY),
            ),
            needs="encoder-stall",
        ),
        Panel(
            "Score of open windows",
            "How far the worst evidence is beyond its limit, by kind and stage. Empty while no window is "
            "open.",
            "timeseries",
            "short",
            (Target(highest(DASHBOARD.select(metrics.WINDOW_SCORE), "kind", "stage"), "{{kind}} {{stage}}"),),
            needs="encoder-stall",
        ),
        Panel(
            "Breaker moves",
            "Changes of state since the agent began. `relapse`: it failed its probe and opened again.",
            "table",
            "short",
            (
                Target(
                    total(
                        DASHBOARD.select(metrics.BREAKER_TRANSITIONS),
                        "instance",
                        "breaker",
                        "from",
                        "to",
                        "reason",
                    ),
                    "",
                ),
            ),
            column_names={"Value": "moves", "instance": "host"},
            needs="encoder-stall",
        ),
        Panel(
            "Breakers that count",
            "1 where callers heed the breaker, 0 in dry run; stale while there is no data to judge by; time "
            "of the last move.",
            "table",
            "none",
            (
                Target(highest(DASHBOARD.select(metrics.BREAKER_ENFORCED), "instance", "breaker"), ""),
                Target(highest(DASHBOARD.select(metrics.BREAKER_STALE), "instance", "breaker"), ""),
                Target(
                    f"time() - {highest(DASHBOARD.select(metrics.BREAKER_LAST), 'instance', 'breaker')}", ""
                ),
            ),
            column_names={
                "Value #A": "enforced",
                "Value #B": "stale",
                "Value #C": "seconds since the last move",
                "instance": "host",
            },
            needs="encoder-stall",
        ),
    ),
)

GPUS = Row(
    "GPUs",
    (
        Panel(
            "GPUs",
            "What NVML lists on the hosts chosen. A GPU that is missing here has fallen off the bus or the "
            "driver hangs.",
            "table",
            "none",
            (Target(_GPU_INFO, ""),),
            width=12,
            hidden_columns=("Time", "__name__", "job", "Value"),
            column_names={"instance": "host", "gpu": "index", "gpu_uuid": "UUID", "driver_version": "driver"},
        ),
        Panel(
            "XIDs",
            "Errors that the driver has reported since the agent began, and how long ago the last one was.",
            "table",
            "none",
            (
                Target(total(DASHBOARD.select(metrics.GPU_XID, _GPU), "instance", "gpu_uuid", "xid"), ""),
                Target(
                    "time() - "
                    + highest(DASHBOARD.select(metrics.GPU_XID_LAST, _GPU), "instance", "gpu_uuid", "xid"),
                    "",
                ),
            ),
            width=12,
            column_names={"Value #A": "count", "Value #B": "seconds since the last", "instance": "host"},
            needs="xid",
        ),
        Panel(
            "Slowdown reasons",
            "Why the driver lowers clocks. `hw_` reasons are trouble; `sw_power_cap` is a GPU at its power "
            "limit, which is normal.",
            "state",
            "none",
            (
                Target(
                    f"{DASHBOARD.select(metrics.GPU_THROTTLE, _GPU)} * on (job, instance, gpu_uuid) "
                    f"group_left (gpu) ({_GPU_INFO})",
                    "GPU {{gpu}} {{reason}} on {{instance}}",
                ),
            ),
            width=24,
            states=(State(0, "no", GREEN), State(1, "yes", ORANGE)),
        ),
    ),
)
