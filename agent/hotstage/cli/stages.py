# SPDX-License-Identifier: Apache-2.0
"""`hotstage stages`: stages now; `explain PID`: why each thread counts as what it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from hotstage.cli.reading import agent_client, reading
from hotstage.cli.terminal import DASH, print_json, print_table, say, seconds
from hotstage.stages.stage import Stage

_HEAD = ("stage", "modality", "runs", "in flight", "oldest", "per second", "p50", "p95", "p99")
_EXPLAIN_HEAD = (
    "tid",
    "thread",
    "counts now as",
    "modality",
    "because of",
    "how sure (%)",
    "launches so far",
    "by what they counted",
    "why",
)
_HOW_TO_READ = (
    "a row is a thread, the one with most launches first: the stage that they count under now, what says "
    "so (a mark, an NVTX range, a rule, a learned fingerprint; none: nothing does) and how sure that is; "
    "launches are since the probes were attached, and keep the stage that they had then"
)
_SOURCES = ("mark", "nvtx", "rule", "fingerprint", "none")


@click.group(invoke_without_command=True)
@click.pass_context
@reading
def stages(ctx: click.Context, as_json: bool, agent_url: str | None) -> None:
    """Requests and latency by stage and modality, as of now."""
    if ctx.invoked_subcommand is not None:
        return
    body = agent_client(agent_url).get("/v1/stages")
    if as_json:
        print_json(body)
        return
    say(f"launches without a stage: {_share(body['unattributed_ratio'])}")
    print_table(
        (*_HEAD, "launches/s", "graphs/s", "kernels in them/s", "windows"),
        [_stage(row) for row in shown_rows(body["stages"])],
        empty="no request has passed a stage yet",
    )


@stages.command()
@click.argument("pid", type=click.IntRange(1, 1 << 22))
@reading
def explain(pid: int, as_json: bool, agent_url: str | None) -> None:
    """Why each thread of process PID counts as the stage that it does: its mark, the rule that fits, the
    functions that were learned; how sure that is, and what would help where nothing says it.
    """
    body = agent_client(agent_url).get(f"/v1/stages/explain?pid={pid}")
    if as_json:
        print_json(body)
        return
    say(f"process {body['pid']}: {body['command'] or DASH}")
    if body["ended_at"] is not None:
        say(f"it has ended, by {body['ended_at']}; this is how it was judged last")
    say(f"launches since the probes were attached: {_launches(body['launches'])}")
    if body["threads"]:
        say(_HOW_TO_READ)
    print_table(
        _EXPLAIN_HEAD,
        [_thread(row) for row in body["threads"]],
        empty="no thread of it was seen in a call or mark",
    )
    for row in body["threads"]:
        for other in row["alternatives"]:
            say(
                f"thread {row['tid']} would count as {other['stage']} if that were not there "
                f"({other['source']}: {other['text']})"
            )
    _say_unattributed(body["unattributed"])


def _say_unattributed(found: dict[str, Any]) -> None:
    if found["reason"] is None:
        return
    say(f"without a stage: {found['launches']} launches, {_share(found['ratio'])}")
    for reason in found["reason"].split("; "):
        say(f"  {reason}")
    for remedy in found["remedies"]:
        say(f"  remedy: {remedy}")


def _thread(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["tid"],
        row["name"],
        row["stage"],
        row["modality"],
        row["source"],
        None if row["confidence"] is None else f"{row['confidence']:.0%}",
        row["launches"]["total"],
        _by_source(row["launches"]),
        row["why"],
    )


def _launches(launches: dict[str, int]) -> str:
    """`163 (120 rule, 43 none)`."""
    return f"{launches['total']} ({_by_source(launches)})" if launches["total"] else "none yet"


def _by_source(launches: dict[str, int]) -> str:
    """`120 mark, 3 none`: what there is."""
    parts = [f"{launches[source]} {source}" for source in _SOURCES if launches[source]]
    return ", ".join(parts) or "none yet"


def _share(ratio: float | None) -> str:
    return DASH if ratio is None else f"{ratio:.1%}"


def shown_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those with any figure, in the order of a request's way."""
    return sorted(filter(_has_figures, rows), key=place_on_way)


def place_on_way(row: dict[str, Any]) -> tuple[int, str]:
    """To sort rows by: stages in the order of a request's way, a server's own ones after them."""
    stage = Stage.__members__.get(row["stage"])
    return (len(Stage) if stage is None else list(Stage).index(stage), row["stage"])


def _has_figures(row: dict[str, Any]) -> bool:
    return bool(row["requests"] or row["inflight"] or row["rate"] or row["p50_seconds"] is not None)


def _stage(row: dict[str, Any]) -> tuple[Any, ...]:
    times = (seconds(row[f"{name}_seconds"]) for name in ("p50", "p95", "p99"))
    oldest = seconds(row["oldest_age_seconds"])
    windows = ", ".join(row["windows_open"]) or None
    kernels = (row.get(name) for name in ("launch_rate", "graph_launch_rate", "graph_kernel_rate"))
    return (
        *(row[name] for name in ("stage", "modality", "requests", "inflight")),
        oldest,
        row["rate"],
        *times,
        *kernels,
        windows,
    )
