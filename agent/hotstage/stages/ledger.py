# SPDX-License-Identifier: Apache-2.0
"""Which stages of which request ended since the last look, each exactly once. Arrays in, rows out.

The kernel sums intervals per request and stage; here the sums of two looks are subtracted. A request is
(cgroup, hash of its id, start): an id used again is another request. Memory follows what is in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.stages.pulse import NameTable, Rows
from hotstage.stages.spans import OUTCOME_LOST, REQUEST_DTYPE, SPAN_DTYPE, modality_of_masks
from hotstage.stages.stage import STAGE_SLOTS, Stage

MISSES_BEFORE_LOST = 5
"""A map read while it changes can miss an entry: a request is given up after this many looks without it."""


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """What one look changed."""

    ended: Rows
    open: Rows
    requests_open: Rows
    requests_ended: Rows
    started: int
    output_tokens: Rows
    """(pid, tokens): output tokens that are new, summed by nobody yet."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums per request and slot, (N, STAGE_SLOTS); `key` is sorted."""

    key: NDArray[np.uint64]
    counts: NDArray[np.uint16]
    totals: NDArray[np.uint64]
    tokens: NDArray[np.uint32]
    misses: NDArray[np.uint8]
    rows: Rows  # REQUEST_DTYPE, as last seen

    def take(self, index: NDArray[Any]) -> _Sums:
        return _Sums(
            self.key[index],
            self.counts[index],
            self.totals[index],
            self.tokens[index],
            self.misses[index],
            self.rows[index],
        )


TOKENS_DTYPE = np.dtype([("pid", np.uint32), ("tokens", np.uint64)])


class Ledger:
    """Keeps the sums of the last look. Not thread-safe."""

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._known = _sums_of(np.zeros(0, np.uint64), 0)
        self._at_ns: int | None = None

    def advance(self, at_ns: int, requests: Rows, finished: Rows) -> LedgerStep:
        """Kernel rows (layout.REQUEST_DTYPE and FINISHED_DTYPE) of one look → what is new since the last.

        A finished request may still stand among `requests` when it ended during the read; it counts once.
        """
        inflight, ending, before = _Look(requests), _Look(finished), self._known
        current, is_new = self._summarise(inflight, before)
        ended = _settle(inflight, current, before, final=False)

        told = _join(current, before) if len(ending.keys) else before
        last, last_is_new = self._summarise(ending, told)
        last.rows["ended_ns"] = ending["ended_ns"]
        last.rows["outcome"] = np.minimum(ending["outcome"], OUTCOME_LOST)
        ended_last = _settle(ending, last, told, final=True)

        alive = ~_find(ending.keys, inflight.keys)[0]
        missing = ~_find(inflight.keys, before.key)[0] & ~_find(ending.keys, before.key)[0]
        unseen = before.take(missing)
        given_up = unseen.misses >= MISSES_BEFORE_LOST
        unseen.misses[:] += 1
        lost = unseen.rows[given_up].copy()
        lost["outcome"], lost["ended_ns"] = OUTCOME_LOST, at_ns

        step = LedgerStep(
            ended=_both(ended, ended_last),
            open=_open_spans(at_ns, inflight, current.rows, alive),
            requests_open=current.rows[alive],
            requests_ended=_both(last.rows, lost),
            started=self._count_started(current.rows[is_new], last.rows[last_is_new]),
            output_tokens=_both(_new_tokens(current, before), _new_tokens(last, told)),
        )
        self._known = _join(current.take(alive), unseen.take(~given_up))
        self._at_ns = at_ns
        return step

    def drop_processes(self, pids: NDArray[np.uint32], at_ns: int) -> Rows:
        """Forget the requests of dead processes → their rows, ended with `OUTCOME_LOST`."""
        gone = np.isin(self._known.rows["pid"], pids)
        lost = self._known.rows[gone].copy()
        lost["outcome"], lost["ended_ns"] = OUTCOME_LOST, at_ns
        self._known = self._known.take(~gone)
        return lost

    def _summarise(self, source: _Look, before: _Sums) -> tuple[_Sums, NDArray[np.bool_]]:
        """Rows of the tracker for kernel rows, names looked up for new ones only."""
        found, place = _find(before.key, source.keys)
        sums = _sums_of(source.keys, len(source.keys))
        rows = sums.rows
        for field in (
            "request_hash",
            "cgroup_id",
            "started_ns",
            "updated_ns",
            "stage_mask",
            "open_mask",
            "launches",
        ):
            rows[field] = source[field]
        rows["pid"], rows["errors"], rows["output_tokens"] = (
            source["tgid"],
            source["errors"],
            source["output_tokens"],
        )
        rows["modality"] = modality_of_masks(source["stage_mask"] | source["open_mask"])
        is_new = ~found
        for field, names in (
            ("endpoint", self._names.endpoints),
            ("instance", self._names.instances),
            ("model", self._names.models),
        ):
            rows[field][found] = before.rows[field][place[found]]
            rows[field][is_new] = names.intern_rows(source[field][is_new])
        return sums, is_new

    def _count_started(self, *groups: Rows) -> int:
        if self._at_ns is None:
            return 0
        # 1 s of slack: a request that began just before the last look may show only in this one.
        horizon = self._at_ns - 1_000_000_000
        return sum(int(np.count_nonzero(rows["started_ns"] > horizon)) for rows in groups)


