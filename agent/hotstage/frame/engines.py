# SPDX-License-Identifier: Apache-2.0
"""What engines say of themselves → columns of their instances. Copies; never judges, never parses.

A silent engine leaves its columns unknown and nothing else: it does not make the frame stale, since then it
would blind the rules about all that it has nothing to do with.
"""

from __future__ import annotations

from collections.abc import Iterable

from hotstage.engines.samples import EngineSample
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.served import Cells

_PHASES = {
    "ttft": ("p50", "p95"),
    "itl": ("p50", "p95"),
    "e2e": ("p50", "p95", "mean"),
    "queue": ("p95", "mean"),
    "prefill": ("p95",),
    "decode": ("p95",),
}


def fill_engines(engines: Iterable[EngineSample], at_ns: int, cells: Cells) -> None:
    """An engine of several models is one line, of all of them."""
    for sample in engines:
        if sample.at_ns is None:
            continue
        cell = cells.setdefault(Entity(EntityKind.instance, instance=sample.instance), {})
        cell["engine_sample_age_seconds"] = sample.age_seconds(at_ns)
        if not sample.is_fresh(at_ns):
            continue
        total = sample.total
        cell["engine_queue"], cell["engine_running"] = total.queue, total.running
        cell["engine_kv_use_ratio"] = total.kv_use_ratio
        cell["engine_request_rate"] = total.request_rate
        cell["engine_prompt_token_rate"] = total.prompt_token_rate
        cell["engine_output_token_rate"] = total.output_token_rate
        cell["engine_preemption_rate"] = total.preemption_rate
        for name, phase in total.phases.items():
            seconds = {"p50": phase.p50_seconds, "p95": phase.p95_seconds, "mean": phase.mean_seconds}
            for which in _PHASES[name]:
                cell[f"engine_{name}_{which}_seconds"] = seconds[which]
