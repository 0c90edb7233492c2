# SPDX-License-Identifier: Apache-2.0
"""Which stages of which request ended since the last look, each exactly once. Arrays in, rows out.

The kernel sums intervals per request and stage; here the sums of two looks are subtracted. A request is
(cgroup, hash of its id, start): an id used again is another request. Memory follows what is in flight.

A tick holds few rows as a rule, so what costs is the number of array operations: one pass takes requests in
flight and finished ones, and makes ended and open spans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.layout import FINISHED_DTYPE, STAGE_SLOT_DTYPE, UNKNOWN_US
from hotstage.probes.maps.layout import REQUEST_DTYPE as KERNEL_REQUEST_DTYPE
from hotstage.stages.pulse import NameTable, Rows
from hotstage.stages.slots import identities, stage_of_slots
from hotstage.stages.spans import OUTCOME_LOST, REQUEST_DTYPE, SPAN_DTYPE, modality_of_masks
from hotstage.stages.stage import STAGE_SLOTS, Stage

MISSES_BEFORE_LOST = 5
"""A map read while it changes can miss an entry: a request is given up after this many looks without it."""

_COPIED = (
    "request_hash",
    "cgroup_id",
    "started_ns",
    "updated_ns",
    "stage_mask",
    "open_mask",
    "launches",
    "errors",
    "output_tokens",
)
_OF_REQUEST = ("request_hash", "cgroup_id", "pid", "endpoint", "instance", "model")
TOKENS_DTYPE = np.dtype([("pid", np.uint32), ("tokens", np.uint64)])
_WAITS = ("run_queue_ns", "sync_ns", "copy_ns", "alloc_ns")
_WAITS_AT = slice(STAGE_SLOT_DTYPE.fields["run_queue_us"][1], STAGE_SLOT_DTYPE.fields["tokens"][1])  # type: ignore[index]
_RAW = np.dtype((np.void, KERNEL_REQUEST_DTYPE.itemsize))
_STATE_AT = FINISHED_DTYPE.itemsize - KERNEL_REQUEST_DTYPE.itemsize


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """What one look changed."""

    ended: Rows
    open: Rows
    requests_open: Rows
    requests_ended: Rows
    started: int
    output_tokens: Rows
    """TOKENS_DTYPE: output tokens that are new, summed by nobody yet."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """What has been told of each request: sums per slot, (N, STAGE_SLOTS). `key` is sorted."""

    key: NDArray[np.uint64]
    counts: NDArray[np.uint16]
    totals: NDArray[np.uint64]
    tokens: NDArray[np.uint32]
    waits: NDArray[np.uint32]  # (N, STAGE_SLOTS, 4) µs, as in the kernel
    misses: NDArray[np.uint8]
    rows: Rows  # REQUEST_DTYPE, as last seen

    def take(self, place: NDArray[np.intp]) -> _Sums:
        # `take` is a tenth of `[]` for structured rows.
        return _Sums(
            self.key.take(place),
            self.counts.take(place, axis=0),
            self.totals.take(place, axis=0),
            self.tokens.take(place, axis=0),
            self.waits.take(place, axis=0),
            self.misses.take(place),
            self.rows.take(place),
        )


class Ledger:
    """Keeps the sums of the last look. Not thread-safe."""

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._known = _no_sums()
        self._at_ns: int | None = None

    def advance(self, at_ns: int, requests: Rows, finished: Rows) -> LedgerStep:
        """Kernel rows (layout.REQUEST_DTYPE and FINISHED_DTYPE) of one look → what is new since the last.

        A finished request may still stand among `requests` when it ended during the read; it counts once.
        """
        before, before_ns, self._at_ns = self._known, self._at_ns, at_ns
        if len(requests) + len(finished) + len(before.key) == 0:
            return _NOTHING
        look = _Look(requests, finished)
        told, is_new = _told(before, look.keys)
        now = _Sums(
            look.keys,
            told.counts,
            told.totals,
            told.tokens,
            told.waits,
            told.misses,
            self._rows(look, told, is_new),
        )
        ended, still_open = _settle(at_ns, look, now)
        alive, over = _part(look, now, finished)
        missed, lost = _missed(at_ns, look.keys, before)
        self._known = _joined(alive, missed)
        return LedgerStep(
            ended=ended,
            open=still_open,
            requests_open=alive.rows,
            requests_ended=_both(over, lost),
            started=0 if before_ns is None else _count_started(now.rows[is_new], before_ns),
            output_tokens=_new_tokens(now.rows, told.rows),
        )

    def drop_processes(self, pids: NDArray[np.uint32], at_ns: int) -> Rows:
        """Forget the requests of dead processes → their rows, ended with `OUTCOME_LOST`."""
        gone = np.isin(self._known.rows["pid"], pids)
        lost = self._known.rows[gone]
        lost["outcome"], lost["ended_ns"] = OUTCOME_LOST, at_ns
        self._known = self._known.take(np.flatnonzero(~gone))
        return lost

    def _rows(self, look: _Look, told: _Sums, is_new: NDArray[np.bool_]) -> Rows:
        """REQUEST_DTYPE rows as of now, names looked up for new requests only."""
        source, rows = look.rows, np.zeros(len(look.keys), REQUEST_DTYPE)
        for field in _COPIED:
            rows[field] = source[field]
        rows["pid"] = source["tgid"]
        rows["modality"] = modality_of_masks(source["stage_mask"] | source["open_mask"])
        for field, names in (
            ("endpoint", self._names.endpoints),
            ("instance", self._names.instances),
            ("model", self._names.models),
        ):
            rows[field] = told.rows[field]
            if is_new.any():
                rows[field][is_new] = names.intern_rows(source[field][is_new])
        return rows


class _Look:
    """Kernel rows in the order of their 64-bit identity, each once: a map read may yield an entry twice, and
    a finished request may still stand among those in flight.
    """

    def __init__(self, requests: Rows, finished: Rows) -> None:
        # Moved as plain bytes: fields cost ten times as much. Of two rows of one identity the first is kept.
        raw = requests.view(_RAW)
        if len(finished):
            raw = np.concatenate([finished.getfield(_RAW, _STATE_AT), raw])
        rows = raw.view(requests.dtype)
        key = identities(rows)
        order = np.argsort(key, kind="stable")
        key = key[order]
        wanted = rows["started_ns"][order] != 0  # 0: the kernel is still filling it in
        wanted[1:] &= key[1:] != key[:-1]
        if not wanted.all():
            key, order = key[wanted], order[wanted]
        self.keys: NDArray[np.uint64] = key
        self.rows = raw.take(order).view(requests.dtype)
        self.stages = self.rows["stages"]
        self.place = order  # where a row came from: among the finished ones where `is_over`
        self.is_over = order < len(finished)

    def waits(self, row: NDArray[np.intp], stage: NDArray[np.intp]) -> NDArray[np.uint32]:
        """(K, 4) µs of these slots, moved at once."""
        raw = self.stages.view(np.uint8).reshape(*self.stages.shape, STAGE_SLOT_DTYPE.itemsize)
        waits: NDArray[np.uint32] = np.ascontiguousarray(raw[row, stage, _WAITS_AT]).view(np.uint32)
        return waits


def _no_sums(keys: NDArray[np.uint64] | None = None) -> _Sums:
    """Nothing told yet of these requests."""
    keys = np.zeros(0, np.uint64) if keys is None else keys
    size = len(keys)
    return _Sums(
        key=keys,
        counts=np.zeros((size, STAGE_SLOTS), np.uint16),
        totals=np.zeros((size, STAGE_SLOTS), np.uint64),
        tokens=np.zeros((size, STAGE_SLOTS), np.uint32),
        waits=np.zeros((size, STAGE_SLOTS, len(_WAITS)), np.uint32),
        misses=np.zeros(size, np.uint8),
        rows=np.zeros(size, REQUEST_DTYPE),
    )


_NOTHING = LedgerStep(
    ended=np.zeros(0, SPAN_DTYPE),
    open=np.zeros(0, SPAN_DTYPE),
    requests_open=np.zeros(0, REQUEST_DTYPE),
    requests_ended=np.zeros(0, REQUEST_DTYPE),
    started=0,
    output_tokens=np.zeros(0, TOKENS_DTYPE),
)


def _find(
    sorted_keys: NDArray[np.uint64], keys: NDArray[np.uint64]
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """(found, place) of each key; `place` means something only where found."""
    place = np.searchsorted(sorted_keys, keys)
    place[place == len(sorted_keys)] = 0
    if len(sorted_keys) == 0:
        return np.zeros(len(keys), np.bool_), place
    return sorted_keys[place] == keys, place


def _told(before: _Sums, keys: NDArray[np.uint64]) -> tuple[_Sums, NDArray[np.bool_]]:
    """(what was told of each of these requests, which of them are new); a copy, without misses."""
    found, place = _find(before.key, keys)
    is_new = ~found
    if len(before.key) == 0:
        return _no_sums(keys), is_new
    told = before.take(place)
    told.misses[:] = 0
    if is_new.any():
        for values in (told.counts, told.totals, told.tokens, told.waits, told.rows):
            values[is_new] = np.zeros((), values.dtype)
    return told, is_new


def _settle(at_ns: int, look: _Look, now: _Sums) -> tuple[Rows, Rows]:
    """(spans that ended, spans that are open); the sums in `now` become what has been told by now.

    The kernel adds time and count one after the other: a slot of which only one has moved is left for the
    next look, unless the request is over.
    """
    counts, totals = look.stages["count"], look.stages["total_ns"]
    grew, is_over = totals > now.totals, look.is_over[:, None]
    done = (counts != now.counts) & (grew | is_over)
    row, stage = np.nonzero(done)
    open_row, open_stage = np.nonzero((look.stages["open"] > 0) & ~is_over)
    both_rows = np.concatenate([row, open_row])
    spans = _spans(look, now.rows, both_rows, np.concatenate([stage, open_stage]))
    ended, still_open = spans[: len(row)], spans[len(row) :]
    if len(ended):
        count, total, told = counts[row, stage], totals[row, stage], now.totals[row, stage]
        ended["count"] = count - now.counts[row, stage]  # uint16: wraps as the kernel's does
        ended["duration_ns"] = np.where(total > told, total - told, 0)
        ended["tokens"] -= np.minimum(ended["tokens"], now.tokens[row, stage])
        waits = look.waits(row, stage)
        for place, name in enumerate(_WAITS):
            ended[name] = _grown_ns(waits[:, place], now.waits[row, stage, place])
        now.waits[row, stage] = waits
        np.copyto(now.counts, counts, where=done)
        np.copyto(now.totals, totals, where=done)
        np.copyto(now.tokens, look.stages["tokens"], where=done)
    if len(still_open):
        still_open["is_open"] = True
        for name in _WAITS:
            still_open[name] = np.nan
        still_open["duration_ns"] = np.maximum(np.int64(at_ns) - still_open["began_ns"].astype(np.int64), 0)
        # A slot that was closed before holds the tokens of its closed spans; this one's are not said yet.
        still_open["tokens"] *= counts[open_row, open_stage] == 0
    _say_output(spans, now.rows["output_tokens"][both_rows])
    return ended, still_open


def _grown_ns(now_us: NDArray[np.uint32], told_us: NDArray[np.uint32]) -> NDArray[np.float64]:
    """By how much the kernel's sums have grown; NaN where it does not know, or has begun anew."""
    told = np.where(told_us == UNKNOWN_US, 0, told_us).astype(np.float64)
    grown = (now_us - told) * 1e3
    return np.where((now_us == UNKNOWN_US) | (grown < 0), np.nan, grown)