class _Look:
    """Kernel rows in the order of their 64-bit identity, each once (a map read may yield an entry twice).

    Rows are near 900 bytes wide: only the wanted columns are copied, never the rows.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        with np.errstate(over="ignore"):
            key = rows["request_hash"] * np.uint64(0x9E3779B97F4A7C15)
            key ^= rows["cgroup_id"] * np.uint64(0xC2B2AE3D27D4EB4F)
            key ^= rows["started_ns"] * np.uint64(0x165667B19E3779F9)
        order = np.argsort(key, kind="stable")
        key = key[order]
        wanted = rows["started_ns"][order] != 0  # 0: the kernel is still filling it in
        wanted[1:] &= key[1:] != key[:-1]
        self._order = order[wanted]
        self.keys: NDArray[np.uint64] = key[wanted]

    def __getitem__(self, column: str) -> NDArray[Any]:
        """(N,) values of a column."""
        values: NDArray[Any] = self._rows[column][self._order]
        return values

    def slots(self, column: str) -> NDArray[Any]:
        """(N, STAGE_SLOTS) values of a column of the stage slots."""
        values: NDArray[Any] = self._rows["stages"][column][self._order]
        return values


def _sums_of(keys: NDArray[np.uint64], size: int) -> _Sums:
    return _Sums(
        key=keys,
        counts=np.zeros((size, STAGE_SLOTS), np.uint16),
        totals=np.zeros((size, STAGE_SLOTS), np.uint64),
        tokens=np.zeros((size, STAGE_SLOTS), np.uint32),
        misses=np.zeros(size, np.uint8),
        rows=np.zeros(size, REQUEST_DTYPE),
    )


def _join(first: _Sums, second: _Sums) -> _Sums:
    """Both, sorted by key; for a key in both, the first one's."""
    extra = second.take(~_find(first.key, second.key)[0])
    if len(extra.key) == 0:
        return first
    both = _Sums(
        *(
            np.concatenate([getattr(first, name), getattr(extra, name)])
            for name in ("key", "counts", "totals", "tokens", "misses", "rows")
        )
    )
    return both.take(np.argsort(both.key, kind="stable"))


def _both(first: Rows, second: Rows) -> Rows:
    """One after the other; structured rows are dear to concatenate, and one side is mostly empty."""
    if len(second) == 0:
        return first
    return second if len(first) == 0 else np.concatenate([first, second])


