# SPDX-License-Identifier: Apache-2.0
"""The judge's own thread: procfs of a stranger may hang, and no tick may wait for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hotstage.attribution.explain import explain
from hotstage.attribution.facts import FactsBook, table_of
from hotstage.attribution.fingerprint_store import FingerprintFile
from hotstage.attribution.fingerprints import FingerprintBook
from hotstage.attribution.judge import Judge, Probes
from hotstage.attribution.rules import RuleSet
from hotstage.attribution.state import ProcessState
from hotstage.clock import Clock
from hotstage.config.stages import StagesConfig
from hotstage.engines.samples import EngineSample
from hotstage.errors import HotstageError

PERIOD_SECONDS = 1.0
MARKED_PERIOD_SECONDS = 3.0
"""Where every process marks its work and nothing is learned, a judgement only says how things stand."""
LOOK_SECONDS = 0.2
"""How often new threads are looked for: they are judged at once."""
REST = 4
"""Times as long as a judgement took nothing is judged after it: strangers with ten thousand threads cost a
fifth of a core at most.
"""
SAVE_SECONDS = 30.0
ENDED_LIMIT = 64
"""Processes that have ended whose last judgement is kept, the latest ones."""
_CLOSE_SECONDS = 5.0

log = logging.getLogger(__name__)


class Attribution:
    """Made unstarted; after `close` nothing runs and what was learned is written."""

    def __init__(
        self,
        config: StagesConfig,
        probes: Probes,
        clock: Clock,
        directory: Path,
        *,
        proc_root: str = "/proc",
        engines: Callable[[], tuple[EngineSample, ...]] = tuple,
        stage_names: Callable[[], Mapping[tuple[int, int], str]] = dict,
    ) -> None:
        """Raises ConfigError where the shipped rules cannot be read."""
        rules = RuleSet(config)
        self._config = config
        self._clock = clock
        self._engines = engines
        self._stage_names = stage_names
        self._book = FingerprintBook(config.fingerprint_programs)
        self._file = FingerprintFile(directory)
        self._table = table_of(proc_root)
        facts = FactsBook(self._table, with_libraries=rules.uses_libraries)
        self._judge = Judge(config, probes, facts, rules, self._book)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="hotstage-attribution", daemon=True)
        self._ended: Mapping[int, tuple[ProcessState, int]] = {}
        self._saved_ns = 0
        self._judged_ns = 0
        self._rest_until_ns = 0
        self._trouble: str | None = None

    def start(self) -> None:
        if self._config.fingerprints:
            self._file.load(self._book)
        self._saved_ns = self._clock.monotonic_ns()
        self._thread.start()

    def take_over(self, config: StagesConfig) -> None:
        """Rules and steps of a new configuration; how programs are remembered needs a restart."""
        self._judge.take_over(config, RuleSet(config))

    def close(self) -> None:
        """Waits for the thread, which never waits long unless procfs hangs; then it is left behind."""
        self._stop.set()
        if self._thread.ident is None:
            return
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive() and self._config.fingerprints:
            self._file.save(self._book)

    def explain(self, pid: int) -> dict[str, Any] | None:
        """Why each thread of the process counts as what it does, or did before it ended; None for a process
        that was never followed, or ended long ago.
        """
        state, ended_ns = self._judge.states.get(pid), None
        if state is None and pid in self._ended:
            state, ended_ns = self._ended[pid]
        return None if state is None else explain(state, self._clock, self._stage_names(), ended_ns)

    def pids(self) -> list[int]:
        """Processes that are followed."""
        return sorted(self._judge.states)

    def _follow(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            now_ns = self._clock.monotonic_ns()
            if now_ns < self._rest_until_ns:
                continue
            try:
                if not self._is_due(now_ns):
                    continue
                self._judged_ns = now_ns
                self._step(now_ns)
                self._trouble = None
            except Exception as error:  # one odd process must not end the judging of all others
                self._tell(error)
            ended_ns = self._clock.monotonic_ns()
            self._rest_until_ns = ended_ns + REST * (ended_ns - now_ns)

    def _is_due(self, now_ns: int) -> bool:
        period = MARKED_PERIOD_SECONDS if self._judge.only_tells else PERIOD_SECONDS
        is_time = now_ns - self._judged_ns >= period * 1e9
        return is_time or (self._trouble is None and self._judge.sees_new_threads())

    def _tell(self, error: Exception) -> None:
        """The same trouble is told once, until a judgement has come to its end."""
        trouble = f"{type(error).__name__}: {error}"
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if isinstance(error, (HotstageError, OSError)):
            log.warning("unmarked work is judged again in a second", extra={"reason": str(error)})
        else:
            log.error("unmarked work could not be judged", exc_info=error)

    def _step(self, now_ns: int) -> None:
        before = self._judge.states
        self._judge.advance(now_ns, engine_decodes=_one_decodes(self._engines(), now_ns))
        # One whose threads have all ended is judged no more, though it may live.
        left = {
            pid: state
            for pid, state in before.items()
            if pid not in self._judge.states and self._table.identity(pid) != state.facts.identity
        }
        self._ended = still_told(self._ended, left, self._judge.states, now_ns)
        if self._config.fingerprints and now_ns - self._saved_ns >= SAVE_SECONDS * 1e9:
            self._saved_ns = now_ns
            self._file.save(self._book)


def still_told(
    ended: Mapping[int, tuple[ProcessState, int]],
    gone: Mapping[int, ProcessState],
    now: Mapping[int, ProcessState],
    now_ns: int,
) -> Mapping[int, tuple[ProcessState, int]]:
    """Processes that have ended: those known, and those that are `gone` by now; none whose pid is in use."""
    if not gone and not ended.keys() & now.keys():
        return ended
    every = {**ended, **{pid: (state, now_ns) for pid, state in gone.items()}}
    kept = [(pid, each) for pid, each in every.items() if pid not in now]
    return dict(kept[-ENDED_LIMIT:])


def _one_decodes(samples: tuple[EngineSample, ...], now_ns: int) -> bool:
    """Whether the only engine that is looked at makes tokens; of several none names a process."""
    return len(samples) == 1 and samples[0].is_fresh(now_ns) and samples[0].total.output_token_rate > 0
