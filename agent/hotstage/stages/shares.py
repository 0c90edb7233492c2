# SPDX-License-Identifier: Apache-2.0
"""Work of batches, split among their members by tokens: samples in, samples whose requests hold it out.

The kernel tells each batch once, with what its thread did from begin to end. A member's share is its tokens ÷
the batch's. From then on the share is part of every row of its request, in flight and finished: `launches`
and `bytes` (here floats), the waits of the member's stage, and the context that the stage ran in. Nothing is
made up: the shares of one batch never add up to more than its work, however it is told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.layout import (
    BATCH_MEMBERS,
    CONTEXTS,
    FINISHED_DTYPE,
    REQUEST_DTYPE,
    STAGE_SLOT_DTYPE,
    UNKNOWN_NS,
    UNKNOWN_US,
)
from hotstage.probes.samples import FastSample
from hotstage.stages.pulse import Rows
from hotstage.stages.slots import identities, slots_of_stages
from hotstage.stages.stage import NO_STAGE, OWN_STAGES, Modality, Stage

UNCLAIMED = "unclaimed_batch_shares"
"""A loss of user space: shares of members that are no request in flight, or of none any more, and those of
parts beyond PARTS_LIMIT.
"""

PARTS_LIMIT = 1024
"""Parts of batches (64 members each) that one process may tell of in one look: ten times what eight busy GPUs
do. Who tells of more does not keep the tick from all others.
"""

WAITS = ("run_queue", "sync", "copy", "alloc")
_WAITS_AT = slice(STAGE_SLOT_DTYPE.fields["run_queue_us"][1], STAGE_SLOT_DTYPE.fields["tokens"][1])  # type: ignore[index]
_MISSES_BEFORE_GONE = 6  # as the ledger's, and one
_SUMS = ("launches", "bytes", "errors", *(f"{wait}_ns" for wait in WAITS))
_IDS = np.arange(256)
_STAGES = np.where(np.isin(_IDS, [*Stage, *OWN_STAGES, NO_STAGE]), _IDS, Stage.other).astype(np.uint8)
"""What a member says of its stage → a stage that there is: a hostile process may say any."""


def _with_floats(dtype: np.dtype[np.void]) -> np.dtype[np.void]:
    """The same layout, with `launches` and `bytes` as floats in place of the kernel's integers."""
    assert dtype.fields is not None and dtype.names is not None
    kinds = {name: "<f8" if name in ("launches", "bytes") else dtype.fields[name][0] for name in dtype.names}
    return np.dtype(list(kinds.items()))


SHARED_REQUEST_DTYPE = _with_floats(REQUEST_DTYPE)
"""REQUEST_DTYPE with `launches` and `bytes` as floats: its own and its shares of batches."""

SHARED_FINISHED_DTYPE = _with_floats(FINISHED_DTYPE)

SHARE_DTYPE = np.dtype(
    [
        ("request_hash", np.uint64),
        ("cgroup_id", np.uint64),
        ("ended_ns", np.uint64),  # of the batch
        ("context", np.uint64),  # 0 = not seen
        ("pid", np.uint32),
        ("device", np.uint32),
        ("tokens", np.uint32),
        ("stage", np.uint8),
        ("modality", np.uint8),
        ("batch_stage", np.uint8),  # under which the kernel counted the calls
        ("batch_modality", np.uint8),
        *((name, np.float64) for name in _SUMS),  # run_queue_ns: NaN where the kernel does not tell
    ]
)
"""One member of one batch."""

_HELD_DTYPE = np.dtype(
    [
        ("identity", np.uint64),
        ("context", np.uint64),
        ("device", np.uint32),
        ("stage", np.uint8),
        ("misses", np.uint8),
        ("pad", np.uint8, (2,)),
        *((name, np.float64) for name in _SUMS),
    ]
)


@dataclass(slots=True)
class _Split:
    """How much of a batch that ends in several parts has been told of: its thread's last one only."""

    began_ns: int
    told: float


