# SPDX-License-Identifier: Apache-2.0
"""Where the checks look, and what several of them have to try: tried once, by whoever asks first.

It knows no check and looks at nothing by itself; a test gives it another root, and the outcome of a trial.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hotstage.config.settings import Config

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Host:
    """One host as the checks see it. Any thread may ask."""

    root: Path = Path("/")
    release: str = field(default_factory=platform.release)
    machine: str = field(default_factory=platform.machine)
    search: tuple[Path, ...] | None = None
    """Where Python packages may be; None: this interpreter's path and the distribution's places."""
    config: Config = field(default_factory=Config)
    config_file: Path | None = None
    config_error: Exception | None = None
    """Why the configuration could not be read; `config` holds the defaults then."""
    environment: Mapping[str, str] = field(default_factory=dict)
    _trials: dict[Callable[[Host], Any], Future[Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def once(self, trial: Callable[[Host], T]) -> T:
        """The outcome of `trial(self)`, which runs once; those who ask meanwhile wait. Raises what it
        raised.
        """
        with self._lock:
            is_first = trial not in self._trials
            future: Future[T] = self._trials.setdefault(trial, Future())
        if is_first:
            try:
                future.set_result(trial(self))
            except BaseException as error:
                future.set_exception(error)
        return future.result()

    def outcome(self, trial: Callable[[Host], T]) -> T | None:
        """What a trial has come to; None while it is not over, was not asked for, or failed."""
        future: Future[T] | None = self._trials.get(trial)
        return future.result() if future is not None and future.done() and not future.exception() else None

    def given(self, trial: Callable[[Host], T], outcome: T) -> Host:
        """The same host with a trial that is over already; for tests."""
        future: Future[T] = Future()
        future.set_result(outcome)
        self._trials[trial] = future
        return self

    @property
    def proc(self) -> Path:
        """procfs: below a test's root, else where the configuration says."""
        return self.root / "proc" if self.root != Path("/") else Path(self.config.probes.proc_root)

    def text(self, *places: str) -> str | None:
        """The first of these files that can be read, without the last newline; None when none can."""
        for place in places:
            try:
                return (self.root / place).read_text("utf-8", "replace").rstrip("\n")
            except OSError:
                continue
        return None

    def number(self, place: str) -> int | None:
        """A file that holds one number; None when it does not."""
        try:
            return int(self.text(place) or "")
        except ValueError:
            return None