def _find(
    sorted_keys: NDArray[np.uint64], keys: NDArray[np.uint64]
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """(found, place) of each key; `place` means something only where found."""
    place = np.searchsorted(sorted_keys, keys)
    place[place == len(sorted_keys)] = 0
    if len(sorted_keys) == 0:
        return np.zeros(len(keys), np.bool_), place
    return sorted_keys[place] == keys, place


def _settle(source: _Look, current: _Sums, before: _Sums, *, final: bool) -> Rows:
    """Spans that ended since `before`; the sums in `current` become what has been told by now.

    The kernel adds time and count one after the other: a slot of which only one has moved is left for the
    next look, unless this is the last one.
    """
    counts, totals, tokens = source.slots("count"), source.slots("total_ns"), source.slots("tokens")
    found, place = _find(before.key, current.key)
    place = place[found]
    current.counts[found], current.totals[found] = before.counts[place], before.totals[place]
    current.tokens[found] = before.tokens[place]
    grew = totals > current.totals
    done = (counts != current.counts) & (grew | final)
    row, stage = np.nonzero(done)
    spans = _spans(source, current.rows, row, stage)
    if len(row) == 0:
        return spans
    spans["count"] = counts[row, stage] - current.counts[row, stage]  # uint16: wraps as the kernel's does
    spans["duration_ns"] = np.where(grew[row, stage], totals[row, stage] - current.totals[row, stage], 0)
    said, told = tokens[row, stage], current.tokens[row, stage]
    spans["tokens"] = _or_output(np.where(said > told, said - told, 0), spans, current.rows[row])
    current.counts[done], current.totals[done], current.tokens[done] = (
        counts[done],
        totals[done],
        tokens[done],
    )
    return spans


def _open_spans(at_ns: int, source: _Look, rows: Rows, alive: NDArray[np.bool_]) -> Rows:
    row, stage = np.nonzero((source.slots("open") > 0) & alive[:, None])
    spans = _spans(source, rows, row, stage)
    if len(row) == 0:
        return spans
    spans["is_open"] = True
    spans["duration_ns"] = np.maximum(np.int64(at_ns) - spans["began_ns"].astype(np.int64), 0)
    # A slot that was closed before holds the tokens of its closed spans; those of this one are not said yet.
    said = np.where(source.slots("count")[row, stage] > 0, 0, source.slots("tokens")[row, stage])
    spans["tokens"] = _or_output(said, spans, rows[row])
    return spans


def _or_output(tokens: NDArray[Any], spans: Rows, requests: Rows) -> NDArray[Any]:
    """Tokens of a decode that says none of its own are the output tokens of its request so far."""
    is_silent = (spans["stage"] == Stage.llm_decode) & (tokens == 0)
    return np.where(is_silent, requests["output_tokens"], tokens)


def _spans(source: _Look, rows: Rows, row: NDArray[np.intp], stage: NDArray[np.intp]) -> Rows:
    spans = np.zeros(len(row), SPAN_DTYPE)
    if len(row) == 0:
        return spans
    for field in ("request_hash", "cgroup_id", "pid", "endpoint", "instance", "model"):
        spans[field] = rows[field][row]
    spans["stage"] = stage
    spans["began_ns"] = source.slots("began_ns")[row, stage]
    spans["modality"] = source.slots("modality")[row, stage]
    return spans


def _new_tokens(sums: _Sums, before: _Sums) -> Rows:
    """(pid, tokens) of the requests whose output tokens grew."""
    found, place = _find(before.key, sums.key)
    news = np.zeros(len(sums.key), TOKENS_DTYPE)
    news["pid"] = sums.rows["pid"]
    news["tokens"] = sums.rows["output_tokens"]
    told = before.rows["output_tokens"][place[found]].astype(np.uint64)
    news["tokens"][found] -= np.minimum(told, news["tokens"][found])
    return news[news["tokens"] > 0]
