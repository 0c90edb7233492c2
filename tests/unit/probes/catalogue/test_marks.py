# SPDX-License-Identifier: Apache-2.0
"""Every function that the marks library exports has a program of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotstage.probes.catalogue.marks import MARKS

HEADER = Path(__file__).parents[4] / "agent/hotstage_marks/include/hotstage_marks.h"


def test_the_table_has_exactly_the_functions_of_the_librarys_header() -> None:
    exported = set(re.findall(r"\b(hotstage_mark_\w+)\(", HEADER.read_text(encoding="utf-8")))
    assert {call.name for call in MARKS.calls} == exported
    assert {f"hotstage_mark_{call.kind}" for call in MARKS.calls} == exported


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("libhotstage_marks.so", True),
        ("libhotstage_marks.so.1", True),
        ("_native.cpython-311-x86_64-linux-gnu.so", True),
        ("_native.abi3.so", True),
        ("libhotstage_marks.so.bak", False),
        ("lib_native.so", False),
    ],
)
def test_the_file_name_pattern(name: str, fits: bool) -> None:
    assert bool(re.fullmatch(MARKS.file_name_pattern, name)) == fits
