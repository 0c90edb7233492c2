# SPDX-License-Identifier: Apache-2.0
"""The judge's own thread: trouble is told once, and strangers with many threads cost a part of a core."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.attribution import process

from hotstage.attribution.worker import ENDED_LIMIT, Attribution, still_told
from hotstage.clock import SystemClock
from hotstage.config.stages import StagesConfig
from hotstage.probes.launch_sources import LaunchSources
from hotstage.probes.maps.bursts import BURST_DTYPE
from hotstage.probes.maps.layout import THREAD_DTYPE


class Churning:
    """Probes of a host where each look finds new threads; `answer` is what the sums by source do."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.looks, self.judged = 0, 0
        self._answer = answer

    def threads(self) -> NDArray[np.void]:
        self.looks += 1
        rows = np.zeros(1, THREAD_DTYPE)
        rows["tid"], rows["tgid"] = self.looks, 1
        return rows

    def launches_by_source(self) -> dict[int, object]:
        self.judged += 1
        self._answer()
        return {}

    @property
    def bursts(self) -> Churning:
        return self

    def since(self, *thread: int) -> tuple[NDArray[np.void], int]:
        return np.zeros(0, BURST_DTYPE), 0

    def __getattr__(self, name: str) -> Callable[..., list[object]]:
        return lambda *given: []


def run(answer: Callable[[], None], directory: Path, seconds: float) -> Churning:
    probes = Churning(answer)
    judge = Attribution(StagesConfig(), probes, SystemClock(), directory)  # type: ignore[arg-type]
    judge.start()
    time.sleep(seconds)
    judge.close()
    return probes


def test_trouble_that_stays_is_told_once_and_tried_once_a_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise IndexError("odd")

    with caplog.at_level(logging.WARNING):
        probes = run(fail, tmp_path, 2.5)
    assert 2 <= probes.judged <= 4
    told = [each.message for each in caplog.records if each.name.startswith("hotstage.attribution")]
    assert told == ["unmarked work could not be judged"]


def test_a_long_judgement_is_followed_by_a_longer_rest(tmp_path: Path) -> None:
    probes = run(lambda: time.sleep(0.3), tmp_path, 2.6)
    assert 1 <= probes.judged <= 3, "0.3 s of work, then 1.2 s of rest"


class Marking(Churning):
    """Probes of a host whose one process goes on marking its launches, or never marks one."""

    def __init__(self, pid: int, *, is_marked: bool) -> None:
        super().__init__(lambda: None)
        self._pid, self._is_marked = pid, is_marked

    def threads(self) -> NDArray[np.void]:
        rows = np.zeros(1, THREAD_DTYPE)
        rows["tid"] = rows["tgid"] = self._pid
        return rows

    def launches_by_source(self) -> dict[int, object]:
        self.judged += 1
        return {self._pid: LaunchSources(mark=self.judged * self._is_marked)}


@pytest.mark.parametrize(("is_marked", "times"), [(True, 1), (False, 3)])
def test_where_all_work_is_marked_it_is_judged_less_often(
    tmp_path: Path, is_marked: bool, times: int
) -> None:
    probes = Marking(os.getpid(), is_marked=is_marked)
    config = StagesConfig(fingerprints=False)
    judge = Attribution(config, probes, SystemClock(), tmp_path)  # type: ignore[arg-type]
    judge.start()
    time.sleep(2.7)
    judge.close()
    assert abs(probes.judged - times) < (1 if is_marked else 2)


def test_a_process_that_has_ended_is_told_until_its_pid_is_in_use_again() -> None:
    state = process()
    ended = still_told({}, {77: state}, {78: state}, 5)
    assert ended == {77: (state, 5)}
    assert still_told(ended, {}, {78: state}, 6) is ended
    assert still_told(ended, {}, {77: state, 78: state}, 7) == {}


def test_of_many_that_have_ended_the_latest_are_told() -> None:
    before = {pid: process() for pid in range(1, ENDED_LIMIT + 11)}
    assert list(still_told({}, before, {}, 5)) == list(before)[10:]


class Leaving(Churning):
    """Probes of a host that see the first thread of a process until it has ended."""

    def __init__(self, pid: int) -> None:
        super().__init__(lambda: None)
        self.pid: int | None = pid

    def threads(self) -> NDArray[np.void]:
        rows = np.zeros(0 if self.pid is None else 1, THREAD_DTYPE)
        rows["tid"] = rows["tgid"] = self.pid or 0
        return rows


@pytest.mark.parametrize("ends", [True, False])
def test_only_a_process_that_has_ended_is_told_as_one(tmp_path: Path, ends: bool) -> None:
    """All threads of one may have ended that lives on."""
    process = subprocess.Popen(["sleep", "60"])
    probes = Leaving(process.pid)
    judge = Attribution(StagesConfig(), probes, SystemClock(), tmp_path)  # type: ignore[arg-type]
    judge.start()
    try:
        until(lambda: judge.explain(process.pid) is not None, "it is judged")
        assert (judge.explain(process.pid) or {})["ended_at"] is None
        if ends:
            process.kill()
            process.wait()
        probes.pid = None
        until(lambda: process.pid not in judge.pids(), "it is judged no more")
        if ends:
            until(lambda: judge.explain(process.pid) is not None, "it is told as one that has ended")
            assert (judge.explain(process.pid) or {})["ended_at"] is not None
        else:
            time.sleep(0.5)
            assert judge.explain(process.pid) is None
    finally:
        process.kill()
        process.wait()
        judge.close()


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end, f"waited 10 s: {what}"
        time.sleep(0.02)