def _say_output(spans: Rows, output: NDArray[np.uint32]) -> None:
    """Tokens of a decode that says none of its own are the output tokens of its request so far."""
    is_silent = (spans["stage"] == Stage.llm_decode) & (spans["tokens"] == 0)
    spans["tokens"][is_silent] = output[is_silent]


def _spans(look: _Look, rows: Rows, row: NDArray[np.intp], stage: NDArray[np.intp]) -> Rows:
    spans = np.zeros(len(row), SPAN_DTYPE)
    if len(row) == 0:
        return spans
    requests = rows.take(row)
    for field in _OF_REQUEST:
        spans[field] = requests[field]
    spans["stage"] = stage_of_slots(look.rows["own_stages"][row], stage)
    for field in ("began_ns", "modality", "tokens"):
        spans[field] = look.stages[field][row, stage]
    return spans


def _part(look: _Look, now: _Sums, finished: Rows) -> tuple[_Sums, Rows]:
    """(requests still in flight, rows of those that are over)."""
    if len(finished) == 0:
        return now, _NOTHING.requests_ended
    over, place = now.rows[look.is_over], look.place[look.is_over]
    over["ended_ns"] = finished["ended_ns"][place]
    over["outcome"] = np.minimum(finished["outcome"][place], OUTCOME_LOST)
    return now.take(np.flatnonzero(~look.is_over)), over


