# SPDX-License-Identifier: Apache-2.0
"""What a hang came to: its worst figures, each with when, and its whole length; said once, at its end.

While a hang lasts its figures may fall: requests give up, one of its calls returns, another limit holds. What
closes tells of all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hotstage.detect.finding import Evidence, Finding
from hotstage.detect.progress import Progress
from hotstage.stages.pulse import Pulse

_WORST = frozenset({"progress_silence_seconds", "call_age_seconds", "inflight", "oldest_age_seconds"})
"""Columns of its evidence that are the worse the higher they are."""

_ONE_HANG_NS = 3_000_000_000
"""What is hung again so soon had a break."""


@dataclass(slots=True)
class _Record:
    since_ns: int
    last: Finding
    worst: dict[str, tuple[Evidence, int]] = field(default_factory=dict)
    """Column → its highest value, and when."""
    breaks: int = 0
    is_told: bool = False


class HangRecords:
    """By process. `note` what fires, then ask `ended`. Not thread-safe."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def note(self, pid: int, finding: Finding) -> None:
        """It is hung now."""
        record = self._records.get(pid)
        if record is None:
            record = self._records[pid] = _Record(finding.since_ns, finding)
        record.breaks += record.is_told
        record.is_told = False
        record.last, record.since_ns = finding, min(record.since_ns, finding.since_ns)
        for item in finding.evidence:
            known = record.worst.get(item.column)
            if item.column in _WORST and (known is None or (item.value or 0.0) >= (known[0].value or 0.0)):
                record.worst[item.column] = (item, finding.at_ns)

    def ended(self, pulse: Pulse, progress: Progress) -> list[Finding]:
        """The last word on each hang that has not fired in this pulse any more."""
        found = []
        for pid, record in list(self._records.items()):
            silent_ns = pulse.at_ns - record.last.at_ns
            if not silent_ns:
                continue
            if not record.is_told:
                record.is_told = True
                found.append(_last_word(record, pulse.at_ns, _how_it_ended(pid, record, pulse, progress)))
            if silent_ns > _ONE_HANG_NS:
                del self._records[pid]
        return found


def _how_it_ended(pid: int, record: _Record, pulse: Pulse, progress: Progress) -> str:
    process = next((each for each in progress.processes() if each.pid == pid), None)
    if pulse.stale:
        return "what it did then was not seen"
    if process is None:
        return "then it ended"
    if process.demand_since_ns is None:
        return "then no request waited for its GPU any more"
    if process.output_ns > record.last.at_ns:
        return "then it went on"
    if process.device_ns > record.last.at_ns:
        return "then it launched again, and nothing has come out yet"
    return "what it works on may take longer than that"


def _last_word(record: _Record, now_ns: int, how: str) -> Finding:
    last, entity = record.last, record.last.entity
    who = f"{entity.instance or 'process'} (pid {entity.pid})"
    silence, _ = record.worst["progress_silence_seconds"]
    inflight, _ = record.worst["inflight"]
    call = record.worst.get("call_age_seconds")
    stuck = "" if call is None else f"; {call[0].note} for {call[0].value:.1f} s"
    length = f"{(now_ns - record.since_ns) / 1e9:.1f} s"
    if record.breaks:
        length += f", with {record.breaks} short break{'s' if record.breaks > 1 else ''}"
    return replace(
        last,
        at_ns=now_ns,
        since_ns=record.since_ns,
        is_over=True,
        summary=(
            f"{who} was hung for {length}: {silence.note} for up to {silence.value:.1f} s, with up to "
            f"{inflight.value:.0f} requests in flight{stuck}; {how}"
        ),
        evidence=tuple(_at_worst(item, record) for item in last.evidence)
        + tuple(
            _at_worst(item, record)
            for column, (item, _) in record.worst.items()
            if column not in {each.column for each in last.evidence}
        ),
    )


def _at_worst(item: Evidence, record: _Record) -> Evidence:
    """The item at its highest, with how long after the hang began that was."""
    if item.column not in record.worst:
        return item
    worst, at_ns = record.worst[item.column]
    said = f"at its highest, {(at_ns - record.since_ns) / 1e9:.1f} s after the hang began"
    return replace(worst, note=f"{worst.note}; {said}")
