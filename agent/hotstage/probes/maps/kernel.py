# SPDX-License-Identifier: Apache-2.0
"""The kernel's maps as the samples of both ticks; what they are called and when an entry goes.

Works on descriptors, whichever compiler made them. It never looks at /proc: callers say who is dead.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf
from hotstage.probes.maps import layout
from hotstage.probes.maps.bursts import BurstMaps
from hotstage.probes.maps.call_spec import CALL_SPEC_DTYPE
from hotstage.probes.maps.communicators import CommunicatorMaps
from hotstage.probes.maps.conflict import ConflictMaps
from hotstage.probes.maps.graphs import GraphMaps, no_work
from hotstage.probes.maps.histograms import HistogramSlots
from hotstage.probes.maps.inference import InferenceMaps
from hotstage.probes.maps.ledger import LedgerMaps
from hotstage.probes.maps.names import LAUNCH_GAP, NamesMaps
from hotstage.probes.maps.reader import HashReader
from hotstage.probes.maps.ring import RingReader
from hotstage.probes.maps.shares import Share
from hotstage.probes.maps.torch import TorchMaps
from hotstage.probes.samples import CallSample, FastSample, XidEvent

_EVENT_DTYPES: dict[int, np.dtype[np.void]] = {
    layout.EventKind.REQUEST_FINISHED: layout.FINISHED_DTYPE,
    layout.EventKind.CALL_SLOW: layout.CALL_EVENT_DTYPE,
    layout.EventKind.CALL_ERROR: layout.CALL_EVENT_DTYPE,
    layout.EventKind.BATCH: layout.BATCH_EVENT_DTYPE,
}
_TID_DTYPE = np.dtype([("tid", "<u4")])
_ORDINAL_DTYPE = np.dtype([("ordinal", "<u4")])
_HOLDER_DTYPE = np.dtype([("tgid", "<u4")])
_HELD_DTYPE = np.dtype([("requests", "<u8")])
_PROCESS_SHARE = 4
"""One process may hold a quarter of `pipeline_state`, and of each map that follows what it does, so that no
single one can crowd out the others.
"""

_KEY_SHIFTS = (("call", 33), ("stage", 25), ("modality", 17), ("device", 9), ("layer", 7), ("direction", 4))
_LOSS_COUNTS = struct.Struct(f"<{layout.LOSS_ROWS}Q")
_LOSS_NAMES = tuple((loss.name.lower(), loss.value) for loss in layout.Loss)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Last rows of processes whose entries were removed; copies. `open` calls of theirs will never return."""

    keys: NDArray[np.void]
    stats: NDArray[np.void]
    threads: NDArray[np.void]
    requests: NDArray[np.void]
    graph_work: tuple[NDArray[np.void], NDArray[np.void]] = field(default_factory=no_work)
    """Keys and GRAPH_WORK_DTYPE rows of their launches."""


