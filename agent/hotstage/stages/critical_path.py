# SPDX-License-Identifier: Apache-2.0
"""Which stage or wait decided each moment of a request: its critical path. Pure, many requests at once.

From the end backwards: of the stages that had begun, the one that ended last decides the time back to its
begin, and so on from there. A stage that ran beside it and ended earlier decided nothing: that is how of
two encoders the slower one counts. Gateway, queue, `other` and the server's own stages often enclose others;
they decide only what no other stage does. Where no stage ran there is a gap. Decided times and gaps add up to
the duration, to the nanosecond.

Runs of a stage that ended several times have no known place: their sum is taken from the gaps, the one with
the last begin first and then earlier ones. What is left of such a gap is `unmarked`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.stage import STAGE_SLOTS, Stage
from hotstage.stages.timeline import NO_ID, Flags, Ns, Timeline

OUTSIDE = STAGE_SLOTS
"""In place of a slot: before a gap the request's begin, after it the request's end."""

NONE, QUEUE, DELIVERY, UNMARKED = range(4)
WAITS = ("", "queue", "delivery", "unmarked")
"""Names by kind of gap."""

_TAKEN_BY_WORKERS = frozenset(
    {
        Stage.media_fetch,
        Stage.media_decode,
        Stage.preprocess,
        Stage.tokenize,
        Stage.model_load,
        Stage.lora_apply,
        Stage.vision_encode,
        Stage.audio_encode,
        Stage.video_encode,
        Stage.cross_modal_align,
        Stage.llm_prefill,
    }
)
_HANDED_ON = frozenset({Stage.llm_decode, Stage.kv_transfer, Stage.sample, Stage.detokenize})
_PRODUCING = frozenset({Stage.llm_decode, Stage.sample, Stage.detokenize})
_AFTER_FIRST_TOKEN = (Stage.llm_decode, Stage.sample, Stage.detokenize)
_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """R requests × S slots; gaps (R, K), the latest first, `kind` NONE where a request has fewer."""

    decided_ns: Ns  # (R, S)
    last_slot: NDArray[np.intp]  # (R,): the one that decided the end; OUTSIDE: a gap did
    gap_began_ns: Ns
    gap_ended_ns: Ns
    gap_left_ns: Ns  # without the runs that it hides
    gap_hides: Flags
    gap_kind: NDArray[np.uint8]
    gap_after: NDArray[np.intp]  # slot, or OUTSIDE
    gap_before: NDArray[np.intp]

    def waits_ns(self) -> Ns:
        """(R, 4) time in gaps by kind."""
        kinds = np.arange(len(WAITS), dtype=np.uint8)
        matches = self.gap_kind[:, :, None] == kinds
        found: Ns = (self.gap_left_ns[:, :, None] * matches).sum(axis=1)
        return found


def critical_path(line: Timeline, until_ns: Ns | None = None) -> CriticalPath:
    """The path of each request from its end, or from `until_ns` (R,), the time of its first token, back."""
    walk = _walk(_Places.of(line), line.duration_ns if until_ns is None else until_ns)
    return _with_gaps(line, walk, is_whole=until_ns is None)


def critical_paths(line: Timeline, until_ns: Ns) -> tuple[CriticalPath, CriticalPath]:
    """Both of `critical_path`: from the end, and from `until_ns`; walked at once, for half of the price."""
    size, places = len(until_ns), _Places.of(line)
    walk = _walk(places.twice(), np.concatenate([line.duration_ns, until_ns]))
    whole, early = walk.part(slice(0, size)), walk.part(slice(size, None))
    return _with_gaps(line, whole, is_whole=True), _with_gaps(line, early, is_whole=False)


@dataclass(frozen=True, slots=True)
class _Places:
    """When the stages of each request were, (R, S), and which of them decide before which."""

    began_ns: Ns
    ended_ns: Ns
    working: Flags
    enclosing: Flags

    @classmethod
    def of(cls, line: Timeline) -> _Places:
        working, enclosing = line.is_placed & ~line.gives_way, line.is_placed & line.gives_way
        return cls(line.began_ns, line.ended_ns, working, enclosing)

    def twice(self) -> _Places:
        return _Places(
            *(
                np.concatenate([each, each])
                for each in (self.began_ns, self.ended_ns, self.working, self.enclosing)
            )
        )


_Gap = tuple[Ns, Ns, NDArray[np.intp], NDArray[np.intp]]
"""Begin, end, the slot after which and the slot before which, (R,) each."""


@dataclass(frozen=True, slots=True)
class _Walk:
    decided_ns: Ns
    last: NDArray[np.intp]  # -1: nothing was decided
    gaps: list[_Gap]

    def part(self, rows: slice) -> _Walk:
        gaps = [
            (began[rows], ended[rows], after[rows], before[rows]) for began, ended, after, before in self.gaps
        ]
        return _Walk(self.decided_ns[rows], self.last[rows], gaps)


def _walk(line: _Places, from_ns: Ns) -> _Walk:
    at = from_ns.copy()
    rows = np.arange(len(at))
    decided = np.zeros(line.began_ns.shape, np.int64)
    later = np.full(len(at), OUTSIDE, np.intp)
    last = np.full(len(at), -1, np.intp)
    gaps: list[_Gap] = []
    while (at > 0).any():
        slot, work_end = _latest(line, line.working, at)
        other, other_end = _latest(line, line.enclosing, at)
        takes_other = (other_end > work_end) & (work_end < at)
        chosen = np.where(takes_other, other, slot)
        end = np.maximum(np.where(takes_other, other_end, work_end), 0)
        is_none = np.maximum(work_end, other_end) < 0
        begin = line.began_ns[rows, np.minimum(chosen, STAGE_SLOTS - 1)]
        begin = np.where(takes_other, np.maximum(begin, np.maximum(work_end, 0)), begin)
        begin = np.where(is_none, 0, begin)
        chosen = np.where(is_none, OUTSIDE, chosen)
        is_on = at > 0
        has_gap = is_on & (end < at)
        if has_gap.any():
            gaps.append((np.where(has_gap, end, 0), np.where(has_gap, at, 0), chosen, later))
        takes = is_on & ~is_none
        decided[rows[takes], chosen[takes]] += (end - begin)[takes]
        last = np.where((last < 0) & is_on, np.where(has_gap, OUTSIDE, chosen), last)
        later = np.where(is_on, chosen, later)
        at = np.where(is_on, begin, at)
    return _Walk(decided, last, gaps)


def _latest(line: _Places, among: Flags, at: Ns) -> tuple[NDArray[np.intp], Ns]:
    """(slot, its end up to `at`) of the one that ended last of those that began before `at`; -1 for none.

    Of several that run at `at`, the one that began first.
    """
    ends = np.where(among & (line.began_ns < at[:, None]), np.minimum(line.ended_ns, at[:, None]), -1)
    end = ends.max(axis=1)
    begins = np.where((ends == end[:, None]) & (ends >= 0), line.began_ns, _FAR)
    return begins.argmin(axis=1), end


def _with_gaps(line: Timeline, walk: _Walk, *, is_whole: bool) -> CriticalPath:
    decided, last, gaps = walk.decided_ns, walk.last, walk.gaps
    size = len(decided)
    began, ended, after, before = (
        (
            np.stack([gap[place] for gap in gaps], axis=1)
            if gaps
            else np.zeros((size, 0), np.intp if place > 1 else np.int64)
        )
        for place in range(4)
    )
    left = ended - began
    hides = np.zeros(left.shape, np.bool_)
    for slot in np.flatnonzero(line.is_unplaced.any(axis=0)).tolist():
        if is_whole or slot not in _AFTER_FIRST_TOKEN:
            _fill(line, slot, decided, began, ended, left, hides)
    return CriticalPath(
        decided_ns=decided,
        last_slot=np.where(last < 0, OUTSIDE, last),
        gap_began_ns=began,
        gap_ended_ns=ended,
        gap_left_ns=left,
        gap_hides=hides,
        gap_kind=_kinds(line, after, before, left, hides, is_whole=is_whole),
        gap_after=after,
        gap_before=before,
    )


def _fill(line: Timeline, slot: int, decided: Ns, began: Ns, ended: Ns, left: Ns, hides: Flags) -> None:
    """Takes the runs of an unplaced stage out of the gaps that may hold them, in place."""
    amount = np.where(line.is_unplaced[:, slot], line.total_ns[:, slot], 0)
    last_begin, first_begin = line.began_ns[:, slot], line.first_ns[:, slot]
    for gap in range(left.shape[1]):
        may_hold = (began[:, gap] <= last_begin) & (ended[:, gap] > first_begin)
        taken = np.where(may_hold, np.minimum(amount, left[:, gap]), 0)
        left[:, gap] -= taken
        hides[:, gap] |= taken > 0
        decided[:, slot] += taken
        amount = amount - taken


def _kinds(
    line: Timeline,
    after: NDArray[np.intp],
    before: NDArray[np.intp],
    left: Ns,
    hides: Flags,
    *,
    is_whole: bool,
) -> NDArray[np.uint8]:
    ids = np.concatenate([line.stage_ids, np.full((len(line.stage_ids), 1), NO_ID, np.uint8)], axis=1)
    earlier, later = np.take_along_axis(ids, after, 1), np.take_along_axis(ids, before, 1)
    kinds = _KIND_BEFORE[later]
    # Up to the first token, what follows the last stage is the token on its way.
    is_delivered = (before == OUTSIDE) & (after != OUTSIDE) & (_IS_PRODUCING[earlier] | (not is_whole))
    kinds = np.where(is_delivered, DELIVERY, kinds)
    kinds = np.where(hides, UNMARKED, kinds)
    found: NDArray[np.uint8] = np.where(left > 0, kinds, NONE).astype(np.uint8)
    return found


def _kind_before(stage: int) -> int:
    if stage in _TAKEN_BY_WORKERS:
        return QUEUE
    return DELIVERY if stage in _HANDED_ON else UNMARKED


_KIND_BEFORE = np.array([_kind_before(stage) for stage in range(256)], np.uint8)
_IS_PRODUCING = np.array([stage in _PRODUCING for stage in range(256)], np.bool_)