def _missed(at_ns: int, keys: NDArray[np.uint64], before: _Sums) -> tuple[_Sums, Rows]:
    """(requests that were not seen and are kept, rows of those that are given up)."""
    unseen = before.take(np.flatnonzero(~_find(keys, before.key)[0]))
    if len(unseen.key) == 0:
        return unseen, unseen.rows
    given_up = unseen.misses >= MISSES_BEFORE_LOST
    unseen.misses[:] += 1
    lost = unseen.rows[given_up]
    lost["outcome"], lost["ended_ns"] = OUTCOME_LOST, at_ns
    return unseen.take(np.flatnonzero(~given_up)), lost


def _joined(first: _Sums, second: _Sums) -> _Sums:
    """Both, sorted by key; no key is in both."""
    if len(second.key) == 0:
        return first
    both = _Sums(
        *(
            np.concatenate([getattr(first, name), getattr(second, name)])
            for name in ("key", "counts", "totals", "tokens", "waits", "misses", "rows")
        )
    )
    return both.take(np.argsort(both.key, kind="stable"))


def _both(first: Rows, second: Rows) -> Rows:
    """One after the other; structured rows are dear to concatenate, and one side is mostly empty."""
    if len(second) == 0:
        return first
    return second if len(first) == 0 else np.concatenate([first, second])


def _count_started(new: Rows, before_ns: int) -> int:
    """1 s of slack: a request that began just before the last look may show only in this one."""
    return int(np.count_nonzero(new["started_ns"] > before_ns - 1_000_000_000))


def _new_tokens(rows: Rows, told: Rows) -> Rows:
    """(pid, tokens) of the requests whose output tokens grew."""
    grew = rows["output_tokens"] > told["output_tokens"]
    news = np.zeros(np.count_nonzero(grew), TOKENS_DTYPE)
    if len(news):
        news["pid"] = rows["pid"][grew]
        news["tokens"] = rows["output_tokens"][grew] - told["output_tokens"][grew]
    return news
