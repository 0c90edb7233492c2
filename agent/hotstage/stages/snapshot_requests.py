# SPDX-License-Identifier: Apache-2.0
"""The requests of a snapshot: kernel rows → `RequestState`, columns first."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotstage.probes.maps.layout import MODALITIES
from hotstage.stages.lora import lora_module_name
from hotstage.stages.places import Binding, PlaceFinder
from hotstage.stages.slots import FIRST_OWN, stage_of_slots
from hotstage.stages.snapshot_columns import ages_of, grouped, moments_of, texts_of
from hotstage.stages.snapshot_threads import BusyThreads
from hotstage.stages.snapshot_types import (
    Context,
    Device,
    DoneStage,
    Embedding,
    Lora,
    ModalityState,
    OpenStage,
    RequestState,
    ThreadState,
)
from hotstage.stages.stage import NO_STAGE, OWN_STAGES, STAGE_IDS, Modality, modality_name, stage_name

_STAGE_NAMES = [stage_name(stage) for stage in range(256)]
_MODALITY_NAMES = [modality_name(modality) for modality in range(256)]
_EMBEDDING_DTYPES = ("f32", "f16", "bf16", "f64")
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
    pids = requests["tgid"].tolist()
    started, started_ns = moments_of(requests["started_ns"], offset_ns)
    updated, updated_ns = moments_of(requests["updated_ns"], offset_ns)
    modalities = _modalities(requests, offset_ns, places)
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
        [places.stages_of(pid, mask) for pid, mask in zip(pids, masks, strict=True)],
        _done(requests, places),
        _open(requests, at_ns, offset_ns, places),
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
        _adapters(requests),
        _embeddings(requests, places),
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
    bound = _bindings(requests, busy, working)
    found = [
        places.find_bound(pid, bound[row])
        if row in bound
        else places.find(pid, stream, [ordinals[each] for each in working[row]] if row in working else ())
        for row, (pid, stream) in enumerate(zip(*columns, strict=True))
    ]
    return [each[0] for each in found], [each[1] for each in found]


def _bindings(
    requests: NDArray[Any], busy: BusyThreads, working: dict[int, list[int]]
) -> dict[int, tuple[Binding, ...]]:
    """Index of a request → the contexts that its stages ran in, and those that its threads work in now."""
    contexts = requests["contexts"]
    rows, places = np.nonzero(contexts["context"])
    columns = (contexts[name][rows, places].tolist() for name in ("context", "stage_mask", "device"))
    found: dict[int, tuple[Binding, ...]] = {}
    for row, *binding in zip(rows.tolist(), *columns, strict=True):
        found[row] = (*found.get(row, ()), tuple(binding))
    now = [busy.rows[name].tolist() for name in ("context", "stage", "device")]
    for row, threads in working.items():
        for thread in threads:
            context, stage, device = (column[thread] for column in now)
            if context and stage < STAGE_IDS:
                found[row] = (*found.get(row, ()), (context, 1 << stage, device))
    return found


def _names(
    requests: NDArray[Any], row: NDArray[np.intp], slot: NDArray[np.intp], places: PlaceFinder
) -> list[str]:
    """Names of the stages in these slots of these requests."""
    stages = stage_of_slots(requests["own_stages"][row], slot)
    names = [_STAGE_NAMES[stage] for stage in stages.tolist()]
    for at in np.flatnonzero(slot >= FIRST_OWN).tolist():
        names[at] = places.name_of(int(requests["tgid"][row[at]]), int(stages[at]))
    return names


def _adapters(requests: NDArray[Any]) -> list[Lora | None]:
    columns = (requests[name].tolist() for name in ("lora_rank", "lora_module"))
    return [
        Lora(rank or None, lora_module_name(module)) if rank or module else None
        for rank, module in zip(*columns, strict=True)
    ]


def _embeddings(requests: NDArray[Any], places: PlaceFinder) -> list[Embedding | None]:
    found: list[Embedding | None] = [None] * len(requests)
    told = np.flatnonzero(requests["embedding_dims"])
    names = ("embedding_dims", "embedding_dtype", "embedding_stage", "tgid")
    columns = (requests[name][told].tolist() for name in names)
    for row, dims, dtype, stage, pid in zip(told.tolist(), *columns, strict=True):
        kind = _EMBEDDING_DTYPES[dtype] if dtype < len(_EMBEDDING_DTYPES) else "unknown"
        found[row] = Embedding(dims, kind, places.name_of(pid, stage))
    return found


def _credited(requests: NDArray[Any], busy: BusyThreads) -> list[list[float | None]]:
    """Launches, bytes and errors of each request, with what its threads have not been asked for yet.

    Threads that name the request and batches that hold it count for it: where none ever did, nobody knows.
    """
    sums = [
        requests[column].astype(np.float64) + busy.pending(kind, len(requests))
        for column, kind in (("launches", "launch"), ("bytes", "bytes"), ("errors", "error"))
    ]
    counted = (requests["cuda_stream"] != 0) | (sums[0] != 0) | (sums[1] != 0) | (sums[2] != 0)
    counted[busy.request_of[busy.request_of >= 0]] = True
    flags = counted.tolist()
    columns = (np.round(sums[0], 3), sums[1].astype(np.int64), sums[2].astype(np.int64))
    return [
        [value if flag else None for value, flag in zip(each.tolist(), flags, strict=True)]
        for each in columns
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
        rows = (by_stage.get((pid, stage), ()) for stage in range(STAGE_IDS) if mask >> stage & 1)
        known[pid, mask] = [threads[each] for each in sorted(chain.from_iterable(rows))]
    nobody: list[ThreadState] = []
    return [nobody if row in working else known[key] for row, key in enumerate(keys)]


def _done(requests: NDArray[Any], places: PlaceFinder) -> list[list[DoneStage]]:
    slots = requests["stages"]
    row, stage = np.nonzero(slots["count"])
    names = _names(requests, row, stage, places)
    seconds = (slots["total_ns"][row, stage] / 1e9).tolist()
    columns = (slots[name][row, stage].tolist() for name in ("modality", "count", "tokens"))
    items = [
        DoneStage(name, _MODALITY_NAMES[modality], took, count, tokens or None)
        for name, took, modality, count, tokens in zip(names, seconds, *columns, strict=True)
    ]
    return grouped(row, items, len(slots))


def _open(requests: NDArray[Any], at_ns: int, offset_ns: int, places: PlaceFinder) -> list[list[OpenStage]]:
    slots = requests["stages"]
    row, stage = np.nonzero(slots["open"])
    began = slots["began_ns"][row, stage]
    since, since_ns = moments_of(began, offset_ns)
    # A slot that was closed before holds the tokens of its closed spans; this one's are not said yet.
    tokens = np.where(slots["count"][row, stage] == 0, slots["tokens"][row, stage], 0)
    names = _names(requests, row, stage, places)
    columns = (names, slots["modality"][row, stage].tolist(), since, since_ns)
    items = [
        OpenStage(name, _MODALITY_NAMES[modality], text, wall_ns, age, said or None)
        for name, modality, text, wall_ns, age, said in zip(
            *columns, ages_of(began, at_ns), tokens.tolist(), strict=True
        )
    ]
    return grouped(row, items, len(slots))


def _modalities(requests: NDArray[Any], offset_ns: int, places: PlaceFinder) -> list[list[ModalityState]]:
    """First and last mark and the tokens of each modality that a request has touched."""
    slots, words = requests["stages"], requests["modality_words"]
    said = _tokens_said(slots)
    row, modality = np.nonzero(words)
    word, first_word = words[row, modality], requests["modality_first_words"][row, modality]
    times = np.concatenate([first_word, word])
    texts, wall_ns = moments_of((times & _WORD_NS) << np.uint64(8), offset_ns)
    stage = (word >> np.uint64(56)).astype(np.uint8)
    names: list[str | None] = [None if each == NO_STAGE else _STAGE_NAMES[each] for each in stage.tolist()]
    for at in np.flatnonzero((stage >= OWN_STAGES.start) & (stage < OWN_STAGES.stop)).tolist():
        names[at] = places.name_of(int(requests["tgid"][row[at]]), int(stage[at]))
    columns = (modality.tolist(), (first_word != 0).tolist(), names, said[row, modality].tolist())
    last = len(row)
    items = [
        ModalityState(
            _MODALITY_NAMES[at],
            texts[index] if has_first else None,
            wall_ns[index] if has_first else None,
            texts[last + index],
            wall_ns[last + index],
            name,
            size or None,
        )
        for index, (at, has_first, name, size) in enumerate(zip(*columns, strict=True))
    ]
    return grouped(row, items, len(requests))


def _tokens_said(slots: NDArray[Any]) -> NDArray[np.int64]:
    """(R, modalities) tokens: stages of one modality pass the same input on, so the largest, not the sum."""
    said = np.zeros((len(slots), MODALITIES), np.int64)
    # By what is used, not by all slots: a request uses a quarter of them.
    row, slot = np.nonzero(slots["tokens"])
    modality = np.minimum(slots["modality"][row, slot], Modality.unknown)
    np.maximum.at(said, (row, modality), slots["tokens"][row, slot].astype(np.int64))
    return said


def _digests(requests: NDArray[Any]) -> list[str | None]:
    """Digests of the inputs, where the kernel's rows carry them."""
    if "input_digest" not in (requests.dtype.names or ()):
        return [None] * len(requests)
    raw = requests["input_digest"]
    if raw.dtype.kind in "ui":
        return [f"{value:016x}" if value else None for value in raw.tolist()]
    return [bytes(value).hex() if any(bytes(value)) else None for value in raw]
