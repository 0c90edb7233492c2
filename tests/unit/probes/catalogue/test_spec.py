# SPDX-License-Identifier: Apache-2.0
"""Rows that cannot work are refused where they are written; good ones become the kernel's table."""

from __future__ import annotations

from typing import Any

import pytest

from hotstage.probes.catalogue.spec import (
    CallSpec,
    Direction,
    Effect,
    Family,
    LibrarySpec,
    call_spec_table,
)
from hotstage.probes.loader.base import PointKind


def call(**fields: Any) -> CallSpec:
    given = {"call_id": 5, "name": "cuThing", "kind": PointKind.TIMED, "family": Family.ALLOC}
    return CallSpec(**{**given, **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"call_id": 0}, "call id 0"),
        ({"call_id": 512}, "call id 512"),
        ({"bytes_argument": 7}, "argument 7"),
        ({"device_argument": -1}, "argument -1"),
        ({"bytes_per_element": 3}, "3 bytes"),
        ({"stream_argument": 10}, "stream"),
        ({"family": Family.COPY}, "direction"),
        ({"direction": Direction.PEER}, "direction"),
    ],
)
def test_a_row_that_cannot_work_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**fields)


def test_a_symbol_or_an_id_listed_twice_is_refused() -> None:
    for second in (
        call(call_id=6),
        call(name="cuOther"),
        call(call_id=6, name="cuOther", variants=("cuThing",)),
    ):
        with pytest.raises(ValueError, match="listed twice"):
            LibrarySpec("libx", 0, (call(), second))


def test_variants_count_as_the_call_that_lists_them() -> None:
    library = LibrarySpec("libx", 0, (call(variants=("cuThing_ptsz",)),))
    assert {symbol: spec.call_id for symbol, spec in library.by_symbol().items()} == {
        "cuThing": 5,
        "cuThing_ptsz": 5,
    }


def test_only_kernels_and_graphs_are_launch_class() -> None:
    launch_class = {
        family for family in Family if family is not Family.COPY and call(family=family).is_launch_class
    }
    assert launch_class == {Family.LAUNCH, Family.GRAPH_LAUNCH}


def test_the_table_has_a_row_for_each_id_and_zeros_elsewhere() -> None:
    spec = call(
        bytes_argument=3,
        factor_argument=4,
        bytes_per_element=4,
        stream_argument=9,
        effect=Effect.CONTEXT_NEW,
        device_argument=2,
    )
    table = call_spec_table((LibrarySpec("libx", 0, (spec,)),))
    assert table[5].tolist()[:6] == (3, 4, 2, 9, 1, 2)
    assert not table[4]["bytes_argument"]
    assert len(table) == 512
