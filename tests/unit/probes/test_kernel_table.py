# SPDX-License-Identifier: Apache-2.0
"""Samples by kernel as the rows of a process: what they add up to, what is merged, what the error is."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from hotstage.probes.kernel_table import GRAPH_NAME, Kernels, kernel_table, split
from hotstage.probes.maps.names import GRAPHS, KERNEL_KEY_DTYPE, KERNEL_STATE_DTYPE, NO_KERNEL

FLOAT, HALF = (
    b"_ZN2at6native29vectorized_elementwise_kernelILi%dENS0_15CUDAFunctor_addI%sEESt5arrayIPcLm3EEEEviT0_T1_"
    % each
    for each in ((4, b"f"), (8, b"N3c104HalfE"))
)


def table(
    rows: list[tuple[int, int, int, bytes]], launches: dict[int, int], *, limit: int = 20, gap: int = 16
) -> Kernels:
    keys, states = np.zeros(len(rows), KERNEL_KEY_DTYPE), np.zeros(len(rows), KERNEL_STATE_DTYPE)
    for at, (pid, name_hash, samples, name) in enumerate(rows):
        keys[at] = (name_hash, pid, 0)
        states[at] = (samples, 0, 0, name)
    return kernel_table(keys, states, launches, {7: "server"}, launch_gap=gap, limit=limit)


def test_variants_that_read_the_same_are_one_row() -> None:
    (process,) = table([(7, 11, 30, FLOAT), (7, 12, 10, HALF), (7, 13, 60, b"gemm")], {7: 1600}).processes
    assert [(row.kernel, row.launches, row.samples, row.variants) for row in process.kernels] == [
        ("gemm", 960, 60, 1),
        ("native::vectorized_elementwise_kernel<CUDAFunctor_add, …>", 640, 40, 2),
    ]
    assert process.kernels[1].full_name == FLOAT.decode() and process.name == "server"
    assert process.kernels[0].error_ratio == pytest.approx(sqrt(0.4 / 60))


def test_rows_the_rest_and_what_has_no_name_add_up() -> None:
    rows = [(7, 20 + at, 3, b"kernel_%d" % at) for at in range(9)]
    (process,) = table([*rows, (7, GRAPHS, 5, b""), (7, NO_KERNEL, 2, b"")], {7: 1001}, limit=4).processes
    assert process.kernels[0].kernel == GRAPH_NAME and process.kernels[0].full_name is None
    assert process.other_kernels == 6 and process.samples == 34
    assert process.other_launches is not None and process.unnamed_launches is not None
    shown = sum(row.launches for row in process.kernels)
    assert shown + process.other_launches + process.unnamed_launches == 1001


def test_what_was_not_sampled_yet_is_unknown() -> None:
    (process,) = table([], {7: 3}).processes
    assert (process.launches, process.kernels) == (3, [])
    assert process.other_launches is None and process.unnamed_launches is None


def test_counted_launches_have_no_error_and_the_basis_is_told() -> None:
    counted = table([(7, 11, 30, b"a"), (7, 12, 10, b"b")], {7: 40}, gap=1)
    assert counted.basis == "counted" and {row.error_ratio for row in counted.processes[0].kernels} == {0.0}
    assert table([], {}).basis == "sampled 1 of 16"


def test_a_process_without_launches_is_no_row() -> None:
    assert table([(8, 11, 0, b"looked up, never launched")], {7: 0}).processes == []


@pytest.mark.parametrize(
    ("total", "parts", "expected"),
    [
        (10, [1, 1, 1], [4, 3, 3]),
        (0, [3, 1], [0, 0]),
        (5, [0, 0], [0, 0]),
        (7, [0, 7], [0, 7]),
        (2**60, [1], [2**60]),
    ],
)
def test_a_split_adds_up(total: int, parts: list[int], expected: list[int]) -> None:
    assert split(total, parts) == expected
