# SPDX-License-Identifier: Apache-2.0
"""Every function that the marks library exports has a program of its own."""

from __future__ import annotations

import re
from pathlib import Path

from hotstage.probes.catalogue.marks import MARKS

HEADER = Path(__file__).parents[4] / "agent/hotstage_marks/include/hotstage_marks.h"


def test_the_table_has_exactly_the_functions_of_the_librarys_header() -> None:
    exported = set(re.findall(r"\b(hotstage_mark_\w+)\(", HEADER.read_text(encoding="utf-8")))
    assert {call.name for call in MARKS.calls} == exported
    assert {f"hotstage_mark_{call.kind}" for call in MARKS.calls} == exported
