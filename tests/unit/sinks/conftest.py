# SPDX-License-Identifier: Apache-2.0
"""Ticks with something in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import Entity
from hotstage.frame.frame import Frame
from hotstage.sinks.base import Tick
from hotstage.sinks.self_facts import SelfFacts
from hotstage.stages.pulse import Pulse, quiet_pulse
from hotstage.stages.spans import REQUEST_DTYPE, SPAN_DTYPE
from hotstage.stages.stage import Modality, Stage
from hotstage.windows.window import WindowUpdate

MS = 1_000_000


@pytest.fixture
def a_pulse() -> Any:
    """`a_pulse(stages=[(stage, modality, seconds, pid, count)], requests=[(endpoint, modality, outcome,
    seconds)])`.
    """

    def build(stages: Any = (), requests: Any = (), open_stages: Any = ()) -> Pulse:
        pulse = quiet_pulse(1_000)
        names = pulse.names
        model = names.models.intern("vlm")
        ended = np.zeros(len(stages), SPAN_DTYPE)
        for row, (stage, modality, seconds, pid, count) in zip(ended, stages, strict=True):
            row["stage"], row["modality"], row["pid"], row["count"] = (
                Stage[stage],
                Modality[modality],
                pid,
                count,
            )
            row["label"] = row["stage"]
            row["duration_ns"], row["model"] = round(seconds * 1e9), model
        opened = np.zeros(len(open_stages), SPAN_DTYPE)
        for row, (stage, modality, pid) in zip(opened, open_stages, strict=True):
            row["stage"], row["modality"], row["pid"] = Stage[stage], Modality[modality], pid
            row["label"], row["model"], row["is_open"] = row["stage"], model, True
        finished = np.zeros(len(requests), REQUEST_DTYPE)
        for row, (endpoint, modality, outcome, seconds) in zip(finished, requests, strict=True):
            row["endpoint"], row["modality"] = names.endpoints.intern(endpoint), Modality[modality]
            row["outcome"], row["model"] = outcome, model
            row["started_ns"], row["ended_ns"] = 5, 5 + round(seconds * 1e9)
        return replace(pulse, ended=ended, open=opened, requests_ended=finished)

    return build


@pytest.fixture
def a_tick(a_pulse: Any) -> Any:
    def build(**changed: Any) -> Tick:
        fields = {
            "pulse": a_pulse(),
            "windows": WindowUpdate(),
            "breakers": (),
            "transitions": (),
            "wall_offset_ns": 1_000 * 1_000_000_000,
        }
        return Tick(**(fields | changed))

    return build


@pytest.fixture
def a_frame() -> Any:
    """`a_frame({entity: {column: value}}, stale=…)` → Frame."""

    def build(cells: dict[Entity, dict[str, float]], stale: Any = ()) -> Frame:
        values = np.full((len(cells), len(COLUMNS)), np.nan)
        for row, columns in enumerate(cells.values()):
            for name, value in columns.items():
                values[row, COLUMN_INDEX[name]] = value
        return Frame(1_000, tuple(cells), values, frozenset(stale))

    return build


@pytest.fixture
def plain_facts() -> SelfFacts:
    """An agent without store, outbox and notifier."""
    return SelfFacts(
        version="0.1.0", loader="libbpf", rung="S", fast_ticks=20, slow_ticks=2, late_ticks=1,
        fast_tick_p99_seconds=0.004, slow_tick_p99_seconds=None, attached_symbols=40, missed_symbols=2,
        map_bytes=1 << 20, page_dropped=0, is_ticking=True,
        losses={"lost_threads": 0}, sink_errors={"prometheus": 0},
    )  # fmt: skip
