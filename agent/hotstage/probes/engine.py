# SPDX-License-Identifier: Apache-2.0
"""The probes as one object: load, attach what is found, read both ticks, say what is covered, let go.

All that the daemon needs of this room goes through here. Three threads may call: the tick (reads), anybody
(coverage, totals), and the discovery thread inside; `_maps_lock` guards the kernel's maps, the books have
their own lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hotstage.clock import Clock
from hotstage.config.governor import GovernorConfig
from hotstage.config.settings import ProbesConfig
from hotstage.errors import HotstageError
from hotstage.probes.beside import Beside
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import Tier, call_spec_table
from hotstage.probes.conflict import Conflicts
from hotstage.probes.coverage import CallTotals, Coverage, DiscoveryHealth
from hotstage.probes.departures import Departures
from hotstage.probes.discovery.libraries import is_library, optional_kinds
from hotstage.probes.discovery.processes import ProcessTable
from hotstage.probes.discovery.targets import inspect_library
from hotstage.probes.discovery.watch import Watch
from hotstage.probes.ended_names import EndedNames
from hotstage.probes.launch_sources import LaunchSources, SourcesBook
from hotstage.probes.ledger import Ledger
from hotstage.probes.loader.base import Loader, MapSizes, Rung
from hotstage.probes.loader.choice import load_with, refused_rungs
from hotstage.probes.maps.bursts import BurstMaps
from hotstage.probes.maps.inference import Function, FunctionDecision, RuleEntry, Stream
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.names import Names
from hotstage.probes.nvtx_names import RangeNames, range_names
from hotstage.probes.restraint.books import RestrainedAttachments
from hotstage.probes.restraint.restraint import Restraint
from hotstage.probes.samples import CallSample, FastSample
from hotstage.probes.scheduler import Scheduler
from hotstage.probes.totals import TotalsBook
from hotstage.probes.trial.trials import LibraryTrials, NoTrials, Trials
from hotstage.text import clean_name, format_uuid

SETTLE_SECONDS = 1.0
"""How long `start` waits for the first scan: what hangs longer is attached when it answers."""
_EVENT_GAP_NS = 10_000_000
"""Slow and failed calls are told at most 100 times a second by one thread."""

log = logging.getLogger(__name__)

Part = TypeVar("Part")


class ProbeEngine:
    """Made unstarted; `start` loads and attaches, `close` leaves nothing behind. Reading before: an error."""

    def __init__(
        self,
        config: ProbesConfig,
        clock: Clock,
        *,
        loader: Loader | None = None,
        is_own: Callable[[int], bool] = lambda pid: False,
        governor: GovernorConfig | None = None,
    ) -> None:
        """`is_own` names the watcher's own processes: NVML maps libcuda, and is no server."""
        self._is_own = is_own
        self._config = config
        self._clock = clock
        self._given_loader = loader
        self._loader: Loader | None = None
        self._maps: KernelMaps | None = None
        self._maps_lock = threading.Lock()
        self._totals = TotalsBook()
        self._ended_names = EndedNames()
        self._sources = SourcesBook()
        self._departures = Departures(int(config.process_linger_seconds * 1e9))
        self._attachments: RestrainedAttachments | None = None
        self._watch: Watch | None = None
        self._trials: Trials = NoTrials()
        self.beside = Beside(config, clock, lambda: self._attachments.pids() if self._attachments else ())
        """Lines of the kernel log, tracepoints of GPU drivers, the operator's own programs."""
        self.scheduler = Scheduler()
        """Waits for a CPU of the threads that are followed; for the slow tick."""
        self._range_names: RangeNames | None = None
        self.conflict = Conflicts()
        """Verdicts on allocations and what they are made by; who works on which stream."""
        self.ledger = Ledger()
        """What memory each process has, PyTorch's allocators beside it; for the slow tick."""
        self.names = Names(config, clock, self.launches_by_source)
        """Launches by kernel, stacks of slow and failing calls; for whoever asks."""
        self.restraint = Restraint(config, clock, governor)
        """What holds the probes back: deny list, kill switch, governor."""
        self._refused_rungs: Mapping[str, str] = {}
        self._epoch_ns = 0
        self.loader = ""
        """`libbpf` or `bcc`, whichever compiled what is loaded."""
        self.rung = ""
        """`S`, `M` or `P`."""
        self.start_seconds: float | None = None
        """From `start` to everything found attached."""

    def start(self) -> None:
        """Load, scan, attach, follow. PrivilegeError, PreflightError or LoadError: then nothing stays."""
        began_ns = self._clock.monotonic_ns()
        try:
            self._load()
            self._follow()
        except BaseException:
            self.close()
            raise
        self.start_seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
        self.beside.start()

    def read_fast(self) -> FastSample:
        """State in flight and what happened since the last read; for the fast tick."""
        xids = self.beside.drain()
        with self._maps_lock:
            sample = self._open_maps.read_fast(self._clock.monotonic_ns(), xids)
        sample = self.restraint.judged(sample)
        return replace(sample, losses=self.beside.with_losses(sample.losses), conflicts=self.conflict.drain())

    def read_slow(self) -> CallSample:
        """Counts by key; for the slow tick, after which entries of processes that have gone are removed."""
        with self._maps_lock:
            sample = self._open_maps.read_slow(self._clock.monotonic_ns())
            if self._range_names is not None:
                self._range_names.resolve()
            self._forget_the_gone()
        self.beside.keep(self.restraint.off)
        self.scheduler.hold("restraint", self.restraint.off)
        return sample

    def totals(self) -> CallTotals:
        """Exact counts by call and process, the gone ones included, as of now."""
        with self._maps_lock:
            maps = self._open_maps
            threads, work = maps.threads(), maps.graphs.work()
            return self._totals.sum(*maps.calls(), threads, self._lost_calls(maps), work)

    def coverage(self) -> Coverage:
        """What is watched and what is not, at this moment."""
        attachments, watch = _started(self._attachments), _started(self._watch)
        attached, emulated = attachments.counts()
        with self._maps_lock:
            maps = self._open_maps
            losses, map_bytes, made = maps.losses(), maps.bytes_by_map(), maps.communicators.all()
            map_bytes |= self.scheduler.bytes_by_map()
        return Coverage(
            loader=self.loader,
            rung=self.rung,
            epoch_ns=self._epoch_ns,
            start_seconds=self.start_seconds,
            processes=attachments.processes(),
            attached=attached,
            emulated=emulated,
            missed=attachments.missed(),
            epochs=attachments.epochs(),
            calls=self.totals(),
            communicators=tuple(made),
            losses=self.beside.with_losses_now(losses),
            xid=self.beside.xid.side,
            driver=self.beside.driver.report(self.launch_totals().total),
            custom=self.beside.custom.report(),
            discovery=DiscoveryHealth(
                stuck=watch.stuck,
                abandoned=watch.abandoned_total,
                lost_records=watch.lost_records,
                truncated=watch.truncated_maps,
                rescans=watch.rescans,
            ),
            refused_rungs=self._refused_rungs,
            map_bytes=map_bytes,
            off=self.restraint.off,
            scheduler=self.scheduler.side,
            governor=self.restraint.view(),
        )

    def attached_points(self) -> int:
        """Probe points that hold now; cheaper than `coverage`."""
        return _started(self._attachments).counts()[0]

    def points_in_use(self) -> int:
        """Of them, those in libraries that a process has."""
        return _started(self._attachments).points_in_use()

    @property
    def kernel_log(self) -> str | None:
        """What XID lines come through; None while they do not."""
        return self.beside.xid.side.through

    def rings_are_drained(self) -> bool:
        """False when the fast reads do not get out of the ring what the programs put in."""
        with self._maps_lock:
            return self._open_maps.rings_are_drained()

    @property
    def is_following(self) -> bool:
        """Whether the thread that attaches to new processes runs."""
        return self._watch is not None and self._watch.is_following

    def pids(self) -> list[int]:
        """Processes that have a known library now."""
        return _started(self._attachments).pids()

    def map_bytes(self) -> int:
        """Kernel memory of the maps, as the kernel accounts for it."""
        with self._maps_lock:
            return self._open_maps.map_bytes() + sum(self.scheduler.bytes_by_map().values())

    def device_uuids(self) -> Mapping[tuple[int, int], str]:
        """(pid, ordinal) → `GPU-…`, as the driver told that process; gone processes stay for a while."""
        with self._maps_lock:
            return {key: format_uuid(raw) for key, raw in self._open_maps.device_uuids().items()}

    def contexts(self) -> Mapping[tuple[int, int], int]:
        """(pid, CUcontext) → device ordinal, as that process made them; gone processes stay for a while."""
        with self._maps_lock:
            return self._open_maps.contexts()

    def stage_names(self) -> Mapping[tuple[int, int], str]:
        """(pid, stage id 32..63) → the name of its own stage, cleaned, maybe empty; of ended ones, too."""
        with self._maps_lock:
            living = {key: clean_name(raw) for key, raw in self._open_maps.stage_names().items()}
        return self._ended_names.beside(living)

    # ---- what unmarked work counts as

    def threads(self) -> NDArray[np.void]:
        """THREAD_DTYPE (T,), every thread seen so far, as of now."""
        with self._maps_lock:
            return self._open_maps.threads()

    def set_stage_rules(self, pid: int, entries: Collection[RuleEntry]) -> int:
        """What unmarked work of the process counts as from now on; how many entries found no room."""
        return self._open_maps.inference.set_rules(pid, entries)

    def functions(self) -> list[Function]:
        """Functions that processes looked up by name while they were watched."""
        return self._open_maps.inference.functions()

    def function_counts(self) -> list[tuple[int, int, int, int, int]]:
        """(pid, handle, stage, modality, launches) of marked launches while learning."""
        return self._open_maps.inference.counts()

    def decide_functions(self, pid: int, decisions: Mapping[int, FunctionDecision]) -> int:
        """What unmarked launches of these handles say of their thread; how many handles are known."""
        return self._open_maps.inference.decide(pid, decisions)

    def learn_functions(self, is_learning: bool) -> None:
        """Whether marked launches are counted by function from now on."""
        self._open_maps.learn(is_learning)

    def streams(self) -> list[Stream]:
        """Streams that were made while watched, by process and in the order of their making."""
        return self._open_maps.inference.streams()

    @property
    def bursts(self) -> BurstMaps:
        """Bursts of unmarked launches by thread, and which of them are prefill and decode."""
        return self._open_maps.bursts

    def launches_by_source(self) -> Mapping[int, LaunchSources]:
        """pid → its launches by why they count as their stage; processes that have gone stay for a while."""
        with self._maps_lock:
            return self._sources.sum(self._open_maps.threads())

    def launch_totals(self) -> LaunchSources:
        """Launches of all processes by source, those that have gone too."""
        with self._maps_lock:
            return self._sources.total(self._open_maps.threads())

    def close(self) -> None:
        """Stop following, detach everything, unload. Safe to call twice."""
        self.restraint.close()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        self.beside.close()
        self._trials.close()
        self.scheduler.close()
        self.names.close()
        attachments, self._attachments = self._attachments, None
        if attachments is not None:
            attachments.close()
        with self._maps_lock:
            maps, self._maps = self._maps, None
            if maps is not None:
                maps.close()
        loader, self._loader = self._loader, None
        if loader is not None:
            loader.close()

    # ---- starting

    def _load(self) -> None:
        config = self._config
        rung = None if config.rung == "auto" else Rung(config.rung)
        self._loader, loaded = load_with(config.loader, MapSizes.of(config), rung, self._given_loader)
        self._refused_rungs = refused_rungs(self._loader)
        self.loader, self.rung = self._loader.name, loaded.rung.value
        self._maps = KernelMaps(loaded.maps)
        self._range_names = range_names(loaded.maps) if config.nvtx_torch else None
        self.conflict.start(self._maps)
        self.ledger.start(self._maps, is_torch_followed=config.torch_memory)
        slow_ns = int(config.slow_call_seconds * 1e9)
        self._maps.prepare(call_spec_table(LIBRARIES), slow_call_ns=slow_ns, event_gap_ns=_EVENT_GAP_NS)
        self.names.start(self._maps.names)
        if config.scheduler:
            self.scheduler.start(loaded.maps, self._maps.histograms, threads=config.threads)
        self.restraint.loaded(self._loader, loaded.maps, self._maps)
        self._epoch_ns = self._clock.monotonic_ns()

    def _follow(self) -> None:
        config = self._config
        assert self._loader is not None
        if config.canary:
            self._trials = LibraryTrials(Rung(self.rung), self._clock)
        self._attachments = RestrainedAttachments(
            self._loader,
            self._clock,
            linger_ns=int(config.process_linger_seconds * 1e9),
            departures=self._departures,
            denies=self.restraint.denies,
            has_own_links=self.rung == Rung.SESSION,
        )
        self.ledger.follow(self._attachments.processes)
        self.restraint.follow(self._attachments, self._open_maps, self._maps_lock, self._totals)
        self._watch = Watch(
            ProcessTable(Path(config.proc_root)),
            self._attachments,
            self._clock,
            inspect=partial(
                inspect_library,
                fast_placement=config.fast_placement,
                essential_only=self.rung == Rung.PERF,
                tier=Tier[config.tier],
                try_out=self._trials.try_out,
            ),
            deadline_seconds=config.discovery_deadline_seconds,
            is_own=lambda pid: self._trials.owns(pid) or self._is_own(pid),
            is_wanted=partial(is_library, optional=optional_kinds(config)),
        )
        self.restraint.watch(self._watch)
        if not self._watch.start(SETTLE_SECONDS):
            log.warning("some processes do not answer; their libraries are attached when they do")
        self._trials.started()

    def _forget_the_gone(self) -> None:
        now_ns, maps = self._clock.monotonic_ns(), self._open_maps
        names = maps.stage_names()
        for pid in {*maps.request_counts(), *maps.holders(), *(pid for pid, _ in names)}:
            if not self._is_in_use(pid):  # it may have come and gone before discovery looked
                self._departures.process_missing(pid, now_ns)
        pids, threads = self._departures.due(now_ns)
        if pids:
            self._ended_names.keep({key: clean_name(raw) for key, raw in names.items() if key[0] in pids})
            forgotten = maps.forget_processes(pids)
            self.ledger.forget(pids)
            self._totals.keep(forgotten)
            self._sources.keep(forgotten.threads)
            self._sources.forget(pids)
            self.restraint.forget(pids)
        tids = [tid for _, tid in threads if not self._is_in_use(tid)]
        self.scheduler.forget(pids, tids)
        if tids:
            ended = maps.forget_threads(tids)
            self._totals.keep_threads(ended)
            self._sources.keep(ended)

    def _is_in_use(self, tid: int) -> bool:
        """Whether any thread has this id now: procfs answers for threads, too, it only does not list them."""
        return (Path(self._config.proc_root) / str(tid)).exists()

    def _lost_calls(self, maps: KernelMaps) -> int:
        """Calls that were made and are in no sum. Only rung S times a call without its thread's state."""
        losses = maps.losses()
        lost = losses["lost_call_keys"]
        return lost if self.rung == Rung.SESSION else lost + losses["lost_threads"] + losses["lost_frames"]

    @property
    def _open_maps(self) -> KernelMaps:
        return _started(self._maps)


def _started(part: Part | None) -> Part:
    if part is None:
        raise HotstageError("the probes are not started")
    return part
