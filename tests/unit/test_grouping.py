# SPDX-License-Identifier: Apache-2.0
"""The same as numpy's own, of any small array; and nobody asks numpy for what imports `numpy.ma`."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import hotstage
from hotstage.grouping import begins, distinct, first_of_each, grouped

ARRAYS = [
    np.zeros(0, np.int64),
    np.array([7], np.uint32),
    np.array([3, 3, 3], np.uint8),
    np.array([5, 1, 5, 9, 1, 1], np.int64),
    np.random.default_rng(1).integers(0, 40, 500).astype(np.uint64),
]


@pytest.mark.parametrize("values", ARRAYS, ids=len)
def test_groups_are_those_of_numpy(values):
    assert distinct(values).tolist() == np.unique(values).tolist()
    for found, expected in (
        (grouped(values), np.unique(values, return_inverse=True)),
        (first_of_each(values), np.unique(values, return_index=True)),
    ):
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]
    assert distinct(values).dtype == values.dtype


def test_a_group_begins_where_the_value_changes():
    assert begins(np.array([4, 4, 1, 9, 9])).tolist() == [0, 2, 3]
    assert begins(np.zeros(0)).tolist() == []


def test_nobody_asks_numpy_for_values_alone():
    """It would import `numpy.ma`, on a tick, for good."""
    asking = [
        f"{path.name}:{node.lineno}"
        for path in Path(hotstage.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.unique" and not node.keywords
    ]
    assert asking == []
