# SPDX-License-Identifier: Apache-2.0
"""The table of programs: complete on each rung, and naming programs that the sources have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotstage.probes.loader.base import PointKind, Rung
from hotstage.probes.loader.programs import DROP_PENDING, MAPS, PROGRAMS, TAKE_OUT, attach_types

BPF = Path(__file__).parents[4] / "bpf"
NAMES = re.findall(r'#include "(\w+\.bpf\.c)"', (BPF / "hotstage.bpf.c").read_text(encoding="utf-8"))
SOURCES = "".join((BPF / name).read_text(encoding="utf-8") for name in NAMES)
HEADERS = "".join(path.read_text(encoding="utf-8") for path in sorted((BPF / "include").glob("*.h")))


@pytest.mark.parametrize("rung", list(Rung))
def test_every_kind_of_point_has_programs_on_every_rung(rung: Rung) -> None:
    assert set(PROGRAMS[rung]) == set(PointKind)


@pytest.mark.parametrize("rung", list(Rung))
def test_every_program_is_in_the_sources(rung: Rung) -> None:
    assert set(attach_types(rung)) <= set(re.findall(r"^int (\w+)\(struct pt_regs", SOURCES, re.MULTILINE))


def test_every_program_of_the_sources_is_used_on_some_rung() -> None:
    used = {program for rung in Rung for program in attach_types(rung)}
    assert used == set(re.findall(r"^int (\w+)\(struct pt_regs", SOURCES, re.MULTILINE))


def test_every_program_that_user_space_runs_is_in_the_sources() -> None:
    run = re.findall(r"^int (\w+)\(struct bpf_raw_tracepoint_args", SOURCES, re.MULTILINE)
    assert sorted(run) == [DROP_PENDING, TAKE_OUT]


def test_every_map_is_declared() -> None:
    declared = set(re.findall(r"^HOTSTAGE_\w+\((\w+),", HEADERS + SOURCES, re.MULTILINE))
    assert set(MAPS) == {name for name in declared if not name.endswith("_zero")}


def test_the_types_are_those_of_the_rung() -> None:
    assert attach_types(Rung.SESSION)["timed_session"] == 57
    assert set(attach_types(Rung.MULTI).values()) == {48}
    assert set(attach_types(Rung.PERF).values()) == {0}


def test_one_trap_a_launch_and_two_a_timed_call() -> None:
    for rung in Rung:
        assert len(PROGRAMS[rung][PointKind.LAUNCH]) == 1
        timed = PROGRAMS[rung][PointKind.TIMED]
        assert len(timed) == (1 if rung is Rung.SESSION else 2)


def test_a_return_is_linked_before_its_entry() -> None:
    for rung in (Rung.MULTI, Rung.PERF):
        assert [side.on_return for side in PROGRAMS[rung][PointKind.TIMED]] == [True, False]
