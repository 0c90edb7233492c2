# SPDX-License-Identifier: Apache-2.0
"""Equal values of small arrays found together: what `np.unique` does, for less. Pure.

Ticks group a few dozen rows dozens of times, so what counts is the number of array operations. And
`np.unique` of values alone imports `numpy.ma`: 4 MiB that stay.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Kind = TypeVar("_Kind", bound=np.generic)


def distinct(values: NDArray[_Kind]) -> NDArray[_Kind]:
    """(N,) → those that there are, ascending, each once. None of them may be NaN; nor below."""
    ordered = np.sort(values)
    return ordered[_is_first(ordered)]


def grouped(values: NDArray[_Kind]) -> tuple[NDArray[_Kind], NDArray[np.intp]]:
    """(N,) → (`distinct` of them, which of these each is (N,))."""
    order = values.argsort(kind="stable")
    ordered = values[order]
    is_first = _is_first(ordered)
    group = np.empty(len(values), np.intp)
    group[order] = is_first.cumsum() - 1
    return ordered[is_first], group


def first_of_each(values: NDArray[_Kind]) -> tuple[NDArray[_Kind], NDArray[np.intp]]:
    """(N,) → (`distinct` of them, where each stands first)."""
    order = values.argsort(kind="stable")
    ordered = values[order]
    is_first = _is_first(ordered)
    return ordered[is_first], order[is_first]


def begins(ordered: NDArray[Any]) -> NDArray[np.intp]:
    """(N,) values of which equal ones stand together → where each group begins."""
    return np.flatnonzero(_is_first(ordered))


def _is_first(ordered: NDArray[Any]) -> NDArray[np.bool_]:
    is_first = np.empty(len(ordered), np.bool_)
    is_first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first
