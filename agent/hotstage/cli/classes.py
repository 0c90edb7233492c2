# SPDX-License-Identifier: Apache-2.0
"""`hotstage classes`: finished requests by class, or, with `--components`, their time by stage."""

from __future__ import annotations

from typing import Any

import click

from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import DASH, print_json, print_table, say, seconds

_CLASS_COLUMNS = (
    "class",
    "size",
    "endpoint",
    "requests",
    "per second",
    "mean",
    "p50",
    "p95",
    "p99",
    "p99 target",
    "within it",
    "ms/token eq.",
    "SLO baseline",
    "SLO penalty (ms)",
)

_BASIS = (
    "p99 target and SLO baseline are [classes] target_seconds and slo_baseline_seconds of the agent's"
    " configuration;\nwhat is not set there is a built-in default, which knows nothing of your service"
    " (`hotstage config`).\ntoken eq.: a request's tokens, in and out, each times its modality's [classes]"
    " token_weights, 1 by default"
)


@click.command()
@click.option("--components", "by_component", is_flag=True, help="The time of a request by stage instead.")
@reading
def classes(by_component: bool, as_json: bool, agent_url: str | None) -> None:
    """Finished requests by modality fingerprint, by size and by endpoint: rate, latency, share within the
    target, cost per token equivalent, penalty. The target is what the class should reach, the baseline is the
    p99 from which the penalty counts: one may be missed while the other holds.

    `--components` shows how long requests were in each stage, gateway, model_load and lora_apply among them,
    and what they waited for: between stages (gap), and inside them for a CPU, the GPU, copies and
    memory (kernel).
    """
    body = agent_client(agent_url).get("/v1/components" if by_component else "/v1/classes")
    if as_json:
        print_json(body)
    elif by_component:
        print_table(
            ("component", "kind", "told by", "requests", "mean", "p95", "variance (s²)", "share of time"),
            [_component(row) for row in (body["request"], *body["components"])],
            empty="",
        )
    else:
        print_table(
            _CLASS_COLUMNS,
            [_class(row) for row in (*body["fingerprints"], *body["classes"], *body["endpoints"])],
            empty="no request has ended yet",
        )
        if body["classes"]:
            say(_BASIS, err=True)


def _class(row: dict[str, Any]) -> tuple[Any, ...]:
    times = (seconds(row[f"{name}_seconds"]) for name in ("mean", "p50", "p95", "p99", "p99_target"))
    return (
        row["fingerprint"],
        row["size"] or "all",
        row["endpoint"] or "all",
        row["requests"],
        float(row["rate"]),
        *times,
        _share(row["within_target_ratio"]),
        row["token_equivalent_ms"],
        seconds(row["slo_baseline_seconds"]),
        row["slo_penalty_ms"],
    )


def _component(row: dict[str, Any]) -> tuple[Any, ...]:
    mean, p95 = seconds(row["mean_seconds"]), seconds(row["p95_seconds"])
    parts = (row["stage"], row["lora_rank"] and f"r{row['lora_rank']}", row["lora_module"])
    name = " ".join(str(part) for part in parts if part is not None)
    return name, row["kind"], row["source"], row["count"], mean, p95, row["variance"], _share(row["share"])


def _share(value: float | None) -> str:
    return DASH if value is None else f"{value:.1%}"
