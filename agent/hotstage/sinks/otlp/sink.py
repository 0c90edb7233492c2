# SPDX-License-Identifier: Apache-2.0
"""The OTLP output: takes note on the tick, starts and ends the exporter's thread. Imports no OpenTelemetry.

A collector that is dead or slow fills the queue, which then drops and counts; it delays neither a tick nor,
by more than `CLOSE_SECONDS`, the end of the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hotstage.clock import Clock
from hotstage.config.settings import OtlpConfig
from hotstage.sinks.base import Tick
from hotstage.sinks.otlp.collector import Collector, shown
from hotstage.sinks.otlp.notes import QUEUE_FULL, Note, Notes, Outcome, spans_of
from hotstage.sinks.readings import Readings
from hotstage.sinks.self_facts import OtlpState
from hotstage.stages.labels import OwnNames, no_names
from hotstage.stages.pulse import Rows

log = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0
STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who exports."""

    host_id: str
    host_name: str
    version: str
    started_ns: int
    """When the counting began; wall time."""


def otlp_sink(
    config: OtlpConfig,
    environment: Mapping[str, str],
    *,
    readings: Readings,
    clock: Clock,
    identity: Identity,
    own_names: Callable[[], OwnNames] = no_names,
) -> OtlpSink | None:
    """None where no collector is named. Raises ConfigError for one that cannot be one."""
    collector = Collector.of(config, environment)
    if collector is None:
        return None
    return OtlpSink(config, collector, readings=readings, clock=clock, identity=identity, own_names=own_names)


class OtlpSink:
    """`start`, then `publish` on every tick, `close` at the end."""

    name = "otlp"

    def __init__(
        self,
        config: OtlpConfig,
        collector: Collector,
        *,
        readings: Readings,
        clock: Clock,
        identity: Identity,
        own_names: Callable[[], OwnNames] = no_names,
    ) -> None:
        self._config = config
        self._collector = collector
        self._readings = readings
        self._clock = clock
        self._identity = identity
        self._own_names = own_names
        self._wants_traces = collector.traces is not None
        self._wants_windows = collector.events is not None or self._wants_traces
        self._notes = Notes()
        self._outcome = Outcome(collector.signals)
        self._stop = threading.Event()
        self._is_stumbling = False
        # A daemon: the process does not wait for a collector that does not answer.
        self._thread = threading.Thread(target=self._run, name="hotstage-otlp", daemon=True)

    def start(self) -> None:
        where = {name: shown(getattr(self._collector, name)) for name in self._collector.signals}
        log.info("exporting over OTLP", extra=where)
        self._thread.start()

    def publish(self, tick: Tick) -> None:
        finished = tick.finished if self._wants_traces else tick.finished[:0]
        changed = self._wants_windows and (tick.windows.opened or tick.windows.closed)
        if len(finished) or changed:
            self._put(tick, finished)

    def state(self) -> OtlpState:
        return self._outcome.state()

    def close(self) -> None:
        """Export what is left, for `CLOSE_SECONDS` at most."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("the OTLP collector is too slow for the last exports; they are left behind")

    def _put(self, tick: Tick, finished: Rows) -> None:
        room = self._notes.room()
        if len(finished) > room:
            self._outcome.dropped(QUEUE_FULL, spans_of(finished[room:]))
            finished = finished[:room]
        note = Note(
            at_ns=tick.pulse.at_ns,
            wall_offset_ns=tick.wall_offset_ns,
            finished=finished.copy(),
            gpu_of_pid=tick.gpu_of_pid,
            opened=tick.windows.opened,
            closed=tick.windows.closed,
            open=tick.windows.open,
        )
        if not self._notes.put(note):
            self._outcome.dropped(QUEUE_FULL, spans_of(finished))
            self._outcome.events_dropped(len(note.opened) + len(note.closed))

    def _run(self) -> None:
        try:
            # Here and not above: 10 MB and 0.2 s of CPU that only those pay who export.
            from hotstage.sinks.otlp.exporter import Exporter

            exporter = Exporter(
                self._config,
                self._collector,
                notes=self._notes,
                outcome=self._outcome,
                readings=self._readings,
                clock=self._clock,
                identity=self._identity,
                own_names=self._own_names,
            )
        except Exception:
            log.exception("the OTLP exporter cannot begin; nothing is exported until the agent is restarted")
            return
        while not self._stop.wait(STEP_SECONDS):
            self._guarded(exporter.step)
        self._guarded(exporter.finish)

    def _guarded(self, step: Callable[[], None]) -> None:
        """An error that nobody foresaw costs what it came upon, not the exports after it: logged once while
        it lasts, and each counted.
        """
        try:
            step()
        except Exception:
            if not self._is_stumbling:
                log.exception("the OTLP exporter has failed and goes on")
            self._is_stumbling = True
            for signal in self._collector.signals:
                self._outcome.failed(signal)
        else:
            self._is_stumbling = False
