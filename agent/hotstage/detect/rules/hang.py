# SPDX-License-Identifier: Apache-2.0
"""Alive but hung: requests in flight, the process lives, and nothing moves on the device any more.

Silence is measured per process and only while requests wait for the device. Not hung: idle, starting up or
loading a model, a long prefill that its size explains, a request that its server forgot, a dead process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotstage.config.settings import DetectConfig
from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.detect.progress import Gap, ProcessProgress, Progress
from hotstage.detect.rules.hang_record import HangRecords
from hotstage.detect.stage_latency import StageLatency
from hotstage.frame.entity import Entity, EntityKind
from hotstage.probes.catalogue import calls_by_id
from hotstage.stages.pulse import Pulse, Rows
from hotstage.stages.stage import NO_STAGE, Stage, modality_name

KIND = "alive_but_hung"

_GAPS = 3.0
"""Silence must last this many times the longest pause that ended by itself."""

_GAP_LIMIT_NS = 20_000_000_000
_SINGLE_CALLS = 1.5
_PREFILLS = 3.0
_HOST_LIMIT_NS = 30_000_000_000
_STARTUP_NS = 120_000_000_000
"""Patience with a process that has not proven itself, and with work of a kind that was never seen to end."""

_LOADING_NS = 2_400_000_000_000


@dataclass(frozen=True, slots=True)
class _Silence:
    since_ns: int
    limit_ns: int
    what: str


class Hang:
    """Detector `alive_but_hung`. `latency` knows how long open work of a size may take. Not thread-safe."""

    def __init__(self, config: DetectConfig, progress: Progress, latency: StageLatency) -> None:
        self.take_over(config)
        self._progress = progress
        self._latency = latency
        self._records = HangRecords()
        self._call_names = {call_id: call.name for call_id, call in calls_by_id().items()}

    def take_over(self, config: DetectConfig) -> None:
        """Judge by these limits from now on."""
        self._limit_ns = round(config.hang_seconds * 1e9)
        self._blind_limit_ns = round(config.hang_without_cadence_seconds * 1e9)

    def observe_pulse(self, pulse: Pulse) -> list[Finding]:
        """Every process that is hung now, and once each the last word on those that are not any more. A pulse
        that may not show absence finds nothing new.
        """
        findings = []
        for process in self._progress.processes():
            silence = self._silence(process, pulse)
            if silence is not None and pulse.at_ns - silence.since_ns >= silence.limit_ns:
                process.hung_ns = (silence.since_ns, pulse.at_ns)
                findings.append(self._finding(process, silence, pulse))
                self._records.note(process.pid, findings[-1])
        return findings + self._records.ended(pulse, self._progress)

    def _silence(self, process: ProcessProgress, pulse: Pulse) -> _Silence | None:
        """The silence to hold against a limit; None while nobody waits, or not for long enough."""
        demand_ns = process.demand_since_ns
        if demand_ns is None:
            return self._host_silence(process, pulse)
        if process.is_loading:
            return _Silence(max(process.any_ns, demand_ns), _LOADING_NS, "nothing has moved while loading")
        device_ns, output_ns = max(process.device_ns, demand_ns), max(process.output_ns, demand_ns)
        if pulse.at_ns - output_ns < self._limit_ns:
            return None
        spans = _spans_of(process, pulse)
        if process.has_cadence and pulse.at_ns - device_ns >= self._limit_ns:
            limit_ns = self._cadence_ns(process.launch_gap, spans, device_ns)
            if pulse.at_ns - device_ns >= limit_ns:
                return _Silence(device_ns, limit_ns, "no launch, no stage end and no token")
        if process.is_proven and process.launches_collapsed:
            limit_ns = self._cadence_ns(process.output_gap, spans, output_ns)
            if pulse.at_ns - output_ns >= limit_ns:
                return _Silence(output_ns, limit_ns, "hardly a launch, no stage end and no token")
        return _Silence(
            output_ns,
            self._patience_ns(process, spans, self._blind_limit_ns),
            "no stage has ended and no token has come out",
        )

    def _cadence_ns(self, gap: Gap, spans: Rows, since_ns: int) -> int:
        """How long a process with a known cadence may be silent.

        Decoding gives tokens all the time; one prefill or encoder call may be one long wait, by its size.
        """
        single = spans[(spans["began_ns"] <= since_ns) & (spans["stage"] != Stage.llm_decode)]
        single_ns = round(_SINGLE_CALLS * (self._latency.expected_ns(single) or 0))
        return max(self._limit_ns, min(round(_GAPS * gap.longest_ns), _GAP_LIMIT_NS), single_ns)

    def _host_silence(self, process: ProcessProgress, pulse: Pulse) -> _Silence | None:
        """All requests are in stages of the CPU and none of these ends; a slow peer may be the reason."""
        if pulse.at_ns - process.any_ns < _HOST_LIMIT_NS:
            return None
        spans = _spans_of(process, pulse)
        if len(spans) == 0:
            return None
        since_ns = max(process.any_ns, int(spans["began_ns"].min()))
        if pulse.at_ns - since_ns < _HOST_LIMIT_NS:
            return None
        return _Silence(since_ns, self._patience_ns(process, spans, _HOST_LIMIT_NS), "no stage has ended")

    def _patience_ns(self, process: ProcessProgress, spans: Rows, least_ns: int) -> int:
        expected_ns = self._latency.expected_ns(spans)
        if expected_ns is None or not process.is_proven:
            return max(_STARTUP_NS, least_ns)
        return max(least_ns, round(_PREFILLS * expected_ns))

    def _finding(self, process: ProcessProgress, silence: _Silence, pulse: Pulse) -> Finding:
        seconds, limit = (pulse.at_ns - silence.since_ns) / 1e9, silence.limit_ns / 1e9
        instance = pulse.names.instances[process.instance] or None
        row = pulse.processes[pulse.processes["pid"] == process.pid][0]
        oldest_stage = _stage_of_oldest(pulse, process.pid)
        stage, modality = _stage_of_call(row, pulse) or oldest_stage
        stuck, stuck_evidence = self._stuck_call(row, pulse.at_ns)
        oldest_ns = int(row["oldest_request_ns"])
        oldest = round((pulse.at_ns - oldest_ns) / 1e9, 2)
        pause = round(process.output_gap.longest_ns / 1e9, 2)
        silent, allowed = round(seconds, 2), round(limit, 2)
        where = f"oldest request, in {oldest_stage[0] or 'no stage'}"
        evidence = (
            Evidence("progress_silence_seconds", silent, allowed, "s", silence.since_ns, silence.what),
            *stuck_evidence,
            Evidence("inflight", float(process.open_requests), None, "", None, "requests in flight"),
            Evidence("oldest_age_seconds", oldest, None, "s", oldest_ns, where),
            Evidence("longest_pause_seconds", pause, None, "s", None, "that ended by itself while busy"),
        )
        return Finding(
            detector=KIND,
            kind=KIND,
            entity=Entity(
                EntityKind.instance, instance=instance, pid=process.pid, stage=stage, modality=modality
            ),
            since_ns=silence.since_ns,
            at_ns=pulse.at_ns,
            score=seconds / limit,
            limit=limit,
            summary=(
                f"{instance or 'process'} (pid {process.pid}) lives but is hung: {silence.what} for "
                f"{seconds:.1f} s with {process.open_requests} requests in flight{stuck}"
            ),
            severity=Severity.critical,
            confidence=0.95 if process.has_cadence else 0.8,
            evidence=evidence,
        )

    def _stuck_call(self, row: np.void, now_ns: int) -> tuple[str, tuple[Evidence, ...]]:
        """The call that a thread of the process sits in longest, in words and as evidence."""
        call, since_ns = int(row["call"]), int(row["call_since_ns"])
        if call == 0:
            return "", ()
        name = self._call_names.get(call, f"call {call}")
        held = (now_ns - since_ns) / 1e9
        note = f"thread {int(row['call_tid'])} in {name}"
        words = f"; thread {int(row['call_tid'])} has been in {name} for {held:.1f} s"
        return words, (Evidence("call_age_seconds", round(held, 2), None, "s", since_ns, note),)


def _spans_of(process: ProcessProgress, pulse: Pulse) -> Rows:
    spans: Rows = pulse.open[pulse.open["pid"] == process.pid]
    return spans


def _stage_of_call(row: np.void, pulse: Pulse) -> tuple[str, str] | None:
    """Stage and modality of the thread that sits in its call longest; None where that one is in no stage."""
    stage = int(row["call_stage"])
    if int(row["call"]) == 0 or stage == NO_STAGE:
        return None
    stages = pulse.names.stages
    return stages[stages.label_of(int(row["pid"]), stage)], modality_name(int(row["call_modality"]))


def _stage_of_oldest(pulse: Pulse, pid: int) -> tuple[str | None, str | None]:
    """Stage and modality that the process's oldest request sits in; None when it is in none."""
    spans = pulse.open[pulse.open["pid"] == pid]
    if len(spans) == 0:
        return None, None
    requests = pulse.requests_open[pulse.requests_open["pid"] == pid]
    if len(requests):
        oldest = requests[np.argmin(requests["started_ns"])]
        own = spans[spans["request_hash"] == oldest["request_hash"]]
        spans = own if len(own) else spans
    span = spans[np.argmax(spans["began_ns"])]
    label = int(span["label"])
    return (None if label == NO_STAGE else pulse.names.stages[label]), modality_name(int(span["modality"]))
