# SPDX-License-Identifier: Apache-2.0
"""How old a source may be before its values are unknown. Never carries a value on."""

from __future__ import annotations


def is_fresh(sampled_ns: int | None, now_ns: int, max_age_ns: int) -> bool:
    """Whether a sample may speak of now; both times are CLOCK_MONOTONIC. None = there never was one."""
    return sampled_ns is not None and now_ns - sampled_ns <= max_age_ns


def age_seconds(since_ns: int, now_ns: int) -> float:
    """Never negative: a thing that began during the read is new."""
    return max(now_ns - since_ns, 0) / 1e9
