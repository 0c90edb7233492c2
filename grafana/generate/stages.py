# SPDX-License-Identifier: Apache-2.0
"""The dashboard Stages: where does the time of a request go, by stage and modality, and what does it wait "
"for."""

from __future__ import annotations

from generate.board import GPU, MODALITY, STAGE, Board, Row
from generate.panels import BLUE, GREEN, RED, Panel, State, Target
from generate.promql import DASHBOARD, total
from generate.stages_classes import CLASSES
from generate.stages_cpu import CPU, HOST
from generate.stages_tokens import TOKENS
from hotstage.sinks import metrics, self_metrics
from hotstage.sinks.kernel_metrics import KERNEL_LAUNCHES

UID = "hotstage-stages"

_STAGE = ('stage=~"$stage"', 'modality=~"$modality"')
_ON_GPU = (*_STAGE, 'gpu_uuid=~"$gpu"')
_BY = ("stage", "modality")
_NAME = "{{stage}} {{modality}}"


def _quantile(share: float, *by: str) -> str:
    return DASHBOARD.quantile(share, metrics.STAGE_DURATION, *_ON_GPU, by=by)


def _latency(share: float, what: str) -> Panel:
    return Panel(
        f"P{round(100 * share)} by stage and modality",
        f"{what} Host begin to end, from the histogram's buckets: at most a factor of two off, "
        "of four below 4 ms and above 8 s.",
        "timeseries",
        "s",
        (Target(_quantile(share, *_BY), _NAME),),
    )


_CALLS = DASHBOARD.rate(metrics.CALLS, *_STAGE)
_CALL_ERRORS = DASHBOARD.rate(metrics.CALL_ERRORS, *_STAGE)
_OPEN_SECONDS = total(DASHBOARD.seconds(metrics.STAGE_DURATION, *_ON_GPU), *_BY)
_ACTIVE = DASHBOARD.select(metrics.STAGE_STATE, *_STAGE, 'state="active"')
_STALLED = DASHBOARD.select(metrics.STAGE_STATE, *_STAGE, 'state="stalled"')
_STATE_NUMBER = f"{_ACTIVE} + ignoring(state) 2 * {_STALLED}"

TIME = Row(
    "Where does the time go",
    (
        Panel(
            "P95 by stage, stacked",
            "The P95 of each stage on top of each other. Not the P95 of a request: the slow stages of one "
            "need not be those of another. It shows which stage to look at first.",
            "timeseries",
            "s",
            (Target(_quantile(0.95, "stage"), "{{stage}}"),),
            width=12,
            height=9,
            stacked=True,
        ),
        Panel(
            "Seconds in each stage per second",
            "Time of all ended stages, per second: how many requests are in a stage on average. The widest "
            "band is where requests spend their lives.",
            "timeseries",
            "short",
            (Target(total(DASHBOARD.seconds(metrics.STAGE_DURATION, *_ON_GPU), "stage"), "{{stage}}"),),
            width=12,
            height=9,
            stacked=True,
        ),
        Panel(
            "Duration of stages",
            "How durations are spread, all chosen stages together. Two bands are two kinds of request.",
            "heatmap",
            "s",
            (Target(DASHBOARD.buckets(metrics.STAGE_DURATION, *_ON_GPU), "{{le}}"),),
            width=12,
            height=9,
        ),
        Panel(
            "P95 now",
            "The P95 of each stage and modality over the last minutes, slowest first when sorted.",
            "table",
            "s",
            (Target(_quantile(0.95, *_BY), ""),),
            width=12,
            height=9,
            column_names={"Value": "P95"},
        ),
    ),
)

LATENCY = Row(
    "Latency",
    (
        _latency(0.5, "The usual case."),
        _latency(0.95, "The bad case."),
        _latency(0.99, "The worst case; needs some hundred ended stages to mean anything."),
    ),
)

