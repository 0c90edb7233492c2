# SPDX-License-Identifier: Apache-2.0
"""The probes as one object: load, attach what is found, read both ticks, say what is covered, let go.

All that others need of this room goes through here or through its parts, each of which answers one question.
Three threads may call: the tick (reads), anybody (coverage, totals), and the discovery thread inside; maps
and books have their own locks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from hotstage.clock import Clock
from hotstage.config.governor import GovernorConfig
from hotstage.config.settings import ProbesConfig
from hotstage.probes.beside import Beside
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.catalogue.spec import call_spec_table
from hotstage.probes.conflict import Conflicts
from hotstage.probes.counted import Counted
from hotstage.probes.coverage import CallTotals, Coverage
from hotstage.probes.driver.report import DriverReport
from hotstage.probes.following import Following
from hotstage.probes.forgetting import Forgetting
from hotstage.probes.ledger import Ledger
from hotstage.probes.loader.base import Loader, MapSizes, Rung
from hotstage.probes.loader.choice import load_with, refused_rungs
from hotstage.probes.loader.programs import DROP_PENDING, TAKE_OUT
from hotstage.probes.maps.guarded import GuardedMaps
from hotstage.probes.maps.kernel import KernelMaps
from hotstage.probes.names import Names
from hotstage.probes.nvtx_names import RangeNames, range_names
from hotstage.probes.restraint.restraint import Restraint
from hotstage.probes.samples import CallSample, FastSample
from hotstage.probes.scheduler import Scheduler
from hotstage.probes.told import ToldByProcesses
from hotstage.probes.unmarked import UnmarkedWork

_EVENT_GAP_NS = 10_000_000
"""Slow and failed calls are told at most 100 times a second by one thread."""


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
        self._config = config
        self._clock = clock
        self._given_loader = loader
        self._loader: Loader | None = None
        self._maps = GuardedMaps()
        self.counted = Counted(self._maps)
        """Calls, and launches by source; exact."""
        self.told = ToldByProcesses(self._maps)
        """GPUs, contexts and own stages of the processes."""
        self.unmarked = UnmarkedWork(self._maps, self.counted)
        """What unmarked work is seen by and told to count as; for `attribution`."""
        self.restraint = Restraint(config, clock, governor)
        """What holds the probes back: deny list, kill switch, governor."""
        self.following = Following(config, clock, self.restraint, is_own)
        """Who is watched."""
        self.beside = Beside(config, clock, self.following.pids)
        """Lines of the kernel log, tracepoints of GPU drivers, the operator's own programs."""
        self.scheduler = Scheduler()
        """Waits for a CPU of the threads that are followed; for the slow tick."""
        self._range_names: RangeNames | None = None
        self.conflict = Conflicts()
        """Verdicts on allocations and what they are made by; who works on which stream."""
        self.ledger = Ledger()
        """What memory each process has, PyTorch's allocators beside it; for the slow tick."""
        self.names = Names(config, clock, self.counted.launches_and_total)
        """Launches by kernel, stacks of slow and failing calls; for whoever asks."""
        self._forgetting = Forgetting(
            self.following.departures,
            self.counted,
            self.told,
            self.scheduler,
            (self.ledger.forget, self.restraint.forget),
            Path(config.proc_root),
        )
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

    def urgent_fds(self) -> tuple[int, ...]:
        """Rings that wake whoever polls them: verdicts on allocations, XIDs. Those that there are by now."""
        return (*self.conflict.urgent_fds(), *self.beside.urgent_fds())

    def read_fast(self) -> FastSample:
        """State in flight and what happened since the last read; for the fast tick."""
        xids = self.beside.drain()
        with self._maps.held() as maps:
            sample = maps.read_fast(self._clock.monotonic_ns(), xids)
        self.unmarked.look_at(sample.threads)
        sample = self.restraint.judged(sample)
        return replace(sample, losses=self.beside.with_losses(sample.losses), conflicts=self.conflict.drain())

    def read_slow(self) -> CallSample:
        """Counts by key; for the slow tick, after which entries of processes that have gone are removed."""
        with self._maps.held() as maps:
            sample = maps.read_slow(self._clock.monotonic_ns())
            if self._range_names is not None:
                self._range_names.resolve()
            self._forgetting.advance(maps, self._clock.monotonic_ns())
        self.beside.keep(self.restraint.off)
        self.scheduler.hold("restraint", self.restraint.off)
        self.scheduler.page_faults.hold("governor", self.restraint.spared)
        return sample

    def totals(self) -> CallTotals:
        """Exact counts by call and process, the gone ones included, as of now."""
        return self.counted.totals(self.rung)

    def coverage(self) -> Coverage:
        """What is watched and what is not, at this moment."""
        books = self.following.books
        attached, emulated = books.counts()
        with self._maps.held() as maps:
            losses, map_bytes, made = maps.losses(), maps.bytes_by_map(), maps.communicators.all()
            map_bytes |= self.scheduler.bytes_by_map()
        return Coverage(
            loader=self.loader,
            rung=self.rung,
            epoch_ns=self._epoch_ns,
            start_seconds=self.start_seconds,
            processes=books.processes(),
            attached=attached,
            emulated=emulated,
            missed=books.missed(),
            epochs=books.epochs(),
            calls=self.totals(),
            communicators=tuple(made),
            losses=self.beside.with_losses_now(losses),
            xid=self.beside.xid.side,
            driver=self.driver_report(),
            custom=self.beside.custom.report(),
            discovery=self.following.health(),
            refused_rungs=self._refused_rungs,
            map_bytes=map_bytes,
            off=self.restraint.off,
            scheduler=self.scheduler.side,
            page_faults=self.scheduler.page_faults.side,
            governor=self.restraint.view(),
        )

    def driver_report(self) -> DriverReport:
        """What tracepoints of GPU drivers have told; launches stand for `queue_submit` where none does."""
        return self.beside.driver_report(self.restraint.off, self.counted.launch_totals().total)

    def rings_are_drained(self) -> bool:
        """False when the fast reads do not get out of the ring what the programs put in."""
        with self._maps.held() as maps:
            return maps.rings_are_drained()

    def pids(self) -> list[int]:
        """Processes that have a known library now."""
        return self.following.books.pids()

    def map_bytes(self) -> int:
        """Kernel memory of the maps, as the kernel accounts for it."""
        with self._maps.held() as maps:
            return maps.map_bytes() + sum(self.scheduler.bytes_by_map().values())

    def close(self) -> None:
        """Stop following, detach everything, unload. Safe to call twice."""
        self.restraint.close()
        self.following.stop()
        self.beside.close()
        self.scheduler.close()
        self.names.close()
        self.following.let_go()
        self._maps.close()
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
        maps = KernelMaps(loaded.maps, loaded.programs.get(TAKE_OUT), loaded.programs.get(DROP_PENDING))
        self._maps.open(maps)
        self._range_names = range_names(loaded.maps) if config.nvtx_torch else None
        self.conflict.start(maps)
        self.ledger.start(maps, is_torch_followed=config.torch_memory)
        slow_ns = int(config.slow_call_seconds * 1e9)
        maps.prepare(call_spec_table(LIBRARIES), slow_call_ns=slow_ns, event_gap_ns=_EVENT_GAP_NS)
        if config.scheduler:
            self.scheduler.start(loaded.maps, maps.histograms, threads=config.threads)
        if config.page_faults:
            self.scheduler.start_page_faults(loaded.maps)
        self.restraint.loaded(self._loader, loaded.maps, maps, self.scheduler.page_faults.price)
        self.names.start(maps.names, maps.inference)
        self._epoch_ns = self._clock.monotonic_ns()

    def _follow(self) -> None:
        assert self._loader is not None
        books = self.following.begin(self._loader, Rung(self.rung))
        self.ledger.follow(books.processes)
        self.restraint.follow(books, self._maps, self.counted)
        self.following.start(Rung(self.rung))
