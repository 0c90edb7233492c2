# SPDX-License-Identifier: Apache-2.0
"""A stage takes several times its usual time per unit of work: by ended stages and by the age of open ones.

Every request pays into a capped sum once: when its open stage grows suspiciously old, and the rest when it
ends. So samples stand in the order in which they became known, and a stall is seen before anything ends.
What takes only some milliseconds more than usual (`stage_latency_floor_seconds`) is as usual, whatever
multiple that is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from hotstage.config.settings import DetectConfig
from hotstage.detect.baseline import Baseline
from hotstage.detect.demand import Demand
from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.detect.latency_judge import CLEAR_SAMPLES, Judge, Sample
from hotstage.detect.open_ages import Allowed, OpenAges
from hotstage.detect.progress import Progress
from hotstage.frame.entity import Entity, EntityKind
from hotstage.stages.pulse import Pulse, Rows
from hotstage.stages.stage import WAITING_STAGES, Stage, modality_name

KIND = "stage_latency"

UNJUDGED = frozenset({*WAITING_STAGES, Stage.model_load})
"""Waiting grows with load and loading happens once: neither has a usual duration."""

_OPEN_SPANS_MAX = 512
_REBASE_NS = 600_000_000_000
"""After so long an alarm, what was unusual is taken as usual and learned anew."""

_NOTHING_USUAL: Allowed = (None, math.inf)

_OWN_LEAST = 0.1
"""Of a duration: what else a hang has left of it is as uncertain as when the hang began and ended."""

_Places = NDArray[np.intp]
_Code = tuple[int, int]
_SpanKey = tuple[int, int]
_OldSpan = tuple[int, float, float, int, _SpanKey]
"""An open span that is too old: begin, excess, seconds, instance, key."""

_COLUMNS = ("label", "modality", "instance", "pid", "began_ns", "duration_ns", "tokens", "count")
_KEY = ("request_hash", "cgroup_id")


@dataclass(slots=True)
class _Stream:
    """One stage (by its label) × modality."""

    label: int
    modality: int
    baseline: Baseline
    whole: Judge
    instances: dict[int, Judge] = field(default_factory=dict)
    paid: dict[_SpanKey, float] = field(default_factory=dict)  # open spans that have paid in, and how much
    is_awake: bool = False
    """A sample came, or something begun that time may end: a judge has something to conclude."""
    is_firing: bool = False
    """A judge is, as of the last conclusion."""

    def note_judges(self) -> None:
        """They have concluded."""
        judges = (self.whole, *self.instances.values())
        self.is_awake = True in [judge.has_news for judge in judges]
        self.is_firing = True in [judge.is_firing for judge in judges]

    @property
    def is_suspicious(self) -> bool:
        return self.whole.is_suspicious or True in [judge.is_suspicious for judge in self.instances.values()]


class StageLatency:
    """Detector `stage_latency`. Not thread-safe."""

    def __init__(self, config: DetectConfig, progress: Progress, demand: Demand) -> None:
        self._factor = config.stage_latency_factor
        self._floor_seconds = config.stage_latency_floor_seconds
        self._min_samples = config.min_baseline_samples
        self._progress = progress
        self._demand = demand
        self._ages = OpenAges()
        self._streams: dict[tuple[int, int], _Stream] = {}

    def observe_pulse(self, pulse: Pulse) -> list[Finding]:
        """What is slow now. Ended spans first: an end decides what its age only suggested."""
        self._judge_ended(pulse)
        open_streams = self._judge_open(pulse)
        found = []
        for code, stream in self._streams.items():
            if stream.is_awake or pulse.at_ns >= stream.baseline.due_ns:
                found.append(self._conclude(stream, pulse, has_open=code in open_streams))
            elif stream.paid and code not in open_streams:
                stream.paid.clear()
        return [finding for finding in found if finding is not None]

    def expected_ns(self, spans: Rows) -> int | None:
        """How long the longest of these open spans takes as a rule; None when one is of an unknown kind.

        By size where sizes explain durations, else what 95 % stay below. 0 for no spans.
        """
        longest = 0.0
        for code, place in _by_stream(spans):
            stream = self._streams.get(code)
            if stream is None or stream.baseline.usual is None:
                return None
            size = stream.baseline.usual.size
            longest = max(longest, float(np.max(size.high(spans["tokens"][place].astype(float)))))
        return round(longest * 1e9)

    def _stream(self, stage: int, modality: int) -> _Stream:
        stream = self._streams.get((stage, modality))
        if stream is None:
            suspicious = 0.9 * float(np.log2(self._factor))
            stream = _Stream(stage, modality, Baseline(self._min_samples, suspicious), Judge(self._factor))
            self._streams[stage, modality] = stream
        return stream

    def _judge_ended(self, pulse: Pulse) -> None:
        # A few spans each of many streams: plain numbers are cheaper here than arrays.
        for stage, modality, instance, pid, began_ns, lasted_ns, tokens, count, *key in _plain(pulse.ended):
            if stage in UNJUDGED:
                continue
            stream = self._streams.get((stage, modality)) or self._stream(stage, modality)
            paid = stream.paid.pop((key[0], key[1]), None)
            own_ns = lasted_ns - self._progress.hung_between(pid, began_ns, began_ns + lasted_ns)
            if own_ns < _OWN_LEAST * lasted_ns:
                continue
            seconds = max(own_ns / max(count, 1), 1e3) / 1e9
            log, size = math.log2(seconds), tokens / max(count, 1)
            if stream.baseline.usual is not None:
                excess = self._worth(stream.baseline.excess_of(log, size, instance), seconds)
                self._pay(stream, Sample(pulse.at_ns, excess, seconds, instance, True, paid))
            if not stream.is_firing:
                stream.baseline.learn(pulse.at_ns, log, size, instance)

    def _judge_open(self, pulse: Pulse) -> set[_Code]:
        """Judge the ages → the streams that have open spans."""
        spans = pulse.open
        allowed: dict[_Code, Allowed] = {}
        for code in zip(spans["label"].tolist(), spans["modality"].tolist(), strict=True):
            if code not in allowed and code[0] not in UNJUDGED:
                stream = self._streams.get(code) or self._stream(*code)
                allowed[code] = stream.baseline.usual, self._level(stream)
        too_old: dict[_Code, list[_OldSpan]] = {}
        for stage, modality, instance, pid, began_ns, _, tokens, _, *key in _plain(
            self._ages.suspects(spans, pulse.at_ns, allowed)
        ):
            code = stage, modality
            usual, level = allowed.get(code, _NOTHING_USUAL)
            if usual is None:
                continue
            until_ns = self._progress.frozen_at(pid, stage, pulse.at_ns)
            own_ns = until_ns - began_ns - self._progress.hung_between(pid, began_ns, until_ns)
            if own_ns <= 0:
                continue
            seconds = own_ns / 1e9
            excess = self._streams[code].baseline.excess_of(math.log2(seconds), tokens, instance)
            excess = self._worth(excess, seconds)
            if excess > level:
                too_old.setdefault(code, []).append((began_ns, excess, seconds, instance, (key[0], key[1])))
        for code, old in too_old.items():
            self._pay_open(self._streams[code], pulse, old)
        return set(allowed)

    def _worth(self, excess: float, seconds: float) -> float:
        """The excess that counts: none below the floor, where a scheduler's slice is many times the usual."""
        is_long = seconds - seconds / 2.0**excess >= self._floor_seconds
        return excess if is_long else min(excess, 0.0)

    def _level(self, stream: _Stream) -> float:
        usual = stream.baseline.usual
        return math.inf if usual is None else stream.whole.level(usual, self._demand.slack)

    def _pay_open(self, stream: _Stream, pulse: Pulse, too_old: list[_OldSpan]) -> None:
        """Open spans that are too old pay what their age is worth; they pay the rest when they end."""
        too_old.sort(key=itemgetter(0))
        for _, excess, seconds, instance, key in too_old[-_OPEN_SPANS_MAX:]:
            sample = Sample(pulse.at_ns, excess, seconds, instance, False, stream.paid.get(key))
            stream.paid[key] = self._pay(stream, sample)
        if len(stream.paid) > 2 * _OPEN_SPANS_MAX:
            spans = pulse.open
            still = set(zip(*(spans[name].tolist() for name in _KEY), strict=True))
            stream.paid = {key: paid for key, paid in stream.paid.items() if key in still}

    def _pay(self, stream: _Stream, sample: Sample) -> float:
        """Give one sample to the stream's judges → what its request has paid in all."""
        stream.is_awake = True
        judge = stream.instances.get(sample.instance)
        if judge is None:
            judge = stream.instances[sample.instance] = Judge(self._factor)
        usual = stream.baseline.usual
        assert usual is not None
        judge.take(sample, usual, self._demand.slack)
        return stream.whole.take(sample, usual, self._demand.slack)

    def _conclude(self, stream: _Stream, pulse: Pulse, *, has_open: bool) -> Finding | None:
        usual = stream.baseline.usual
        was_firing = stream.is_firing
        if usual is not None and stream.is_awake:
            stream.whole.conclude(pulse.at_ns, usual, has_open=has_open)
            fine = stream.whole.fine_in_a_row > CLEAR_SAMPLES
            for judge in stream.instances.values():
                judge.conclude(pulse.at_ns, usual, has_open=has_open, others_fine=fine)
            stream.note_judges()
        firing = stream.is_firing
        if firing and not was_firing:
            stream.baseline.freeze()
        if not firing or usual is None:
            if not has_open:
                stream.paid.clear()
            stream.baseline.advance(pulse.at_ns, is_suspicious=stream.is_suspicious)
            return None
        judges = [judge for judge in (stream.whole, *stream.instances.values()) if judge.is_firing]
        since_ns = min(judge.since_ns for judge in judges)
        if pulse.at_ns - since_ns > _REBASE_NS:
            self._start_over(stream)
            return None
        return self._finding(stream, pulse, max(judges, key=lambda judge: judge.factor()), since_ns)

    def _start_over(self, stream: _Stream) -> None:
        stream.baseline.forget()
        stream.paid.clear()
        stream.whole = Judge(self._factor)
        stream.instances.clear()
        stream.is_firing = False

    def _finding(self, stream: _Stream, pulse: Pulse, judge: Judge, since_ns: int) -> Finding:
        named = lone_instance(stream.instances, since_ns, pulse.at_ns)
        instance = pulse.names.instances[named] if named else ""
        factor, seconds = judge.factor(), judge.typical_seconds()
        usual = seconds / factor
        stage, modality = pulse.names.stages[stream.label], modality_name(stream.modality)
        open_age = judge.oldest_open_seconds(pulse.at_ns)
        where = f" on {instance}" if instance else ""
        times, as_rule = f"{factor:.1f}", f"{usual:.3g} s"
        if usual < self._floor_seconds:
            # So short a time is as uncertain as a scheduler's slice.
            least = max(seconds / self._floor_seconds, 1.0)
            times, as_rule = f"more than {least:.1f}", f"less than {self._floor_seconds:.3g} s"
        summary = (
            f"{stage} ({modality}){where} takes {times} times its usual time per unit of work (its "
            f"tokens, where they are told; the limit is {self._factor:.3g} times): {seconds:.3g} s where "
            f"{as_rule} is usual for that size, by the last {judge.affected} slow ones"
        )
        limit = self._factor
        note = f"median of the last {judge.affected} slow ones; usual {usual:.3g} s"
        evidence = [
            Evidence("stage_duration_ratio", round(factor, 2), limit, "ratio", since_ns, "per unit of work"),
            Evidence(
                "stage_duration_seconds", round(seconds, 4), round(usual * limit, 4), "s", since_ns, note
            ),
        ]
        if open_age > 0:
            note = "still open; its age without the time in which nothing came out of its process"
            evidence.append(Evidence("oldest_age_seconds", round(open_age, 2), None, "s", since_ns, note))
        return Finding(
            detector=KIND,
            kind=KIND,
            entity=Entity(EntityKind.stage, stage=stage, modality=modality, instance=instance or None),
            since_ns=since_ns,
            at_ns=pulse.at_ns,
            score=factor / self._factor,
            limit=self._factor,
            summary=summary,
            severity=Severity.critical if factor >= 2 * self._factor else Severity.warning,
            confidence=min(0.6 + 0.05 * judge.affected, 0.95),
            evidence=tuple(evidence),
        )


def lone_instance(judges: Mapping[int, Judge], since_ns: int, now_ns: int) -> int:
    """The one instance that has been slow since then while all others that work are fine; 0 = none."""
    slow = []
    for instance, judge in judges.items():
        samples, share = judge.slow_share(since_ns)
        if samples >= 2 and share >= 0.4:
            slow.append(instance)
        elif judge.is_recent(now_ns) and (samples < 3 or share >= 0.2):
            return 0
    return slow[0] if len(slow) == 1 else 0


def _plain(spans: Rows) -> Iterator[tuple[int, ...]]:
    """`_COLUMNS` and `_KEY` of each span as numbers of Python."""
    return zip(*(spans[name].tolist() for name in (*_COLUMNS, *_KEY)), strict=True)


def _by_stream(spans: Rows) -> list[tuple[_Code, _Places]]:
    """((stage, modality), rows) of the judged stages."""
    if len(spans) == 0:
        return []
    codes = spans["label"].astype(np.int64) << 8 | spans["modality"]
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    edges = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
    groups = [(int(codes[first]), order[first:last]) for first, last in pairwise(edges)]
    return [((code >> 8, code & 0xFF), place) for code, place in groups if code >> 8 not in UNJUDGED]