class BatchShares:
    """Keeps the shares of requests in flight. Not thread-safe."""

    def __init__(self) -> None:
        self._held: Rows = np.zeros(0, _HELD_DTYPE)  # a row for each request and stage, by both
        self._early: Rows = np.zeros(0, SHARE_DTYPE)  # of requests not seen yet; they get one more look
        self._last: dict[int, _Split] = {}
        self._unclaimed = 0

    def apply(self, sample: FastSample) -> FastSample:
        """The sample with each request's shares in its row, `requests` and `finished` as SHARED_…_DTYPE, and
        `shares` (SHARE_DTYPE): those of the batches that it tells of. The rows handed in are changed.
        """
        shares = self._split(self._bounded(sample.batches))
        requests = _floats(sample.requests, SHARED_REQUEST_DTYPE)
        finished = _floats(sample.finished, SHARED_FINISHED_DTYPE)
        if len(shares) or len(self._early) or len(self._held):
            self._settle(shares, requests, finished)
        losses = {**sample.losses, UNCLAIMED: self._unclaimed}
        return replace(sample, requests=requests, finished=finished, shares=shares, losses=losses)

    def _settle(self, shares: Rows, requests: Rows, finished: Rows) -> None:
        """Shares to the requests they belong to, then what each is held to have had into its row."""
        fresh = np.concatenate([self._early, shares]) if len(self._early) else shares
        keys = identities(requests), identities(finished)
        if len(fresh):
            self._take(fresh, _Known(requests, finished, np.concatenate(keys[::-1])))
        held = self._held
        if len(held) == 0:
            return
        is_over, is_flying = _add(finished, keys[1], held), _add(requests, keys[0], held)
        held["misses"] = np.where(is_flying, 0, held["misses"] + 1)
        is_kept = ~is_over & (held["misses"] <= _MISSES_BEFORE_GONE)
        if not is_kept.all():
            self._held = held.take(np.flatnonzero(is_kept))

    def _take(self, fresh: Rows, known: _Known) -> None:
        """Those whose request is known; the others get one more look, and then nobody has them."""
        is_late = np.arange(len(fresh)) < len(self._early)
        owner = known.owner_of(fresh)
        has_owner = owner >= 0
        self._unclaimed += int(np.count_nonzero(is_late & ~has_owner))
        self._early = fresh[~has_owner & ~is_late]
        fresh, owner = fresh[has_owner], owner[has_owner]
        if len(fresh):
            self._held = _summed(self._held, known.identities[owner], fresh)

    def _bounded(self, batches: Rows) -> Rows:
        """The first PARTS_LIMIT of each process."""
        if len(batches) <= PARTS_LIMIT:
            return batches
        order = np.argsort(batches["tgid"], kind="stable")
        pids = batches["tgid"][order]
        is_over = np.zeros(len(batches), np.bool_)
        is_over[order] = np.arange(len(pids)) - np.searchsorted(pids, pids) >= PARTS_LIMIT
        left_out = batches["batch"]["members"][is_over]
        self._unclaimed += int(np.minimum(left_out, BATCH_MEMBERS).sum(dtype=np.int64))
        return batches[~is_over]

    def _split(self, batches: Rows) -> Rows:
        """One share for each member of these parts of batches."""
        if len(batches) == 0:
            self._last.clear()
            return np.zeros(0, SHARE_DTYPE)
        batch, work = batches["batch"], _side_by_side(batches["work"], np.dtype(np.uint64))
        member = batch["member"]
        is_there = np.arange(BATCH_MEMBERS) < batch["members"][:, None]
        total = np.maximum(batch["tokens_total"].astype(np.float64), 1.0)
        share = np.where(is_there, member["tokens"] / total[:, None], 0.0)
        share *= self._room(batches, share.sum(axis=1))[:, None]
        part, place = np.nonzero(is_there)
        rows = np.zeros(len(part), SHARE_DTYPE)
        for name in ("request_hash", "tokens"):
            rows[name] = member[name][part, place]
        rows["stage"] = _STAGES[member["stage"][part, place]]
        rows["modality"] = _known_modality(member["modality"][part, place])
        for name, source in (("cgroup_id", "cgroup_id"), ("ended_ns", "ended_ns"), ("pid", "tgid")):
            rows[name] = batches[source][part]
        rows["context"], rows["device"] = batches["context"][part], batches["device"][part]
        word = batch["word"][part]
        rows["batch_stage"] = _STAGES[(word & np.uint64(0xFF)).astype(np.intp)]
        rows["batch_modality"] = _known_modality(word >> np.uint64(8) & np.uint64(0xFF))
        done = work.astype(np.float64)
        run_queue = _SUMS.index("run_queue_ns")
        done[work[:, run_queue] == UNKNOWN_NS, run_queue] = np.nan
        np.multiply(done[part], share[part, place][:, None], out=_sums(rows))
        return rows

    def _room(self, batches: Rows, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
        """(B,) factors at which no batch gives more than itself, told in how many parts soever."""
        columns = (batches["tid"].tolist(), batches["began_ns"].tolist(), wanted.tolist())
        factors = []
        last, self._last = self._last, {}
        for tid, began_ns, share in zip(*columns, strict=True):
            split = self._last.get(tid) or last.get(tid)
            if split is None or split.began_ns != began_ns:
                split = _Split(began_ns, 0.0)
            self._last[tid] = split
            given = min(share, max(1.0 - split.told, 0.0))
            split.told += given
            factors.append(given / share if share > 0 else 0.0)
        return np.array(factors)


class _Known:
    """Requests of one look, to be found by the hash of their id, their cgroup and a time of their life."""

    def __init__(self, requests: Rows, finished: Rows, keys: NDArray[np.uint64]) -> None:
        """`keys`: `identities` of the finished ones, and then of the others."""
        columns = {
            name: np.concatenate([finished[name], requests[name]])
            for name in ("request_hash", "cgroup_id", "started_ns")
        }
        name = _mixed(columns["request_hash"], columns["cgroup_id"])
        order = np.lexsort((columns["started_ns"], name))
        self._names, self._started_ns = name[order], columns["started_ns"][order]
        self.identities = keys[order]

    def owner_of(self, shares: Rows) -> NDArray[np.intp]:
        """(S,) index into `identities`, -1 for none: the last that had begun when the batch ended."""
        if len(self._names) == 0:
            return np.full(len(shares), -1, np.intp)
        names = _mixed(shares["request_hash"], shares["cgroup_id"])
        owner = np.searchsorted(self._names, names, side="right") - 1
        for _ in range(2):  # an id that came back within one look: the one before
            is_later = (owner >= 0) & (self._started_ns[owner] > shares["ended_ns"])
            owner = np.where(is_later, owner - 1, owner)
        found: NDArray[np.intp] = np.where((owner >= 0) & (self._names[owner] == names), owner, -1)
        return found


def _known_modality(modalities: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.uint8]:
    known: NDArray[np.uint8] = np.minimum(modalities, Modality.unknown).astype(np.uint8)
    return known


def _mixed(request_hash: NDArray[np.uint64], cgroup_id: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed: NDArray[np.uint64] = request_hash * np.uint64(0x9E3779B97F4A7C15) ^ cgroup_id
    return mixed


def _floats(rows: Rows, dtype: np.dtype[np.void]) -> Rows:
    """The same memory with its integers turned into floats; rows that have them already stay."""
    if rows.dtype is dtype:
        return rows
    shared = rows.view(dtype)
    for name in ("launches", "bytes"):
        shared[name] = rows[name]  # integers below 2^53 are exact
    return shared


def _summed(held: Rows, owners: NDArray[np.uint64], shares: Rows) -> Rows:
    """`held` with these shares added, one row for each request and stage."""
    rows = np.zeros(len(held) + len(shares), _HELD_DTYPE)
    rows.view(np.uint8)[: held.nbytes] = held.view(np.uint8)  # of fields each is moved by itself
    added = rows[len(held) :]
    added["identity"] = owners
    for name in ("stage", "context", "device"):
        added[name] = shares[name]
    _sums(added)[:] = _sums(shares)
    order = np.lexsort((rows["stage"], rows["identity"]))  # stable: of one request and stage the newest last
    rows = rows.take(order)
    identity, stage = rows["identity"], rows["stage"]
    is_last = np.ones(len(rows), np.bool_)
    is_last[:-1] = (identity[1:] != identity[:-1]) | (stage[1:] != stage[:-1])
    last = np.flatnonzero(is_last)
    begins = np.zeros(len(last), np.intp)
    begins[1:] = last[:-1] + 1
    summed = rows.take(last)
    _sums(summed)[:] = np.add.reduceat(_sums(rows), begins, axis=0)
    return summed


def _sums(rows: Rows) -> NDArray[np.float64]:
    """(N, 7) the columns `_SUMS` of SHARE_DTYPE or _HELD_DTYPE, whose last ones they are; the same memory."""
    raw = rows.view(np.uint8).reshape(len(rows), rows.itemsize)
    return raw[:, rows.itemsize - 8 * len(_SUMS) :].view(np.float64)


def _side_by_side(rows: Rows, kind: np.dtype[Any]) -> NDArray[Any]:
    """(N, K) rows whose K fields are all of one kind, as an array; the same memory."""
    return rows[:, None].view(np.uint8).view(kind)


def _add(rows: Rows, keys: NDArray[np.uint64], held: Rows) -> NDArray[np.bool_]:
    """What is held of these requests, whose identities are `keys`, into their rows; (H,) whose request is
    among them.
    """
    if len(rows) == 0:
        return np.zeros(len(held), np.bool_)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys, held["identity"], sorter=order), len(keys) - 1)
    place = order[at]
    is_mine: NDArray[np.bool_] = keys[place] == held["identity"]
    mine = np.flatnonzero(is_mine)
    if len(mine) == 0:
        return is_mine
    place, own = place[mine], held.take(mine)
    np.add.at(rows["launches"], place, own["launches"])
    np.add.at(rows["bytes"], place, own["bytes"])
    np.add.at(rows["errors"], place, np.rint(own["errors"]).astype(np.uint32))
    slots = slots_of_stages(rows["own_stages"][place], own["stage"])
    is_slot = slots >= 0
    _add_waits(rows["stages"], place[is_slot], slots[is_slot], _sums(own)[is_slot, -len(WAITS) :])
    _bind(rows, place, own)
    return is_mine


