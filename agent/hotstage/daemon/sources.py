# SPDX-License-Identifier: Apache-2.0
"""What the API asks of the running agent beside the view: coverage, snapshot, requests, frames, health.

Called from the API's threads, told by the tick. It reads; it never moves anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from hotstage import __version__
from hotstage.api import documents
from hotstage.api.message import ApiError
from hotstage.api.requests import Filter, RequestLog
from hotstage.api.view import Health
from hotstage.clock import Clock
from hotstage.daemon.publisher import Publisher
from hotstage.daemon.selfcheck import SelfMeter
from hotstage.detect.rules.rule_file import RuleProblem
from hotstage.devices.samples import DeviceSample
from hotstage.engines.engines import Engines
from hotstage.engines.samples import EngineSample
from hotstage.errors import StoreError
from hotstage.frame.columns import COLUMNS
from hotstage.frame.frame import Frame
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.maps.levels import Level
from hotstage.probes.restraint.governor import GovernorView
from hotstage.probes.samples import FastSample
from hotstage.probes.stacks import Stacks
from hotstage.sinks.self_facts import OtlpState, SelfFacts
from hotstage.stages.labels import own_stage_name
from hotstage.stages.places import Places
from hotstage.stages.snapshot import snapshot
from hotstage.stages.snapshot_types import Snapshot
from hotstage.stages.stage import NO_STAGE, modality_name
from hotstage.stages.stream_shares import shared_streams
from hotstage.stages.waterfall_types import Requests, Waterfall
from hotstage.store import outbox
from hotstage.store.deliveries import Deliveries
from hotstage.store.store import Store

Document = dict[str, Any]

TICK_LATE_SECONDS = 2.0
DEGRADING_LOSSES = "lost_"
LOSSY_NS = 300_000_000_000
"""How long a loss keeps the agent degraded."""
FRAME_VALUES_MAX = 2_000_000
"""Entities × columns × frames of one answer: a second of CPU, and some 50 MB while it is made."""


class LiveSources:
    """Remembers the last sample and the last frames for those who ask."""

    def __init__(
        self,
        clock: Clock,
        engine: ProbeEngine,
        engines: Engines,
        publisher: Publisher,
        store: Store,
        deliveries: Deliveries,
        meter: SelfMeter,
        problems: Sequence[RuleProblem],
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._engines = engines
        self._publisher = publisher
        self._store = store
        self._deliveries = deliveries
        self._meter = meter
        self.rules_left_out: Sequence[RuleProblem] = problems
        self._sample: FastSample | None = None
        self._devices: DeviceSample | None = None
        self._frames: tuple[Frame, ...] = ()
        self._places = Places()
        self._lost_total = 0
        self._lossy_ns: int | None = None
        self.events_expired = 0
        """Events that no notifier fetched within the retention; they are gone."""
        self._requests = RequestLog(clock, own_names=engine.told.stage_names)
        self._call_names = {call_id: call.name for call_id, call in calls_by_id().items()}

    def remember(self, sample: FastSample, devices: DeviceSample) -> None:
        """The tick's samples: what is in flight from now on, and what has just finished."""
        self._sample, self._devices = sample, devices
        self._note_losses(sample.losses)
        self._requests.add(sample.finished, len(sample.requests))

    def remember_frames(self, frames: tuple[Frame, ...]) -> None:
        self._frames = frames

    def expired(self, events: int) -> None:
        """So many more events have expired."""
        self.events_expired += events

    def stacks(self) -> Stacks:
        """Where slow and failing calls were made, and in which stage."""
        own = self._engine.told.stage_names()

        def named(pid: int, stage: int, modality: int) -> tuple[str | None, str]:
            in_stage = None if stage == NO_STAGE else own_stage_name(own, pid, stage)
            return in_stage, modality_name(modality)

        return self._engine.names.stacks(named)

    def coverage(self) -> Document:
        """What is attached, counted and lost; streams that modalities share, allocations that were judged."""
        conflict = self._engine.conflict
        return {
            **self._engine.coverage().as_json(),
            "wall_offset_ns": self._clock.wall_ns_of(0),
            "shared_streams": shared_streams(conflict.streams(), self._engine.told.stage_names()),
            "conflicts": dict(conflict.outcomes()),
        }

    def remember_places(self, places: Places) -> None:
        """Contexts and devices of the processes, once a second."""
        self._places = places

    def freeze(self) -> Callable[[], Snapshot]:
        """What the last fast tick saw, to be made into a snapshot whenever there is time."""
        sample = self._sample
        if sample is None:
            raise ApiError(503, "not_ready", "nothing was sampled yet", "try again in a second")
        return partial(snapshot, sample, self._clock, self._call_names, self._places)

    def snapshot(self) -> Snapshot:
        """Requests in flight as of the last fast tick."""
        return self.freeze()()

    def requests(self, after: int, limit: int, wanted: Filter) -> Requests:
        return self._requests.document(after, limit, wanted)

    def waterfall(self, request_id: str) -> Waterfall | None:
        return self._requests.waterfall(request_id, self._places.uuids)

    def frames(self, columns: Sequence[str], seconds: float) -> Document:
        frames = self._frames
        since_ns = frames[-1].at_ns - round(seconds * 1e9) if frames else 0
        chosen = [frame for frame in frames if frame.at_ns > since_ns]
        refuse_too_much(chosen, columns)
        try:
            return documents.frames(chosen, columns, self._clock)
        except KeyError as error:
            raise ApiError(
                400, "no_such_column", f"no column is named {error}", "leave columns out to see all"
            ) from error

    def is_ready(self) -> tuple[bool, Document]:
        """Attached and sampling: probes are loaded, not switched off, and the first second is over."""
        off = self._engine.restraint.off
        checks = {"sampling": bool(self._frames), "rung": self._engine.rung, "probes": off or "on"}
        return bool(self._frames) and off is None, checks

    def facts(
        self,
        *,
        page_dropped: int,
        sink_errors: Mapping[str, int],
        otlp: OtlpState | None,
        threadless: int,
    ) -> SelfFacts:
        """What the agent's own metrics say, as of now."""
        own, coverage = self._meter.sample(), self._engine.coverage()
        try:
            waiting = outbox.state(self._store.database)
        except StoreError:
            waiting = None
        return SelfFacts(
            version=__version__,
            loader=coverage.loader,
            rung=coverage.rung,
            fast_ticks=own.fast_ticks,
            slow_ticks=own.slow_ticks,
            late_ticks=own.late_ticks,
            fast_tick_p99_seconds=own.fast_tick_p99_seconds,
            slow_tick_p99_seconds=own.slow_tick_p99_seconds,
            attached_symbols=self._engine.following.books.points_in_use(),
            missed_symbols=sum(not each.is_expected for each in coverage.missed),
            map_bytes=own.map_bytes,
            levels={} if coverage.off else levels_of(coverage.governor),
            probe_cost_ratio=dearest(coverage.governor),
            page_dropped=page_dropped,
            is_ticking=not (self._is_late(self._seconds_since_tick()) or self._meter.failures.are_lasting()),
            losses=coverage.losses,
            launches=asdict(self._engine.counted.launch_totals()),
            kernels=tuple(self._engine.names.kernel_series()),
            sink_errors=sink_errors,
            journal=self._publisher.journal_state(),
            outbox=waiting,
            notifier=self._deliveries.latest(),
            is_reload_refused=not self._meter.last_reload_successful,
            otlp=otlp,
            threadless=threadless,
            log_records=log_records(),
            driver=coverage.driver,
            conflicts=self._engine.conflict.outcomes(),
            custom=self._engine.beside.custom.read(),
        )

    def health(self) -> Health:
        """failing: the ticks stand still. degraded: something is lost, refused or left out."""
        journal = self._publisher.journal_state()
        devices = self._devices
        sample = self._sample
        late_seconds = self._seconds_since_tick()
        lost = {name: count for name, count in (sample.losses if sample else {}).items() if count}
        checks: Document = {
            "tick": {
                "seconds_since_last": late_seconds,
                "late_total": self._meter.late_ticks,
                "failed_total": self._meter.failures.total,
            },
            "agent": self._meter.sample().document(),
            "losses": lost,
            "journal": {
                "pending": journal.pending,
                "committed_total": journal.committed_total,
                "lost_total": journal.lost_total,
                "error": journal.error,
            },
            "outbox": self._outbox(),
            "snapshots": asdict(self._publisher.snapshot_state()),
            "devices": _devices(devices),
            "engines": [_engine(each, self._clock.monotonic_ns()) for each in self._engines.latest()],
            "probes": self._engine.restraint.off or "on",
            "rules_left_out": [str(problem) for problem in self.rules_left_out],
        }
        return Health(self._status(checks, late_seconds), checks)

    def _note_losses(self, lost: Mapping[str, int]) -> None:
        """Remember when something was last lost: old losses are told, but degrade nothing."""
        total = sum(count for name, count in lost.items() if name.startswith(DEGRADING_LOSSES))
        if total > self._lost_total:
            self._lossy_ns = self._clock.monotonic_ns()
        self._lost_total = total

    def _status(self, checks: Document, late_seconds: float | None) -> str:
        if self._is_late(late_seconds) or self._meter.failures.are_lasting():
            return "failing"
        lossy = self._lossy_ns is not None and self._clock.monotonic_ns() - self._lossy_ns < LOSSY_NS
        refused = checks["journal"]["error"] is not None or checks["outbox"]["error"] is not None
        is_off = self._engine.restraint.off is not None
        return "degraded" if lossy or refused or is_off or self.rules_left_out else "ok"

    @staticmethod
    def _is_late(seconds: float | None) -> bool:
        return seconds is None or seconds > TICK_LATE_SECONDS

    def _seconds_since_tick(self) -> float | None:
        last_ns = self._meter.last_tick_ns
        return None if last_ns is None else (self._clock.monotonic_ns() - last_ns) / 1e9

    def _outbox(self) -> Document:
        report = self._deliveries.latest()
        destinations = () if report is None else report.destinations
        known: Document = {
            "dead": sum(each.dead for each in destinations) if report else None,
            "delivered": sum(each.delivered for each in destinations) if report else None,
            "expired": self.events_expired,
        }
        try:
            state = outbox.state(self._store.database)
        except StoreError as error:
            return {"pending": None, "enqueued": None, **known, "error": error.message}
        return {"pending": state.pending, "enqueued": state.enqueued_total, **known, "error": None}


