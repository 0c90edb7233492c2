# SPDX-License-Identifier: Apache-2.0
"""What cannot be tried is attached by its bytes and says why. What can: tests/bpf/test_canary.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.driver_library import build_driver, parse_driver

from hotstage.clock import SystemClock
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.loader.base import AttachPoint, Rung
from hotstage.probes.trial.report import PlacementVerdict
from hotstage.probes.trial.trials import START_NS, LibraryTrials, NoTrials

Driver = tuple[ParsedLibrary, tuple[AttachPoint, ...]]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    parsed, points = parse_driver(build_driver(tmp_path_factory.mktemp("driver")))
    yield parsed, points
    os.close(parsed.library.fd)


def test_without_its_programs_the_placement_is_unverified_and_the_audit_is_made(
    driver: Driver, tmp_path: Path
) -> None:
    parsed, points = driver
    trials = LibraryTrials(Rung.SESSION, SystemClock(), tmp_path)
    tried, report = trials.try_out(parsed, points)
    assert tried == points
    assert report is not None and report.reason is not None and report.audit is not None
    assert report.placement is PlacementVerdict.UNVERIFIED
    assert report.reason.startswith("its programs cannot be loaded")
    assert (report.driver_version, report.audit.internal, report.calls) == (12040, (), 0)


def test_at_the_start_nothing_is_tried_when_time_is_over(driver: Driver, tmp_path: Path, clock: Any) -> None:
    parsed, points = driver
    trials = LibraryTrials(Rung.SESSION, clock, tmp_path)
    clock.advance(START_NS / 1e9 + 0.001)
    _, report = trials.try_out(parsed, points)
    assert report is not None
    assert (report.placement, report.reason) == ("unverified", "there was no time for it at the start")
    trials.started()
    _, report = trials.try_out(parsed, points)
    assert report is not None and report.audit is not None


def test_a_library_without_a_harmless_function_starts_no_process(driver: Driver, tmp_path: Path) -> None:
    parsed, points = driver
    functions = {"cuLaunchKernel": parsed.elf.functions["cuLaunchKernel"]}
    bare = replace(parsed, elf=replace(parsed.elf, functions=functions))
    _, report = LibraryTrials(Rung.SESSION, SystemClock(), tmp_path).try_out(bare, points)
    assert report is not None
    assert (report.placement, report.reason) == ("unverified", "it exports no function that can be tried")
    assert report.seconds < 0.01


def test_probes_that_all_stand_on_their_symbols_need_no_trial_of_the_placement(
    driver: Driver, tmp_path: Path
) -> None:
    parsed, points = driver
    on_the_symbol = tuple(replace(point, offset=point.symbol_offset) for point in points)
    _, report = LibraryTrials(Rung.SESSION, SystemClock(), tmp_path).try_out(parsed, on_the_symbol)
    assert report is not None and report.audit is not None
    assert (report.placement, report.reason) == ("unused", None)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("marks", "hotstage's own functions, which are empty"),
        ("torch_nvtx", "no function of such a library is known to be harmless"),
        ("libnccl", "it exports no function that can be tried"),
    ],
)
def test_what_is_not_tried_is_not_loaded_and_says_why(
    driver: Driver, tmp_path: Path, kind: str, reason: str
) -> None:
    parsed, points = driver
    other = replace(parsed, library=replace(parsed.library, kind=kind))
    tried, report = LibraryTrials(Rung.SESSION, SystemClock(), tmp_path).try_out(other, points)
    assert report is not None and tried == points
    assert (report.placement, report.reason, report.calls) == ("unverified", reason, 0)
    assert report.seconds < 0.01


def test_the_off_switch_takes_the_points_as_they_are(driver: Driver) -> None:
    parsed, points = driver
    assert NoTrials().try_out(parsed, points) == (points, None)
    assert not NoTrials().owns(1)