def _add_waits(
    stages: Rows, place: NDArray[np.intp], slots: NDArray[np.intp], more_ns: NDArray[np.float64]
) -> None:
    """(K, 4) microseconds more in these slots, in the order of WAITS; a sum that nobody had begun begins, one
    that ends stays there.
    """
    raw = stages.view(np.uint8).reshape(*stages.shape, STAGE_SLOT_DTYPE.itemsize)
    waits = raw[:, :, _WAITS_AT].view(np.uint32)  # the same memory
    before = waits[place, slots]
    base = np.where(before == UNKNOWN_US, 0, before).astype(np.float64)
    after = np.minimum(base + np.rint(more_ns / 1e3), UNKNOWN_US - 1)
    waits[place, slots] = np.where(np.isnan(after), before, after).astype(np.uint32)


def _bind(rows: Rows, place: NDArray[np.intp], held: Rows) -> None:
    """The contexts that batches ran in beside those that the request's own threads were seen in."""
    contexts = rows["contexts"]
    known = np.flatnonzero((held["context"] != 0) & (held["stage"] <= OWN_STAGES.stop - 1))
    if len(known) == 0:
        return
    order = known[np.lexsort((held["context"][known], place[known]))]
    row_of, held = place[order], held[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (row_of[1:] != row_of[:-1]) | (held["context"][1:] != held["context"][:-1])
    first = np.flatnonzero(is_first)
    masks = np.bitwise_or.reduceat(np.uint64(1) << held["stage"].astype(np.uint64), first)
    columns: tuple[list[Any], ...] = (
        row_of[first].tolist(),
        held["context"][first].tolist(),
        held["device"][first].tolist(),
    )
    for row, context, device, mask in zip(*columns, masks, strict=True):
        bound = contexts["context"][row].tolist()
        at = bound.index(context) if context in bound else bound.index(0) if 0 in bound else CONTEXTS
        if at < CONTEXTS:
            contexts["context"][row, at], contexts["device"][row, at] = context, device
            contexts["stage_mask"][row, at] |= mask