def levels_of(view: GovernorView | None) -> dict[str, int]:
    """Level → processes at it, for every level below `full`."""
    told = [each.level for each in view.processes] if view else []
    return {level.name: told.count(level.name) for level in Level if level is not Level.full}


def dearest(view: GovernorView | None) -> float | None:
    """The highest share of a process's CPU time that its probes cost; None where no share is known."""
    known = [each.cost_ratio for each in view.processes if each.cost_ratio is not None] if view else []
    return max(known, default=None)


def refuse_too_much(frames: Sequence[Frame], columns: Sequence[str]) -> None:
    """Raises ApiError for more frames and columns (none: all) than one answer may have."""
    values = sum(len(frame.entities) for frame in frames) * (len(columns) or len(COLUMNS))
    if values > FRAME_VALUES_MAX:
        raise ApiError(
            400,
            "too_much",
            f"{values} values, where {FRAME_VALUES_MAX} are the most",
            "ask for fewer seconds, or name the columns",
        )


def log_records() -> dict[str, int]:
    """What became of log records that systemd's journal did not take; empty where it is not written to."""
    handlers = logging.getLogger().handlers
    return {
        fate: sum(getattr(each, fate) for each in handlers)
        for fate in ("refused", "dropped")
        if handlers and all(hasattr(each, fate) for each in handlers)
    }


def _engine(sample: EngineSample, now_ns: int) -> Document:
    """A silent engine is told; it degrades nothing, the agent is well."""
    return {
        "name": sample.name,
        "instance": sample.instance,
        "runtime": None if sample.runtime is None else sample.runtime.value,
        "models": [each.model for each in sample.models],
        "fresh": sample.is_fresh(now_ns),
        "age_seconds": None if sample.at_ns is None else sample.age_seconds(now_ns),
        "reason": sample.reason or None,
        "problems": list(sample.problems),
        "epoch": sample.epoch,
    }


def _devices(sample: DeviceSample | None) -> Document:
    if sample is None:
        return {"state": "starting", "reason": "nothing was sampled yet", "restarts": 0}
    return {"state": sample.state.value, "reason": sample.reason, "restarts": sample.restarts}
