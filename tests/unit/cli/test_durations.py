# SPDX-License-Identifier: Apache-2.0
"""One way to write a length of time, whichever verb takes it."""

from __future__ import annotations

import click
import pytest

from hotstage.cli.durations import Duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("45", 45), ("45s", 45), ("1.5", 1.5), ("10m", 600), ("2h", 7200), ("1d", 86400)]
)
def test_a_number_alone_is_of_seconds(text, seconds):
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "10 minutes", "soon", "9" * 400])
def test_what_is_none_is_refused_with_examples(text):
    with pytest.raises(click.BadParameter, match="90s"):
        Duration().convert(text, None, None)


def test_limits_hold():
    bounded = Duration(5, 600)
    assert bounded.convert("10m", None, None) == 600
    for text in ("4s", "11m"):
        with pytest.raises(click.BadParameter, match="than"):
            bounded.convert(text, None, None)
