# SPDX-License-Identifier: Apache-2.0
"""The benchmark compares like with like: identical twins, known programs, an empty probe of each shape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotstage.cli.bench.variants import MEANINGS, reference_types, variants
from hotstage.probes.loader.base import Rung
from hotstage.probes.loader.programs import attach_types

ROOT = Path(__file__).parents[4]
TWINS = (ROOT / "agent/hotstage/cli/bench/twins.S").read_text(encoding="utf-8")
REFERENCES = (ROOT / "bpf/bench.bpf.c").read_text(encoding="utf-8")


@pytest.mark.parametrize("rung", list(Rung))
def test_every_variant_has_a_twin_of_its_own(rung: Rung) -> None:
    twins = [variant.twin for variant in variants(rung)]
    assert len(twins) == len(set(twins))
    assert set(twins) <= set(re.findall(r"TWIN\((twin_\w+),", TWINS))


def test_twins_differ_in_their_names_only() -> None:
    bodies = dict(re.findall(r"TWIN\((twin_\w+), (\w+)\)", TWINS))
    assert {body for name, body in bodies.items() if not name.startswith("twin_stub")} == {"BODY"}
    assert {body for name, body in bodies.items() if name.startswith("twin_stub")} == {"STUB_ENTRY"}


@pytest.mark.parametrize("rung", list(Rung))
def test_every_program_is_ours_or_a_reference(rung: Rung) -> None:
    known = set(attach_types(rung)) | set(reference_types(rung))
    assert {side.program for variant in variants(rung) for side in variant.sides} <= known
    assert set(reference_types(rung)) <= set(re.findall(r"^int (\w+)\(", REFERENCES, re.MULTILINE))


@pytest.mark.parametrize("rung", list(Rung))
def test_added_cost_is_over_an_empty_probe_of_the_same_shape(rung: Rung) -> None:
    by_name = {variant.name: variant for variant in variants(rung)}
    for variant in by_name.values():
        if variant.same_shape is None or variant.command is not None:
            continue
        empty = by_name[variant.same_shape]
        assert [(side.on_return, side.is_session) for side in empty.sides] == [
            (side.on_return, side.is_session) for side in variant.sides
        ]
        assert {side.program for side in empty.sides} <= {"empty", "empty_session"}


@pytest.mark.parametrize("rung", list(Rung))
def test_the_report_has_what_its_schema_asks_for(rung: Rung) -> None:
    names = {variant.name for variant in variants(rung)}
    assert names >= {"untraced", "empty", "launch", "empty_pair", "timed", "funclatency"}


def test_every_variant_is_told_in_a_line() -> None:
    assert {variant.name for rung in Rung for variant in variants(rung)} == set(MEANINGS)
