# SPDX-License-Identifier: Apache-2.0
"""Vision and text share a stream (RULES k): the encoder and the language model of one process wait for each
other, whatever the GPU has free. How a server is built, so it is information: it moves no breaker.

Judged only at moments when both are at work (the demand gate), of which k of the last n must show them on one
stream. A moment with losses says nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.stages.pulse import Pulse
from hotstage.stages.stage import modality_name, stage_name
from hotstage.stages.stream_looks import StreamLook

KIND = "shared_stream"
K, N = 5, 8
"""Of the last N moments at which both worked, so many on one stream; it ends below half of that."""
FORGET_NS = 30_000_000_000
"""A moment older than this says nothing of now."""

_REMEMBERED = 256
_CONFIDENCE, _CONFIDENCE_UNMARKED = 0.9, 0.6


@dataclass(slots=True)
class _Process:
    recent: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=N))
    """(when, whether on one stream)."""
    since_ns: int | None = None
    """When it began to fire."""
    last: StreamLook | None = None
    """The newest moment at which they shared one."""

    @property
    def hits(self) -> int:
        return sum(is_shared for _, is_shared in self.recent)


class SharedStream:
    """Detector `shared_stream`. Not thread-safe."""

    def __init__(self) -> None:
        self._processes: dict[int, _Process] = {}

    def observe_pulse(self, pulse: Pulse) -> list[Finding]:
        """Processes whose encoders and language model share a stream now."""
        if not pulse.stale:
            for look in pulse.stream_looks:
                self._take(look, pulse.at_ns)
        findings = []
        for pid, process in list(self._processes.items()):
            while process.recent and pulse.at_ns - process.recent[0][0] > FORGET_NS:
                process.recent.popleft()
            if not process.recent:
                del self._processes[pid]
                continue
            if process.hits >= K and process.since_ns is None:
                process.since_ns = pulse.at_ns
            elif 2 * process.hits < K:
                process.since_ns = None
            if process.since_ns is not None and process.last is not None:
                findings.append(_finding(process.last, process, process.since_ns, pulse))
        return findings

    def _take(self, look: StreamLook, at_ns: int) -> None:
        process = self._processes.get(look.pid)
        if process is None:
            if len(self._processes) >= _REMEMBERED:
                return
            process = self._processes[look.pid] = _Process()
        process.recent.append((at_ns, look.stream is not None))
        if look.stream is not None:
            process.last = look


def _finding(look: StreamLook, process: _Process, since_ns: int, pulse: Pulse) -> Finding:
    rows = pulse.processes[pulse.processes["pid"] == look.pid]
    instance = (pulse.names.instances[int(rows["instance"][0])] or None) if len(rows) else None
    encoder, language, modality = (
        stage_name(look.encoder),
        stage_name(look.language),
        modality_name(look.modality),
    )
    which = "its default stream" if not look.stream else f"stream {look.stream:#x}"
    moments = f"of {len(process.recent)} moments at which both were at work"
    return Finding(
        detector=KIND,
        kind=KIND,
        entity=Entity(EntityKind.stage, stage=encoder, modality=modality, instance=instance, pid=look.pid),
        since_ns=since_ns,
        at_ns=pulse.at_ns,
        score=1.0,
        limit=1.0,
        summary=(
            f"{instance or 'A server'} (pid {look.pid}) runs {encoder} ({modality}) and {language} on "
            f"{which}, in {process.hits} {moments}: each waits for the other, whatever the GPU has free"
        ),
        severity=Severity.info,
        confidence=_CONFIDENCE if look.is_marked else _CONFIDENCE_UNMARKED,
        evidence=(
            Evidence("moments_on_one_stream", float(process.hits), float(K), "", since_ns, moments),
            Evidence("stream", float(look.stream or 0), None, "", since_ns, which),
        ),
        labels={"stage": encoder, "modality": modality, "beside": language},
    )