class KernelMaps:
    """Every map of the counting and marks programs. One thread reads it."""

    def __init__(
        self, fds: Mapping[str, int], take_out: int | None = None, drop_pending: int | None = None
    ) -> None:
        """Programs that are run here: `take_out` is `ledger_take_out`, where the others need it;
        `drop_pending` is needed where threads are forgotten.
        """
        self._fds = dict(fds)
        self._threads = HashReader(fds["threads"], _TID_DTYPE, layout.THREAD_STATE_DTYPE)
        self._requests = HashReader(
            fds["pipeline_state"], layout.REQUEST_KEY_DTYPE, layout.REQUEST_STATE_DTYPE
        )
        self._batches = HashReader(fds["batches"], _TID_DTYPE, layout.BATCH_STATE_DTYPE)
        self._ranges = HashReader(fds["nvtx_stacks"], _TID_DTYPE, layout.NVTX_STACK_DTYPE)
        self._calls = HashReader(fds["call_stats"], layout.CALL_KEY_DTYPE, layout.CALL_STAT_DTYPE)
        self._contexts = HashReader(fds["contexts"], layout.CONTEXT_KEY_DTYPE, _ORDINAL_DTYPE)
        self._uuids = HashReader(fds["device_uuids"], layout.DEVICE_KEY_DTYPE, layout.DEVICE_UUID_DTYPE)
        self._holders = HashReader(fds["request_counts"], _HOLDER_DTYPE, _HELD_DTYPE)
        self._shares = HashReader(fds["process_shares"], _HOLDER_DTYPE, layout.PROCESS_SHARE_DTYPE)
        self._stage_names = HashReader(
            fds["stage_names"], layout.STAGE_NAME_KEY_DTYPE, layout.STAGE_NAME_DTYPE
        )
        self.histograms = HistogramSlots(fds["call_histograms"], fds["free_histograms"])
        """Slots for whoever counts times; the scheduler's programs take some, too."""
        self._events = RingReader(fds["events"])
        self._losses = mmap.mmap(fds["losses"], mmap.PAGESIZE, prot=mmap.PROT_READ)
        self._seen = np.empty(0, np.uint64), np.empty(0, np.uint64)
        self._settings = np.zeros(1, layout.SETTINGS_DTYPE)
        self._specs: NDArray[np.void] = np.zeros(0, CALL_SPEC_DTYPE)
        self.torch = TorchMaps(fds)
        """What PyTorch's allocators hold; empty unless they are followed."""
        self.inference = InferenceMaps(fds, self._move_generation)
        """Rules, functions and streams of unmarked work."""
        self.bursts = BurstMaps(fds)
        """Bursts of unmarked launches, and which of them are prefill and decode."""
        self.ledger = LedgerMaps(fds, take_out)
        """What memory is allocated."""
        self.communicators = CommunicatorMaps(fds, drop_pending)
        """NCCL's, and which processes the runtime does not count in."""
        self.names = NamesMaps(fds)
        """Names of launched kernels, stacks of slow or failing calls."""
        self.conflict = ConflictMaps(fds)
        """Verdicts on allocations, and who works on which stream."""
        self.graphs = GraphMaps(fds)
        """Captured launches, and what graph launches run."""

    def prepare(self, call_specs: NDArray[np.void], *, slow_call_ns: int, event_gap_ns: int) -> None:
        """Write what the programs read: once after load, before anything is attached."""
        self._specs = call_specs
        for call_id, row in enumerate(call_specs):
            bpf.update(self._fds["call_specs"], struct.pack("<I", call_id), row.tobytes())
        blank = np.zeros(1, layout.THREAD_STATE_DTYPE)
        for name in ("stage", "inferred_stage", "rule_stage"):
            blank[name] = layout.NO_STAGE
        for name in ("modality", "inferred_modality", "rule_modality"):
            blank[name] = layout.MODALITIES - 1
        blank["device"] = blank["pushed_device"] = layout.NO_DEVICE
        bpf.update(self._fds["thread_blank"], struct.pack("<I", 0), blank.tobytes())
        self.set_limits(slow_call_ns=slow_call_ns, event_gap_ns=event_gap_ns)
        self.names.prepare(launch_gap=LAUNCH_GAP, takes_stacks=True)
        self.histograms.fill_queue()

    def set_limits(self, *, slow_call_ns: int, event_gap_ns: int) -> None:
        """From when a call is told as slow (0: never), and how seldom one thread may tell.

        A process's share of `pipeline_state` follows from the size that the map was loaded with.
        """
        row = self._settings
        row["slow_call_ns"], row["event_gap_ns"] = slow_call_ns, event_gap_ns
        row["requests_per_process"] = max(1, self._requests.capacity // _PROCESS_SHARE)
        for share, entries in self._shared_entries().items():
            row["shares"][0, share] = max(1, entries // _PROCESS_SHARE)
        self._move_generation()

    def limits(self) -> dict[str, int]:
        """As `set_limits` takes them."""
        return {name: int(self._settings[name][0]) for name in ("slow_call_ns", "event_gap_ns")}

    def _shared_entries(self) -> dict[int, int]:
        """Entries of the maps of `process_shares`, by `Share`."""
        functions, counts, streams = self.inference.capacities()
        return {
            Share.CALL_STATS: self._calls.capacity,
            Share.FUNCTIONS: functions,
            Share.FUNCTION_COUNTS: counts,
            Share.STREAMS: streams,
            Share.ALLOCATIONS: self.ledger.capacity,
            Share.BLOCKS: self.torch.capacity,
            Share.STREAM_USERS: self.conflict.stream_capacity,
            Share.COMMUNICATORS: self.communicators.capacity,
            Share.GRAPHS: self.graphs.capacity,
            Share.CONTEXTS: self._contexts.capacity,
            Share.DEVICES: self._uuids.capacity,
            Share.PRIMARIES: self.ledger.primary_capacity,
            Share.POOLS: self.ledger.pool_capacity,
            Share.PENDING: self.communicators.pending_capacity,
        }

    def learn(self, is_learning: bool) -> None:
        """Whether marked launches are counted by function and stage from now on: some 50 ns a launch."""
        for call_id in np.flatnonzero(self._specs["function_argument"]).tolist():
            row = self._specs[call_id].copy()
            if is_learning:
                row["function_argument"] |= layout.FUNCTION_LEARNS
            bpf.update(self._fds["call_specs"], struct.pack("<I", call_id), row.tobytes())

    def _move_generation(self) -> None:
        """Write the settings; threads without a mark look their rules up again."""
        self._settings["rules_generation"] += 1
        bpf.update(self._fds["settings"], struct.pack("<I", 0), self._settings.tobytes())

    def read_fast(self, at_ns: int, xids: tuple[XidEvent, ...] = ()) -> FastSample:
        """State in flight and what ended since the last read; `at_ns` is the time just before."""
        threads = self.threads()
        requests = self.requests()
        events = self._events.drain(_EVENT_DTYPES)
        finished = events[layout.EventKind.REQUEST_FINISHED]
        unwanted = requests["started_ns"] == 0  # the kernel is still filling it in
        if len(finished):
            # Read first, drained after: a request that ended in between is in both, never in neither.
            ended = np.isin(requests["request_hash"], finished["request_hash"])
            if ended.any():
                unwanted |= ended & np.isin(requests["cgroup_id"], finished["cgroup_id"])
        came = requests["started_ns"] > at_ns
        return FastSample(
            at_ns=at_ns,
            threads=threads,
            requests=_without(requests, unwanted),
            finished=finished,
            xids=xids,
            events=_both(events[layout.EventKind.CALL_SLOW], events[layout.EventKind.CALL_ERROR]),
            losses=self.losses(),
            unclean=int(np.count_nonzero(unwanted | came)),
            batches=events[layout.EventKind.BATCH],
        )

    def read_slow(self, at_ns: int) -> CallSample:
        """Counts by key, and the histograms of the keys that moved."""
        keys, stats = (rows.copy() for rows in self._calls.read())
        moved = self._moved(keys, stats["count"])
        self.histograms.refresh(stats["histogram_slot"][moved])
        return CallSample(at_ns, keys, stats, moved, self.histograms.copied, self.graphs.work())

    def calls(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """CALL_KEY_DTYPE and CALL_STAT_DTYPE (N,), copies; what `read_slow` calls moved stays as it is."""
        keys, stats = self._calls.read()
        return keys.copy(), stats.copy()

    def threads(self) -> NDArray[np.void]:
        """THREAD_DTYPE (T,), a copy. In a call without a mark, stage and modality are the inferred ones."""
        threads = _joined(*self._threads.read(), layout.THREAD_DTYPE)
        bare = np.flatnonzero((threads["stage"] == layout.NO_STAGE) & (threads["call"] != 0))
        if len(bare):
            threads["stage"][bare] = threads["inferred_stage"][bare]
            threads["modality"][bare] = threads["inferred_modality"][bare]
        return threads

    def requests(self) -> NDArray[np.void]:
        """REQUEST_DTYPE (R,), a copy; rows with `started_ns` 0 are still being filled in."""
        return _joined(*self._requests.read(), layout.REQUEST_DTYPE)

    def rings_are_drained(self) -> bool:
        """Whether what is in the ring gets out of it, however much comes in."""
        return not self._events.is_stuck()

    def losses(self) -> dict[str, int]:
        """Cumulative, by lower-case name; every name is there."""
        counts = _LOSS_COUNTS.unpack_from(self._losses)
        return {name: counts[row] for name, row in _LOSS_NAMES}

    def request_counts(self) -> dict[int, int]:
        """pid → requests that it began and that are in `pipeline_state`; 0 for one whose all have ended."""
        pids, held = self._holders.read()
        return dict(zip(pids["tgid"].tolist(), held["requests"].tolist(), strict=True))

    def holders(self) -> list[int]:
        """Processes that hold a share of some map, or have a thread that was seen; ascending."""
        return sorted({*self._shares.read()[0]["tgid"].tolist(), *self.threads()["tgid"].tolist()})

    def device_uuids(self) -> dict[tuple[int, int], bytes]:
        """(pid, ordinal) → the 16 bytes that cuDeviceGetUuid_v2 gave."""
        keys, values = self._uuids.read()
        return {
            (int(key["tgid"]), int(key["ordinal"])): value["bytes"].tobytes()
            for key, value in zip(keys, values, strict=True)
        }

    def contexts(self) -> dict[tuple[int, int], int]:
        """(pid, CUcontext) → the ordinal of the device that it was made on."""
        keys, values = self._contexts.read()
        columns = (keys["tgid"].tolist(), keys["context"].tolist(), values["ordinal"].tolist())
        return {(pid, context): ordinal for pid, context, ordinal in zip(*columns, strict=True)}

    def stage_names(self) -> dict[tuple[int, int], bytes]:
        """(pid, stage id) → the name that the process gave its own stage, NUL-padded and not cleaned."""
        keys, values = self._stage_names.read()
        columns = (keys["tgid"].tolist(), keys["stage"].tolist(), values["name"].tolist())
        return {(pid, stage): name for pid, stage, name in zip(*columns, strict=True)}

    def forget_processes(self, pids: Collection[int]) -> Forgotten:
        """Take out all entries of processes that are gone and recycle their histograms; the last rows.

        The caller waits until nothing of theirs can be running any more.
        """
        gone = np.fromiter(pids, np.uint32, len(pids))
        keys, stats = (rows.copy() for rows in self._calls.read())
        threads, requests = self.threads(), self.requests()
        is_theirs = np.isin(keys["tgid"], gone)
        self._calls.delete(keys[is_theirs])
        self.histograms.refresh(stats["histogram_slot"][is_theirs])
        self.histograms.recycle(stats["histogram_slot"][is_theirs])
        threads = threads[np.isin(threads["tgid"], gone)]
        self._forget(threads)
        requests = requests[np.isin(requests["tgid"], gone)]
        self._requests.delete(requests[["cgroup_id", "request_hash"]].astype(layout.REQUEST_KEY_DTYPE))
        # After their requests: none of theirs is left that its end would take off a count
        for reader in (self._contexts, self._uuids, self._holders, self._shares, self._stage_names):
            map_keys = reader.read()[0].copy()
            reader.delete(map_keys[np.isin(map_keys["tgid"], gone)])
        self.inference.forget(pids)
        self.torch.forget(pids)
        self.communicators.forget(pids)
        self.conflict.forget(pids)
        work = self.graphs.forget(pids)
        self.names.forget(pids)
        return Forgotten(keys[is_theirs], stats[is_theirs], threads, requests, work)

    def forget_threads(self, tids: Collection[int]) -> NDArray[np.void]:
        """Take out threads that have ended while their process lives; THREAD_DTYPE rows, the last state."""
        threads = self.threads()
        gone = threads[np.isin(threads["tid"], np.fromiter(tids, np.uint32, len(tids)))]
        self._forget(gone)
        return gone

    def drop_requests(self, pids: Collection[int] | None) -> int:
        """Take out what these processes (None: all) have in flight, while no program runs for them."""
        rows = self.requests()
        if pids is not None:
            rows = rows[np.isin(rows["tgid"], np.fromiter(pids, np.uint32, len(pids)))]
        self._requests.delete(rows[["cgroup_id", "request_hash"]].astype(layout.REQUEST_KEY_DTYPE))
        held = self.request_counts()
        for pid, count in zip(*np.unique(rows["quota_tgid"], return_counts=True), strict=True):
            left = max(0, held.get(int(pid), 0) - int(count))
            bpf.update(self._fds["request_counts"], struct.pack("<I", pid), struct.pack("<Q", left))
        return len(rows)

    def drop_memory(self, pids: Collection[int] | None) -> None:
        """Take out what these processes (None: all) have in the ledger, while no program runs for them: what
        they free from here on nobody sees.
        """
        holders, shares = (rows.copy() for rows in self._shares.read())
        everyone = np.union1d(holders["tgid"], self.ledger.read().sums[0]["tgid"])
        chosen = everyone if pids is None else np.fromiter(pids, np.uint32, len(pids))
        self.ledger.forget(chosen.tolist())
        shares["held"][:, [Share.ALLOCATIONS, Share.PRIMARIES, Share.POOLS]] = 0
        for holder, share in zip(holders, shares, strict=True):
            if holder["tgid"] in chosen:
                bpf.update(self._fds["process_shares"], holder.tobytes(), share.tobytes())

    def bytes_by_map(self) -> dict[str, int]:
        """Memory that each map holds in the kernel, as it accounts for it."""
        return {name: bpf.locked_bytes(fd) for name, fd in self._fds.items()}

    def map_bytes(self) -> int:
        """All of them together."""
        return sum(self.bytes_by_map().values())

    def close(self) -> None:
        """Unmap; the descriptors belong to the loader."""
        self._events.close()
        self.conflict.close()
        self.names.close()
        self._losses.close()
        self.histograms.close()

    def _forget(self, threads: NDArray[np.void]) -> None:
        """These threads, the batches that they were in last and the NVTX ranges that they are in."""
        tids = threads["tid"].astype(_TID_DTYPE)
        self._threads.delete(tids)
        self._batches.delete(tids)
        self._ranges.delete(tids)
        self.bursts.forget(tids["tid"].tolist())
        self.communicators.forget_threads(tids["tid"])

    def _moved(self, keys: NDArray[np.void], counts: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which counts differ from the last read's, bool (N,); a key not seen before has moved."""
        packed = pack_keys(keys)
        known, before = self._seen
        at = np.minimum(np.searchsorted(known, packed), max(len(known) - 1, 0))
        is_same = np.zeros(len(packed), np.bool_)
        if len(known):
            is_same = (known[at] == packed) & (before[at] == counts)
        order = np.argsort(packed)
        self._seen = packed[order], counts[order]
        return ~is_same


def pack_keys(keys: NDArray[np.void]) -> NDArray[np.uint64]:
    """CALL_KEY_DTYPE (N,) → one uint64 each, equal only for equal keys (Linux has pids below 2^22)."""
    packed = keys["tgid"].astype(np.uint64) << np.uint64(42)
    for name, shift in _KEY_SHIFTS:
        packed |= keys[name].astype(np.uint64) << np.uint64(shift)
    return packed


def _without(rows: NDArray[np.void], unwanted: NDArray[np.bool_]) -> NDArray[np.void]:
    """The other rows; moved as plain bytes, which costs a tenth of moving them by field."""
    if not unwanted.any():
        return rows
    raw = rows.view(np.dtype((np.void, rows.dtype.itemsize)))
    return raw.take(np.flatnonzero(~unwanted)).view(rows.dtype)


def _both(first: NDArray[np.void], second: NDArray[np.void]) -> NDArray[np.void]:
    """One after the other; structured rows are dear to concatenate, and mostly there are none."""
    if len(second) == 0:
        return first
    return second if len(first) == 0 else np.concatenate([first, second])


def _joined(
    keys: NDArray[np.void], values: NDArray[np.void], row_dtype: np.dtype[np.void]
) -> NDArray[np.void]:
    """Key and value as one row: the value's bytes stand at the row's end."""
    rows = np.zeros(len(keys), row_dtype)
    if not len(rows):
        return rows
    as_bytes = rows.view(np.uint8).reshape(len(rows), row_dtype.itemsize)
    width = values.dtype.itemsize
    as_bytes[:, : keys.dtype.itemsize] = keys.view(np.uint8).reshape(len(keys), -1)
    as_bytes[:, row_dtype.itemsize - width :] = values.view(np.uint8).reshape(len(values), -1)
    return rows
