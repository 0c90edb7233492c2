# SPDX-License-Identifier: Apache-2.0
"""The operator's own programs as one object: load those of a directory, take changes over, read, let go.

All or nothing per file: one that is refused leaves its older version running, and never touches another. It
works in a thread of its own: a compile takes a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hotstage.clock import Clock
from hotstage.errors import HotstageError
from hotstage.probes.custom.convention import CustomMetric, CustomSpec, parse
from hotstage.probes.custom.files import CustomFile, read_files
from hotstage.probes.custom.program import Children, CustomProgram, load

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CustomReport:
    """One file. `state`: `attached`, `refused` with reason and remedy, or `off` with reason; `since_ns`
    (CLOCK_MONOTONIC) is when the running version was attached, None without one: of a refused file the one
    before may still run.
    """

    name: str
    path: str
    state: str
    reason: str | None
    remedy: str | None
    since_ns: int | None
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CustomReading:
    """A metric of a running program with its children as of now."""

    metric: CustomMetric
    children: Children


@dataclass(frozen=True, slots=True)
class _Running:
    program: CustomProgram
    digest: str
    since_ns: int


class CustomProbes:
    """`start` and `reload` return at once; `report` and `read` from any thread."""

    def __init__(
        self,
        directory: Path | None,
        clock: Clock,
        *,
        load: Callable[[CustomFile, CustomSpec], CustomProgram] = load,
    ) -> None:
        """`directory` None: switched off."""
        self._directory = directory
        self._clock = clock
        self._load = load
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._reports: dict[str, CustomReport] = {}
        self._asked = threading.Event()
        self._idle = threading.Condition()
        self._rounds_wanted = self._rounds_done = 0
        self._is_closed = False
        self._held: str | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._directory is not None and self._directory.is_dir():
            self.reload()

    def reload(self) -> None:
        """Look at the directory again: load new and changed files, detach those that have gone."""
        if self._directory is None:
            return
        with self._idle:
            self._rounds_wanted += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hotstage-custom", daemon=True)
            self._thread.start()
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Whether everything asked for was done within `seconds`."""
        with self._idle:
            return self._idle.wait_for(lambda: self._rounds_done >= self._rounds_wanted, seconds)

    def report(self) -> tuple[CustomReport, ...]:
        """Every file, by name."""
        with self._lock:
            return tuple(self._reports[name] for name in sorted(self._reports))

    def read(self) -> tuple[CustomReading, ...]:
        """Every metric of the programs that run; one that cannot be read is left out."""
        found: list[CustomReading] = []
        with self._lock:
            for _, running in sorted(self._running.items()):
                for metric in running.program.spec.metrics:
                    try:
                        found.append(CustomReading(metric, running.program.read(metric)))
                    except OSError as error:
                        log.error("a metric of the operator cannot be read: %s: %s", metric.name, error)
        return tuple(found)

    def hold(self, reason: str | None) -> None:
        """Detach all for that reason (a kill switch) at once; None: load them again."""
        with self._lock:
            before, self._held = self._held, reason
            gone, self._running = ({}, self._running) if reason is None else (self._running, {})
            if reason is not None:
                self._reports = _all_off(self._reports, reason)
        for running in gone.values():
            running.program.close()
        if before is not None and reason is None:
            self.start()

    def close(self) -> None:
        """Detach all. Safe to call twice, and while a compile runs."""
        with self._lock:
            self._is_closed = True
            gone, self._running = self._running, {}
        self._asked.set()
        for running in gone.values():
            running.program.close()

    # ---- in its own thread

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            with self._idle:
                wanted = self._rounds_wanted
            if not self._is_closed and self._held is None:
                try:
                    self._take_over()
                except Exception:  # the next reload must find somebody who hears it
                    log.exception("programs of the operator cannot be looked at")
            with self._idle:
                self._rounds_done = wanted
                self._idle.notify_all()
            if self._is_closed:
                return

    def _take_over(self) -> None:
        assert self._directory is not None
        found: dict[str, CustomReport] = {}
        try:
            for each in read_files(self._directory):
                report = self._consider(each) if isinstance(each, CustomFile) else self._refused(*each)
                found[report.name] = report
        except HotstageError as error:
            log.error("no program of %s is taken over: %s", self._directory, error.message)
            found |= {
                name: replace(report, state="refused", reason=error.message, remedy=error.remedy)
                for name, report in self._reports.items()
            } or {"": self._refused(self._directory, error)}
            with self._lock:
                self._reports = found
            return
        with self._lock:
            gone = [self._running.pop(name) for name in set(self._running) - set(found)]
            self._reports = found if self._held is None else _all_off(found, self._held)
        for running in gone:
            running.program.close()

    def _consider(self, file: CustomFile) -> CustomReport:
        before = self._running.get(file.name)
        if before is not None and before.digest == file.digest:
            return self._attached(file, before)
        try:
            program = self._load(file, parse(file.name, str(file.path), file.text))
        except HotstageError as error:
            return self._refused(file.path, error)
        except Exception as error:  # no child, no descriptor: one file never stops the others
            log.exception("a program of the operator cannot be loaded", extra={"path": str(file.path)})
            return self._refused(file.path, HotstageError(f"{file.path}: {type(error).__name__}: {error}"))
        running = _Running(program, file.digest, self._clock.monotonic_ns())
        with self._lock:
            if self._is_closed or self._held is not None:
                program.close()
                return self._attached(file, running)
            self._running[file.name] = running
        if before is not None:
            before.program.close()
        log.info("a program of the operator is attached", extra={"path": str(file.path)})
        return self._attached(file, running)

    def _attached(self, file: CustomFile, running: _Running) -> CustomReport:
        names = tuple(metric.name for metric in running.program.spec.metrics)
        return CustomReport(file.name, str(file.path), "attached", None, None, running.since_ns, names)

    def _refused(self, path: Path, error: HotstageError) -> CustomReport:
        name, message = _encodable(path.name.removesuffix(".bpf.c")), _encodable(error.message)
        running = self._running.get(name)
        log.error("a program of the operator is refused: %s", message, extra={"remedy": error.remedy})
        return CustomReport(
            name,
            _encodable(str(path)),
            "refused",
            message,
            error.remedy and _encodable(error.remedy),
            running.since_ns if running else None,
            tuple(metric.name for metric in running.program.spec.metrics) if running else (),
        )


def _all_off(reports: Mapping[str, CustomReport], reason: str) -> dict[str, CustomReport]:
    return {
        name: replace(report, state="off", reason=reason, remedy=None, since_ns=None, metrics=())
        for name, report in reports.items()
    }


def _encodable(text: str) -> str:
    """A file's name need not be UTF-8, and what is told of it must be."""
    return text.encode("utf-8", "replace").decode()
