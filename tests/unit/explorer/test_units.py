# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hotstage_explorer import units


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "—"),
        (0, "0"),
        (1234.4, "1,234"),
        (99.96, "100"),
        (12.34, "12.3"),
        (1.0, "1.00"),
        (0.01234, "0.0123"),
        (0.8, "0.800"),
    ],
)
def test_three_digits_are_kept(value: float | None, said: str) -> None:
    assert units.significant(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "—"),
        (0, "0 s"),
        (0.00085, "850 µs"),
        (0.0009996, "1.00 ms"),
        (0.0421, "42.1 ms"),
        (0.9996, "1.00 s"),
        (1.284, "1.28 s"),
        (119.9, "120 s"),
        (200, "3 min 20 s"),
    ],
)
def test_a_latency_has_the_unit_that_people_read(seconds: float | None, said: str) -> None:
    assert units.duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "—"),
        (0.41, "0.4 s"),
        (12.9, "12 s"),
        (200, "3 min 20 s"),
        (7512, "2 h 05 min"),
        (9e7, "25,000 h 00 min"),
    ],
)
def test_an_age_is_in_whole_units(seconds: float | None, said: str) -> None:
    assert units.age(seconds) == said


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(None, "—"), (0, "0 %"), (0.0001, "< 0.1 %"), (0.013, "1.3 %"), (0.63, "63 %"), (1, "100 %")],
)
def test_a_small_share_does_not_read_as_none(ratio: float | None, said: str) -> None:
    assert units.percent(ratio) == said


def test_a_negative_deviation_has_a_real_minus() -> None:
    assert units.signed(-0.214) == "−0.21"
    assert units.signed(0.5) == "+0.50"


def test_times_are_utc_and_impossible_ones_are_unknown() -> None:
    assert units.clock(1_700_000_000_123_000_000) == "22:13:20"
    assert units.stamp(1_700_000_000_123_000_000) == "2023-11-14T22:13:20.123Z"
    assert units.clock(2**63 - 1) == "23:47:16"
    assert units.clock(2**90) == "—"
    assert units.stamp(None) == ""
