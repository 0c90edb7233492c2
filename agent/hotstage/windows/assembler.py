# SPDX-License-Identifier: Apache-2.0
"""Findings → anomaly windows: one story, one window, one id; opened at once, closed with hysteresis.

Knows no sink and no clock. A stale step changes nothing but what hard facts say: absence was not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hotstage.config.settings import WindowsConfig
from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.frame.entity import Entity
from hotstage.frame.request_costs import Penalties
from hotstage.windows.relation import XID, breaks_server, explains, is_consequence, rank, same_subject, weight
from hotstage.windows.window import AnomalyWindow, Candidate, Cause, WindowUpdate

NewId = Callable[[int], str]
"""A sortable unique id for a window that opens at this CLOCK_MONOTONIC time."""

GpuOf = Callable[[Entity], str | None]
"""UUID of the GPU that a process or instance computes on; None where that is not known, or not one."""

_NO_PENALTIES = Penalties()
_TOLD_AGAIN_NS = 1_000_000_000
OUTLIVES_NS = 20_000_000_000
"""What still fires so long after its supposed cause has ended is a story of its own. Not sooner: where few
requests come, a consequence ends late.
"""
_MEMBERS_MAX = 16
_ONE_MOMENT_SECONDS = 0.05
_EVIDENCE_MAX = 24


@dataclass(slots=True)
class _Story:
    """An open window and the findings in it, the cause first."""

    id: str
    opened_ns: int
    members: list[Finding]
    seen_ns: int
    """When one of them last fired."""
    cause_ns: int
    """When the cause last fired."""
    score: float
    peak_ns: int
    severity: Severity
    told: AnomalyWindow | None = None
    told_ns: int = 0
    subjects: set[tuple[str, str]] = field(default_factory=set)
    caused_by: str | None = None
    is_untold: bool = False
    """Something was learned that a reader would want at once."""


class Assembler:
    """`advance` once a fast tick with all findings that fire now. Not thread-safe."""

    def __init__(self, config: WindowsConfig, new_id: NewId) -> None:
        self.take_over(config)
        self._new_id = new_id
        self._penalties = _NO_PENALTIES
        self._stories: list[_Story] = []
        self.refused = 0
        """Windows that were not opened because too many were open."""

    def take_over(self, config: WindowsConfig) -> None:
        """Other limits from now on; windows that are open stay."""
        self._close_after_ns = round(config.close_after_seconds * 1e9)
        self._max_open = config.max_open

    def advance(
        self,
        now_ns: int,
        findings: Sequence[Finding],
        *,
        is_stale: bool = False,
        penalties: Penalties = _NO_PENALTIES,
        gpu_of: GpuOf = lambda _: None,
    ) -> WindowUpdate:
        """One step. `is_stale`: the telemetry of this step may hide things (losses, missed ticks);
        `penalties` rank causes that are else nearly equal; `gpu_of` tells which servers an XID explains.
        """
        self._penalties = penalties
        opened: list[_Story] = []
        for finding in findings:
            if finding.is_over:
                self._end(finding)
        firing = [finding for finding in findings if not finding.is_over]
        # The strongest first, so that a consequence finds its cause's window.
        for finding in sorted(firing, key=lambda each: (-weight(each), each.since_ns, -each.score)):
            story = self._story_of(finding)
            if story is not None:
                self._join(story, finding, now_ns)
            elif finding.is_hard or not is_stale:
                story = self._open(finding, now_ns)
                opened += [story] if story is not None else []
        self._link(gpu_of)
        closed: list[_Story] = []
        if not is_stale:
            closed = [story for story in self._stories if self._is_over(story, now_ns)]
        self._stories = [story for story in self._stories if story not in closed]
        told_open = tuple(self._tell(story, now_ns) for story in opened)
        updated = tuple(
            self._tell(story, now_ns)
            for story in self._stories
            if story not in opened and self._has_news(story, now_ns)
        )
        return WindowUpdate(
            opened=told_open,
            updated=updated,
            closed=tuple(replace(self._tell(story, now_ns), closed_ns=now_ns) for story in closed),
            open=tuple(story.told for story in self._stories if story.told is not None),
            is_stale=is_stale,
        )

    def _is_over(self, story: _Story, now_ns: int) -> bool:
        """Nothing in it fires any more, or only what is no consequence of its cause; that opens its own."""
        return (
            now_ns - story.seen_ns >= self._close_after_ns
            or now_ns - story.cause_ns >= self._close_after_ns + OUTLIVES_NS
        )

    def _story_of(self, finding: Finding) -> _Story | None:
        for story in self._stories:
            if any(same_subject(member, finding) for member in story.members):
                return story
        for story in self._stories:
            cause = story.members[0]
            # What began after the cause had ended has nothing to do with it, though its window is still open.
            began_in_it = finding.since_ns <= story.cause_ns
            if began_in_it and (is_consequence(finding, cause) or explains(finding, cause)):
                return story
        return None

    def _end(self, last: Finding) -> None:
        """The last word on what fires no more: it neither opens a window nor keeps one open."""
        for story in self._stories:
            for place, member in enumerate(story.members):
                if same_subject(member, last):
                    story.members[place], story.is_untold = last, True

    def _link(self, gpu_of: GpuOf) -> None:
        """Name the XID's window in those of the servers that it explains."""
        xids = [story for story in self._stories if story.members[0].kind == XID]
        for story in self._stories if xids else ():
            first = story.members[0]
            if story.caused_by is None and first.kind != XID:
                gpu = gpu_of(first.entity)
                cause = next((x for x in xids if breaks_server(x.members[0], x.cause_ns, first, gpu)), None)
                if cause is not None:
                    story.caused_by, story.is_untold = cause.id, True

    def _open(self, finding: Finding, now_ns: int) -> _Story | None:
        if len(self._stories) >= self._max_open:
            self.refused += 1
            return None
        story = _Story(
            id=self._new_id(now_ns),
            opened_ns=now_ns,
            members=[finding],
            seen_ns=now_ns,
            cause_ns=now_ns,
            score=finding.score,
            peak_ns=now_ns,
            severity=finding.severity,
            subjects={(finding.kind, str(finding.entity))},
        )
        self._stories.append(story)
        return story

    def _join(self, story: _Story, finding: Finding, now_ns: int) -> None:
        story.seen_ns = now_ns
        story.severity = max(story.severity, finding.severity)
        story.subjects.add((finding.kind, str(finding.entity)))
        for place, member in enumerate(story.members):
            if same_subject(member, finding):
                story.members[place] = finding
                break
        else:
            if len(story.members) < _MEMBERS_MAX:
                story.members.append(finding)
        cause = story.members[0]
        better = [member for member in story.members[1:] if explains(member, cause)]
        if better:
            story.members.remove(better[0])
            story.members.insert(0, better[0])
        if same_subject(story.members[0], finding):
            story.cause_ns = now_ns
        if story.members[0].score > story.score or better:
            story.score, story.peak_ns = story.members[0].score, now_ns

    def _has_news(self, story: _Story, now_ns: int) -> bool:
        """Something a reader would want at once, or a second has passed while it is firing."""
        told = story.told
        if told is None or story.is_untold:
            return True
        cause = story.members[0]
        if (told.kind, told.entity, told.severity) != (cause.kind, cause.entity, story.severity):
            return True
        return story.seen_ns > told.updated_ns and now_ns - story.told_ns >= _TOLD_AGAIN_NS

    def _tell(self, story: _Story, now_ns: int) -> AnomalyWindow:
        cause = story.members[0]
        ranked = [cause, *sorted(story.members[1:], key=lambda each: rank(each, self._penalties))]
        window = AnomalyWindow(
            id=story.id,
            kind=cause.kind,
            severity=story.severity,
            entity=cause.entity,
            opened_ns=story.opened_ns,
            updated_ns=story.seen_ns,
            peak_ns=story.peak_ns,
            closed_ns=None,
            score=round(story.score, 3),
            cause=Cause(
                kind=cause.kind,
                summary=cause.summary,
                confidence=round(cause.confidence, 2),
                candidates=_candidates(ranked),
            ),
            evidence=tuple(item for member in ranked for item in _as_of(member, cause.at_ns))[:_EVIDENCE_MAX],
            findings=len(story.subjects),
            labels=dict(cause.labels),
            caused_by=story.caused_by,
        )
        story.told, story.told_ns, story.is_untold = window, now_ns, False
        return window


def _as_of(member: Finding, at_ns: int) -> tuple[Evidence, ...]:
    """Its evidence; figures of another moment than `at_ns` say so: what fires no more keeps its last ones."""
    apart = (member.at_ns - at_ns) / 1e9
    if abs(apart) < _ONE_MOMENT_SECONDS:
        return member.evidence
    said = f"as of {abs(apart):.1f} s {'after' if apart > 0 else 'before'} the cause's figures"
    return tuple(
        replace(item, note=f"{item.note}; {said}" if item.note else said) for item in member.evidence
    )


def _candidates(ranked: Sequence[Finding]) -> tuple[Candidate, ...]:
    """All findings as possible causes; what the first one explains is worth half of what it says itself."""
    return tuple(
        Candidate(
            kind=finding.kind,
            confidence=round(finding.confidence if place == 0 else finding.confidence / 2, 2),
            why=finding.summary,
            entity=finding.entity,
        )
        for place, finding in enumerate(ranked)
    )