WORK = Row(
    "Work",
    (
        Panel(
            "Rate",
            "Stages that ended, per second.",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.observations(metrics.STAGE_DURATION, *_ON_GPU), *_BY), _NAME),),
        ),
        Panel(
            "In flight",
            "Stages that are open now. A stage that is not open anywhere has no line.",
            "timeseries",
            "short",
            (Target(total(DASHBOARD.select(metrics.STAGE_INFLIGHT, *_ON_GPU), *_BY), _NAME),),
        ),
        Panel(
            "State",
            "idle: nothing is in it; active; stalled: an anomaly window is open on it.",
            "state",
            "none",
            (Target(_STATE_NUMBER, f"{_NAME} on {{{{instance}}}}"),),
            states=(State(0, "idle", BLUE), State(1, "active", GREEN), State(2, "stalled", RED)),
        ),
        Panel(
            "Kernels in graphs",
            "Kernels that launches of CUDA graphs replayed, per second: nobody launches them one by one. "
            "Graphs that were made before hotstage watched are not in it.",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.rate(metrics.STAGE_GRAPH_KERNELS, *_STAGE), *_BY), _NAME),),
            width=12,
        ),
        Panel(
            "Launches by kernel",
            "The kernels launched most of late, of all stages, and the rest; (graphs) are launches of "
            "graphs, (unnamed) what was looked up before hotstage watched.",
            "timeseries",
            "ops",
            (Target(total(DASHBOARD.rate(KERNEL_LAUNCHES), "kernel"), "{{kernel}}"),),
            width=12,
            stacked=True,
        ),
    ),
)

WAITS = Row(
    "Waits and calls",
    (
        Panel(
            "Waits by reason",
            "Threads that wait, on average: for the device (sync), for copies (memcpy), for memory (alloc).",
            "timeseries",
            "short",
            (Target(total(DASHBOARD.rate(metrics.STAGE_WAIT, *_STAGE), "reason"), "{{reason}}"),),
            width=12,
            stacked=True,
        ),
        Panel(
            "Waits by stage and reason",
            "Seconds of waiting per second. A stage whose waits grow while its rate stands still is starved.",
            "timeseries",
            "short",
            (
                Target(
                    total(DASHBOARD.rate(metrics.STAGE_WAIT, *_STAGE), "stage", "reason"),
                    "{{stage}} {{reason}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "Share of a stage spent waiting",
            "Waiting over the time in the stage. Batches of several requests wait together, so llm_decode "
            "may be far below 1.",
            "timeseries",
            "percentunit",
            (Target(f"{total(DASHBOARD.rate(metrics.STAGE_WAIT, *_STAGE), *_BY)} / {_OPEN_SECONDS}", _NAME),),
        ),
        Panel(
            "Launches by what named their stage",
            "Launch-class calls per second: named by a mark, an NVTX range, a rule, a fingerprint of the "
            "function, or by nothing. `hotstage stages explain` says it of one process.",
            "timeseries",
            "cps",
            (Target(total(DASHBOARD.rate(self_metrics.LAUNCHES), "source"), "{{source}}"),),
            stacked=True,
        ),
        Panel(
            "Calls",
            "CUDA, NCCL and cuDNN calls per second, counted in the kernel.",
            "timeseries",
            "cps",
            (Target(total(_CALLS, "call"), "{{call}}"),),
        ),
        Panel(
            "Errors by call",
            "Calls that returned an error, per second, out of memory included. Zero: the call was made, and "
            "none failed.",
            "timeseries",
            "cps",
            (Target(f"{total(_CALL_ERRORS, 'call')} or 0 * {total(_CALLS, 'call')}", "{{call}}"),),
        ),
    ),
)

STAGES = Board(
    UID,
    "hotstage / Stages",
    "Where the time of a request goes, by stage and modality, what each class of requests gets, what each "
    "stage waits for, and the calls behind it.",
    (TIME, LATENCY, TOKENS, CLASSES, WORK, WAITS, CPU, HOST),
    variables=(STAGE, MODALITY, GPU),
)
