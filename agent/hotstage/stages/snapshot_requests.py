# SPDX-License-Identifier: Apache-2.0
"""The requests of a snapshot: kernel rows → `RequestState`, columns first."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.layout import MODALITIES
from hotstage.stages.places import PlaceFinder
from hotstage.stages.snapshot_columns import ages_of, grouped, moments_of, texts_of
from hotstage.stages.snapshot_threads import BusyThreads
from hotstage.stages.snapshot_types import (
    Context,
    Device,
    DoneStage,
    ModalityState,
    OpenStage,
    RequestState,
    ThreadState,
)
from hotstage.stages.stage import NO_STAGE, STAGE_SLOTS, Modality, modality_name, stage_name, stages_in_mask

_STAGE_NAMES = [stage_name(stage) for stage in range(256)]
_MODALITY_NAMES = [modality_name(modality) for modality in range(256)]
_NEVER = np.iinfo(np.int64).max
_WORD_NS = np.uint64((1 << 48) - 1)


def keys_of(requests: NDArray[Any]) -> list[str]:
    """What tells a request from every other one of this boot: cgroup, hash of its id, start."""
    columns = (requests[name].tolist() for name in ("cgroup_id", "request_hash", "started_ns"))
    return [f"{cgroup:x}-{hashed:016x}-{started:x}" for cgroup, hashed, started in zip(*columns, strict=True)]


def request_states(
    requests: NDArray[Any],
    keys: list[str],
    busy: BusyThreads,
    threads: list[ThreadState],
    places: PlaceFinder,
    at_ns: int,
    offset_ns: int,
) -> list[RequestState]:
    """REQUEST_DTYPE (R,) → one state each, in order. `threads`: the states of `busy`, in its order."""
    slots, pids = requests["stages"], requests["tgid"].tolist()
    started, started_ns = moments_of(requests["started_ns"], offset_ns)
    updated, updated_ns = moments_of(requests["updated_ns"], offset_ns)
    modalities = _modalities(requests, offset_ns)
    masks = requests["stage_mask"].tolist()
    working = busy.by_request()
    devices, contexts = _places(requests, busy, places, working)
    columns = (
        keys,
        [text or "" for text in texts_of(requests["id"])],
        *(texts_of(requests[name]) for name in ("endpoint", "instance", "model")),
        _known(requests["model_id"]),
        pids,
        requests["cgroup_id"].tolist(),
        started,
        started_ns,
        updated,
        updated_ns,
        ages_of(requests["started_ns"], at_ns),
        masks,
        [_stages_done(mask) for mask in masks],
        _done(slots),
        _open(slots, at_ns, offset_ns),
        modalities,
        _known(requests["cuda_stream"]),
        devices,
        contexts,
        _own_threads(threads, working, len(keys)),
        _stage_threads(requests, busy, threads, working),
        [{part.modality: part.tokens for part in parts if part.tokens} for parts in modalities],
        requests["output_tokens"].tolist(),
        *_credited(requests, busy),
        _digests(requests),
        texts_of(requests["traceparent"]),
    )
    return [RequestState(*row) for row in zip(*columns, strict=True)]


def _known(values: NDArray[Any]) -> list[int | None]:
    """Where 0 means that nobody said."""
    return [value or None for value in values.tolist()]


def _places(
    requests: NDArray[Any], busy: BusyThreads, places: PlaceFinder, working: dict[int, list[int]]
) -> tuple[list[list[Device] | None], list[list[Context] | None]]:
    """(devices, contexts) of each request."""
    ordinals = busy.rows["device"].tolist()
    columns = (requests[name].tolist() for name in ("tgid", "cuda_stream"))
    found = [
        places.find(pid, stream, [ordinals[each] for each in working[row]] if row in working else ())
        for row, (pid, stream) in enumerate(zip(*columns, strict=True))
    ]
    return [each[0] for each in found], [each[1] for each in found]


def _credited(requests: NDArray[Any], busy: BusyThreads) -> list[list[int | None]]:
    """Launches, bytes and errors of each request, with what its threads have not been asked for yet.

    Threads that name the request count for it: where none ever did, nobody knows.
    """
    sums = [
        requests[column].astype(np.uint64) + busy.pending(kind, len(requests))
        for column, kind in (("launches", "launch"), ("bytes", "bytes"), ("errors", "error"))
    ]
    counted = (requests["cuda_stream"] != 0) | (sums[0] != 0) | (sums[1] != 0) | (sums[2] != 0)
    counted[busy.request_of[busy.request_of >= 0]] = True
    flags = counted.tolist()
    return [
        [value if flag else None for value, flag in zip(each.tolist(), flags, strict=True)] for each in sums
    ]


def _own_threads(
    threads: list[ThreadState], working: dict[int, list[int]], count: int
) -> list[list[ThreadState]]:
    nobody: list[ThreadState] = []  # one for all: lists are what a garbage collector looks at
    found = [nobody] * count
    for row, own in working.items():
        found[row] = [threads[each] for each in own]
    return found


def _stage_threads(
    requests: NDArray[Any], busy: BusyThreads, threads: list[ThreadState], working: dict[int, list[int]]
) -> list[list[ThreadState]]:
    """For requests that no thread names: those of their process in one of their open stages."""
    by_stage = busy.by_stage()
    if not by_stage:
        return [[]] * len(requests)
    known: dict[tuple[int, int], list[ThreadState]] = {}
    columns = (requests[name].tolist() for name in ("tgid", "open_mask"))
    keys = list(zip(*columns, strict=True))
    for pid, mask in set(keys):
        rows = (by_stage.get((pid, stage), ()) for stage in range(STAGE_SLOTS) if mask >> stage & 1)
        known[pid, mask] = [threads[each] for each in sorted(chain.from_iterable(rows))]
    nobody: list[ThreadState] = []
    return [nobody if row in working else known[key] for row, key in enumerate(keys)]


@lru_cache(maxsize=4096)
def _stages_done(stage_mask: int) -> list[str]:
    return list(stages_in_mask(stage_mask))


def _done(slots: NDArray[Any]) -> list[list[DoneStage]]:
    row, stage = np.nonzero(slots["count"])
    seconds = (slots["total_ns"][row, stage] / 1e9).tolist()
    columns = (slots[name][row, stage].tolist() for name in ("modality", "count", "tokens"))
    items = [
        DoneStage(_STAGE_NAMES[at], _MODALITY_NAMES[modality], took, count, tokens or None)
        for at, took, modality, count, tokens in zip(stage.tolist(), seconds, *columns, strict=True)
    ]
    return grouped(row, items, len(slots))


def _open(slots: NDArray[Any], at_ns: int, offset_ns: int) -> list[list[OpenStage]]:
    row, stage = np.nonzero(slots["open"])
    began = slots["began_ns"][row, stage]
    since, since_ns = moments_of(began, offset_ns)
    # A slot that was closed before holds the tokens of its closed spans; this one's are not said yet.
    tokens = np.where(slots["count"][row, stage] == 0, slots["tokens"][row, stage], 0)
    columns = (stage.tolist(), slots["modality"][row, stage].tolist(), since, since_ns)
    items = [
        OpenStage(_STAGE_NAMES[at], _MODALITY_NAMES[modality], text, wall_ns, age, said or None)
        for at, modality, text, wall_ns, age, said in zip(
            *columns, ages_of(began, at_ns), tokens.tolist(), strict=True
        )
    ]
    return grouped(row, items, len(slots))


def _modalities(requests: NDArray[Any], offset_ns: int) -> list[list[ModalityState]]:
    """First and last time and the tokens of each modality that a request has touched."""
    slots, words = requests["stages"], requests["modality_words"]
    # By what is used, not by all slots: a request uses a quarter of them.
    in_row, in_slot = np.nonzero((slots["count"] > 0) | (slots["open"] > 0))
    cell = in_row * MODALITIES + np.minimum(slots["modality"][in_row, in_slot], Modality.unknown)
    order = np.argsort(cell, kind="stable")
    in_row, in_slot, cell = in_row[order], in_slot[order], cell[order]
    heads = np.flatnonzero(np.diff(cell, prepend=-1))
    first = np.full(words.size, _NEVER, np.int64)
    said, is_again = np.zeros(words.size, np.int64), np.zeros(words.size, np.bool_)
    if len(heads):
        began, tokens, count, opened = (
            slots[name][in_row, in_slot].astype(np.int64) for name in ("began_ns", "tokens", "count", "open")
        )
        first[cell[heads]] = np.minimum.reduceat(began, heads)
        # Stages of one modality pass the same input on: the largest is the input, not the sum.
        said[cell[heads]] = np.maximum.reduceat(tokens, heads)
        is_again[cell[heads]] = np.maximum.reduceat(count + opened, heads) > 1
    place = np.flatnonzero((first != _NEVER) | (words.ravel() != 0))
    row, modality = np.divmod(place, MODALITIES)
    word, begin = words[row, modality], first[place]
    begun, begun_ns = moments_of(np.where(begin == _NEVER, 0, begin), offset_ns)
    last, last_ns = moments_of((word & _WORD_NS) << np.uint64(8), offset_ns)
    columns = (modality, begin == _NEVER, is_again[place], word, word >> np.uint64(56), said[place])
    items = [
        ModalityState(
            _MODALITY_NAMES[at],
            None if unknown else begun[index],
            None if unknown else begun_ns[index],
            not (unknown or repeated),
            last[index] if seen else None,
            last_ns[index] if seen else None,
            _STAGE_NAMES[stage] if seen and stage != NO_STAGE else None,
            size or None,
        )
        for index, (at, unknown, repeated, seen, stage, size) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]
    return grouped(row, items, len(requests))


def _digests(requests: NDArray[Any]) -> list[str | None]:
    """Digests of the inputs, where the kernel's rows carry them."""
    if "input_digest" not in (requests.dtype.names or ()):
        return [None] * len(requests)
    raw = requests["input_digest"]
    if raw.dtype.kind in "ui":
        return [f"{value:016x}" if value else None for value in raw.tolist()]
    return [bytes(value).hex() if any(bytes(value)) else None for value in raw]
