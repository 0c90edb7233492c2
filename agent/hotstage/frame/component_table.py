# SPDX-License-Identifier: Apache-2.0
"""How the time of finished requests is spread over stages and waits: mean, p95, variance, share. Pure."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from hotstage.frame.latency_types import Component, ComponentKind, Components, Source
from hotstage.frame.rolling import Floats, Rows, nearest_ranks
from hotstage.frame.timing_rows import GAPS, KERNEL_WAITS
from hotstage.grouping import distinct
from hotstage.stages.labels import OwnNames, own_stage_name
from hotstage.stages.lora import MODULES
from hotstage.stages.stage import Stage, stage_name
from hotstage.stages.timeline import PINNED

ALWAYS_SHOWN = frozenset({Stage.gateway, Stage.model_load, Stage.lora_apply})
"""Components that are listed with a count of 0 where no request went through them."""

LORA_ROWS_MAX = 16
"""Adapters (rank, module) with a row each, those of the most requests; the others share one."""

OWN_ROWS_MAX = 64
OTHER = "other"
_UNSAID = (0, 0)


def component_table(rows: Rows, window_seconds: float, min_samples: int, names: OwnNames) -> Components:
    """TIMING_DTYPE (R,) → the table. `names`: (pid, stage id) → the server's own name of a stage."""
    made = _Maker(float(rows["seconds"].sum()), min_samples)
    stages, components = rows["stages"].astype(np.float64), []
    own = []
    for name, seconds in _own(rows, stages, names):
        pinned = Stage.__members__.get(name)
        if pinned is None:
            own.append((name, seconds))
        else:  # one row a name: what is too many, or called as a pinned stage is, counts as that one
            said = stages[:, pinned]
            stages[:, pinned] = np.where(np.isnan(seconds), said, seconds + np.nan_to_num(said))
    for stage in range(PINNED):
        seconds = stages[:, stage]
        if stage in ALWAYS_SHOWN or not np.isnan(seconds).all():
            kind: ComponentKind = "wait" if stage == Stage.queue else "stage"
            components.append(made.component(stage_name(stage), kind, "mark", seconds))
        if stage == Stage.lora_apply:
            components += _adapters(made, rows, seconds)
    components += [made.component(name, "stage", "mark", each) for name, each in own]
    for place, name in enumerate(GAPS):
        components.append(made.component(name, "wait", "gap", rows["gaps"][:, place].astype(np.float64)))
    for place, name in enumerate(KERNEL_WAITS):
        waited = rows["waits"][:, place].astype(np.float64)
        components.append(made.component(name, "wait", "kernel", waited))
    whole = made.component("request", "request", "mark", rows["seconds"].astype(np.float64))
    return Components(window_seconds, whole, components)


def no_components(now_ns: int) -> Components:
    """What an agent says that has seen no request."""
    nothing = Component("request", "request", "mark", None, None, 0, None, None, None, None)
    return Components(0.0, nothing, [])


class _Maker:
    def __init__(self, whole_seconds: float, min_samples: int) -> None:
        self._whole_seconds = whole_seconds
        self._min_samples = min_samples

    def component(
        self,
        name: str,
        kind: ComponentKind,
        source: Source,
        seconds: Floats,
        lora: tuple[int | None, str | None] = (None, None),
    ) -> Component:
        """`seconds` (R,), NaN where a request had none."""
        times = seconds[~np.isnan(seconds)]
        count, rank, module = len(times), *lora
        if count == 0:
            return Component(name, kind, source, rank, module, 0, None, None, None, None)
        ranks = nearest_ranks(np.zeros(count, np.int64), times, (0.95,))
        return Component(
            stage=name,
            kind=kind,
            source=source,
            lora_rank=rank,
            lora_module=module,
            count=count,
            mean_seconds=float(times.mean()),
            p95_seconds=float(ranks[0][1][0]) if count >= self._min_samples else None,
            # Of the differences to the mean: nothing cancels, however small the spread.
            variance=float(times.var(ddof=1)) if count > 1 else None,
            share=float(times.sum()) / self._whole_seconds if self._whole_seconds > 0 else None,
        )


def _adapters(made: _Maker, rows: Rows, seconds: Floats) -> list[Component]:
    """A row for each adapter that was told, the most used first; they are parts of the stage's own row."""
    has_it = ~np.isnan(seconds)
    # What no table knows is `other`: one row.
    module = np.minimum(rows["lora_module"], len(MODULES) - 1)
    code = rows["lora_rank"].astype(np.int64) << 8 | module
    told, counts = np.unique(code[has_it & (code != 0)], return_counts=True)
    order = told[np.argsort(-counts, kind="stable")].tolist()
    found = [
        made.component(
            "lora_apply",
            "stage",
            "mark",
            np.where(code == each, seconds, np.nan),
            (each >> 8 or None, MODULES[each & 0xFF]),
        )
        for each in order[:LORA_ROWS_MAX]
    ]
    if len(order) > LORA_ROWS_MAX:
        others = np.where(np.isin(code, order[LORA_ROWS_MAX:]), seconds, np.nan)
        found.append(made.component("lora_apply", "stage", "mark", others, (None, OTHER)))
    return found


def _own(rows: Rows, stages: Floats, names: OwnNames) -> list[tuple[str, Floats]]:
    """The servers' own stages by name; beyond `OWN_ROWS_MAX` names they are one."""
    found: dict[str, Floats] = {}
    for pid, slot, stage in _own_slots(rows):
        name = own_stage_name(names, pid, stage)
        if name not in found and len(found) >= OWN_ROWS_MAX:
            name = OTHER
        seconds = found.setdefault(name, np.full(len(rows), np.nan))
        is_its = (rows["pid"] == pid) & (rows["stage_ids"][:, slot] == stage) & ~np.isnan(stages[:, slot])
        seconds[is_its] = np.where(np.isnan(seconds[is_its]), 0.0, seconds[is_its]) + stages[is_its, slot]
    return sorted(found.items())


def _own_slots(rows: Rows) -> list[tuple[int, int, int]]:
    """(pid, slot, stage id) of the own stages that some request passed."""
    found: dict[tuple[int, int, int], None] = defaultdict(None)
    for slot in range(PINNED, rows["stages"].shape[1]):
        is_used = ~np.isnan(rows["stages"][:, slot])
        if is_used.any():
            pairs = distinct(rows["pid"][is_used].astype(np.int64) << 8 | rows["stage_ids"][is_used, slot])
            found |= dict.fromkeys((int(pair) >> 8, slot, int(pair) & 0xFF) for pair in pairs)
    return list(found)
