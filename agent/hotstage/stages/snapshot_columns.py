# SPDX-License-Identifier: Apache-2.0
"""Columns of a snapshot's rows, made for all rows at once: times, ages, texts, and rows of rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hotstage.text import clean_name

T = TypeVar("T")


def moments_of(monotonic_ns: NDArray[Any], offset_ns: int) -> tuple[list[str], list[int]]:
    """(N,) CLOCK_MONOTONIC ns → RFC 3339 with milliseconds, and wall-clock ns."""
    wall_ns = monotonic_ns.astype(np.int64) + offset_ns
    texts = np.datetime_as_string((wall_ns // 1_000_000).astype("datetime64[ms]"), timezone="UTC")
    return texts.tolist(), wall_ns.tolist()


def ages_of(since_ns: NDArray[Any], at_ns: int) -> list[float]:
    """Seconds, never negative: what began during the read is new."""
    ages: list[float] = (np.maximum(np.int64(at_ns) - since_ns.astype(np.int64), 0) / 1e9).tolist()
    return ages


def texts_of(raw: NDArray[np.bytes_]) -> list[str | None]:
    """(N,) NUL-padded byte strings → cleaned texts, None for empty."""
    raw = np.ascontiguousarray(raw)
    if _are_plain(raw):
        return [text or None for text in raw.astype(np.str_).tolist()]
    return [clean_name(value) or None for value in raw.tolist()]


def _are_plain(raw: NDArray[np.bytes_]) -> bool:
    """Whether all are printable ASCII up to their NULs, as nearly always: then there is nothing to clean."""
    codes = raw.view(np.uint8).reshape(len(raw), raw.itemsize)
    is_nul = codes == 0
    is_odd = (codes < 0x20) & ~is_nul | (codes > 0x7E)
    return not (is_odd.any() or (is_nul[:, :-1] & ~is_nul[:, 1:]).any())


def grouped(rows: NDArray[np.intp], items: list[T], count: int) -> list[list[T]]:
    """Items by the row they belong to: `rows` (K,) ascending → `count` lists."""
    bounds = np.searchsorted(rows, np.arange(count + 1)).tolist()
    return [items[begin:end] for begin, end in pairwise(bounds)]
