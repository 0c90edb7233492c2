# SPDX-License-Identifier: Apache-2.0
"""Run a stream of pulses through detectors and assembler, and say which windows there were and when."""

from __future__ import annotations

from dataclasses import dataclass

from hotstage.config.settings import DetectConfig, WindowsConfig
from hotstage.detect.base import Detectors
from hotstage.windows.assembler import Assembler
from support.streams import START, Streams, Traffic


@dataclass
class Seen:
    """One window, times in seconds from the start of the run."""

    kind: str
    stage: str | None
    modality: str | None
    instance: str | None
    opened: float
    closed: float | None
    summary: str
    members: int


def windows_of(traffic: Traffic | None = None, *, pulses=None) -> list[Seen]:
    """All windows of a run, in order of opening; the last state of each."""
    detectors = Detectors(DetectConfig())
    ids = iter(range(10**9))
    assembler = Assembler(WindowsConfig(), lambda opened_ns: f"w{next(ids):09d}")
    last = {}
    for pulse in pulses if pulses is not None else Streams(traffic):
        update = assembler.advance(pulse.at_ns, detectors.observe_pulse(pulse), is_stale=bool(pulse.stale))
        for window in (*update.opened, *update.updated, *update.closed):
            last[window.id] = window
    return [_seen(window) for _, window in sorted(last.items())]


def _seen(window):
    entity = window.entity
    return Seen(
        kind=window.kind,
        stage=entity.stage,
        modality=entity.modality,
        instance=entity.instance,
        opened=(window.opened_ns - START) / 1e9,
        closed=None if window.closed_ns is None else (window.closed_ns - START) / 1e9,
        summary=window.cause.summary,
        members=window.findings,
    )
