# SPDX-License-Identifier: Apache-2.0
"""Launches by source add up, also while a range is open and after threads and processes have gone."""

from __future__ import annotations

import numpy as np

from hotstage.probes.launch_sources import LaunchSources, SourcesBook, of_threads
from hotstage.probes.maps.layout import NO_STAGE, THREAD_DTYPE, Source


def rows(*threads: dict[str, int]) -> np.ndarray:
    found = np.zeros(len(threads), THREAD_DTYPE)
    found["stage"] = NO_STAGE
    for row, values in zip(found, threads, strict=True):
        for name, value in values.items():
            row[name] = value
    return found


COUNTED = {"launch_total": 100, "unattributed_total": 7, "rule_total": 11, "fingerprint_total": 13}


def test_what_no_other_source_has_is_by_marks() -> None:
    (found,) = of_threads(rows({**COUNTED, "nvtx_total": 17}))
    assert found == LaunchSources(mark=52, nvtx=17, rule=11, fingerprint=13, none=7)
    assert (found.total, found.marked) == (100, 69)


def test_an_open_range_has_its_launches_already() -> None:
    open_range = {"source": Source.NVTX, "stage": 12, "flushed_launch_total": 90}
    (found,) = of_threads(rows({**COUNTED, **open_range}))
    assert (found.nvtx, found.mark) == (10, 59)


def test_threads_and_processes_that_have_gone_stay_in_the_total() -> None:
    book = SourcesBook()
    alive = rows({"tgid": 5, "launch_total": 3}, {"tgid": 6, "launch_total": 4, "unattributed_total": 4})
    book.keep(rows({"tgid": 5, "launch_total": 10}))
    assert book.sum(alive) == {5: LaunchSources(mark=13), 6: LaunchSources(none=4)}
    book.keep(alive[:1])
    book.forget([5])
    assert book.sum(alive[1:]) == {6: LaunchSources(none=4)}
    assert book.total(alive[1:]) == LaunchSources(mark=13, none=4)
