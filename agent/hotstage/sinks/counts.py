# SPDX-License-Identifier: Apache-2.0
"""Pulses, call samples, windows and transitions → cumulative counts.

Vectorised: the tick pays per group, not per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hotstage.breaker.record import BreakerState, Transition
from hotstage.frame.frame import Frame
from hotstage.probes.samples import CallSample, XidEvent
from hotstage.sinks import metrics
from hotstage.sinks.call_counts import MODALITIES, CallCounts
from hotstage.sinks.scheduling import SchedulingCounts
from hotstage.sinks.slo import BAD, GOOD, Slos
from hotstage.sinks.tally import HistogramTally, Tally
from hotstage.stages.labels import StageLabels
from hotstage.stages.pulse import Pulse
from hotstage.windows.window import AnomalyWindow

_TIMED = frozenset({"ok", "error", "cancelled"})
"""A refused request took no time worth knowing, a lost one has no end."""

COLLECTORS = ("requests", "calls", "host", "devices")

OUTCOMES = ("ok", "error", "cancelled", "refused", "lost")


class Counts:
    """Everything that only grows. Not thread-safe."""

    def __init__(self, slos: Slos | None = None) -> None:
        self._slos = slos or Slos(())
        self.slo_events = Tally(metrics.SLO_EVENTS)
        for each in self._slos.objectives:
            # Both from the start: a ratio over an absent series has no value.
            self.slo_events.add((each.name, GOOD), 0)
            self.slo_events.add((each.name, BAD), 0)
        self.stage_duration = HistogramTally(metrics.STAGE_DURATION)
        self.request_duration = HistogramTally(metrics.ENDPOINT_DURATION)
        self.requests = Tally(metrics.ENDPOINT_REQUESTS)
        self._calls = CallCounts()
        self.calls, self.call_errors, self.waits = self._calls.calls, self._calls.errors, self._calls.waits
        self.windows = Tally(metrics.WINDOW_ANOMALIES)
        self.transitions = Tally(metrics.BREAKER_TRANSITIONS)
        self.xids = Tally(metrics.GPU_XID)
        self.graph_kernels = Tally(metrics.STAGE_GRAPH_KERNELS)
        self.unknown_graphs = Tally(metrics.UNKNOWN_GRAPHS)
        self.scheduling = SchedulingCounts()
        self.xid_last_seconds: dict[tuple[str, str], float] = {}
        self.fresh_seconds: dict[str, float] = {}
        """Source → Unix time when a frame last had it fresh."""
        self._graphs_before: dict[bytes, tuple[int, int]] = {}

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return (
            self.requests,
            self.slo_events,
            self.calls,
            self.call_errors,
            self.waits,
            self.graph_kernels,
            self.unknown_graphs,
            self.windows,
            self.transitions,
            self.xids,
            self.scheduling.off_cpu,
            self.scheduling.switches,
            self.scheduling.page_faults,
        )

    @property
    def histograms(self) -> tuple[HistogramTally, ...]:
        return (self.stage_duration, self.request_duration, self.scheduling.waits)

    def add_pulse(self, pulse: Pulse, gpu_of_pid: Mapping[int, str]) -> None:
        """Ended stages and requests; each is in one pulse only."""
        self._add_stages(pulse, gpu_of_pid)
        self._add_requests(pulse)

    def add_calls(self, sample: CallSample, stages: StageLabels) -> None:
        """What moved since the sample before."""
        self._calls.add(sample, stages)
        self._add_graphs(sample, stages)

    def _add_graphs(self, sample: CallSample, stages: StageLabels) -> None:
        """What graph launches have run since the sample before."""
        keys, work = sample.graphs
        raw, size = keys.tobytes(), keys.dtype.itemsize
        told = {}
        columns = [*(keys[name].tolist() for name in ("tgid", "stage", "modality"))]
        columns += [work[name].tolist() for name in ("kernels", "unknown")]
        for row, (pid, stage, modality, kernels, unknown) in enumerate(zip(*columns, strict=True)):
            key = raw[row * size : (row + 1) * size]
            told[key] = kernels, unknown
            before = self._graphs_before.get(key, (0, 0))
            if kernels < before[0] or unknown < before[1]:
                before = 0, 0
            if kernels > before[0]:
                of = (stages[stages.label_of(pid, stage)], MODALITIES[modality])
                self.graph_kernels.add(of, kernels - before[0])
            if unknown > before[1]:
                self.unknown_graphs.add((), unknown - before[1])
        self._graphs_before = told

    def add_frame(self, frame: Frame, wall_offset_ns: int) -> None:
        """When each source was last fresh."""
        at_seconds = (frame.at_ns + wall_offset_ns) / 1e9
        self.fresh_seconds |= dict.fromkeys(set(COLLECTORS) - frame.stale, at_seconds)

    def add_windows(self, opened: Iterable[AnomalyWindow]) -> None:
        for window in opened:
            self.windows.add(window_labels(window))

    def add_transitions(self, transitions: Iterable[Transition]) -> None:
        for move in transitions:
            self.transitions.add((move.name, move.from_state.value, move.to_state.value, _reason(move)))

    def add_xids(self, xids: Iterable[XidEvent], uuid_by_bus: Mapping[str, str], wall_offset_ns: int) -> None:
        """A GPU that NVML does not list keeps its bus id in place of its UUID."""
        for event in xids:
            labels = (uuid_by_bus.get(event.pci_bus_id, event.pci_bus_id), str(event.xid))
            self.xids.add(labels)
            if len(self.xid_last_seconds) < metrics.GPU_XID_LAST.cap or labels in self.xid_last_seconds:
                self.xid_last_seconds[labels] = (event.at_ns + wall_offset_ns) / 1e9

    def _add_stages(self, pulse: Pulse, gpu_of_pid: Mapping[int, str]) -> None:
        ended = pulse.ended[pulse.ended["count"] > 0]
        if len(ended) == 0:
            return
        models, stages = pulse.names.models, pulse.names.stages
        seconds = ended["duration_ns"] / ended["count"] / 1e9
        columns = [ended[name].tolist() for name in ("label", "modality", "model", "pid", "count")]
        buckets = self.stage_duration.buckets(seconds)
        for label, modality, model, pid, count, bucket, value in zip(
            *columns, buckets, seconds.tolist(), strict=True
        ):
            labels = (stages[label], MODALITIES[modality], models[model], gpu_of_pid.get(pid, ""))
            self.stage_duration.add(labels, bucket, value, count)

    def _add_requests(self, pulse: Pulse) -> None:
        ended = pulse.requests_ended
        if len(ended) == 0:
            return
        names = pulse.names
        # A lost request has no end; its duration is not used.
        seconds = (ended["ended_ns"].astype(np.int64) - ended["started_ns"].astype(np.int64)) / 1e9
        columns = [ended[name].tolist() for name in ("endpoint", "modality", "model", "outcome")]
        buckets = self.request_duration.buckets(seconds)
        for endpoint, modality, model, outcome, bucket, value in zip(
            *columns, buckets, seconds.tolist(), strict=True
        ):
            labels = (names.endpoints[endpoint], MODALITIES[modality], names.models[model])
            name = OUTCOMES[outcome] if outcome < len(OUTCOMES) else "unknown"
            self.requests.add((*labels, name))
            for event in self._slos.judge(labels[0], name, value):
                self.slo_events.add(event)
            if name in _TIMED:
                self.request_duration.add(labels, bucket, value)


def window_labels(window: AnomalyWindow) -> tuple[str, str, str]:
    """Bounded enums only; a window's id is never a label."""
    return (window.kind, window.severity.name, window.entity.stage or "")


def _reason(move: Transition) -> str:
    """The sentence in `reason` is for people; this is the enum for series."""
    if move.actor is not None:
        return "override"
    match move.to_state:
        case BreakerState.half_open:
            return "cool_down"
        case BreakerState.closed:
            return "recovered"
        case BreakerState.open if move.from_state is BreakerState.half_open:
            return "relapse"
        case BreakerState.open:
            return "window"
        case _:
            return "override"
