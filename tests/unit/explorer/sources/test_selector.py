# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotstage_explorer.sources.base import SettingError
from hotstage_explorer.sources.selector import DEFAULT_SELECTOR, MAX_CHARACTERS, matchers

PIECES = st.lists(
    st.sampled_from(
        ["job", "env", "__name__", "=", "=~", "!=", '"', "\\", "\\n", "x", ",", "{", "}", " ", "#", "'", "`"]
    ),
    max_size=14,
).map("".join)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (DEFAULT_SELECTOR, 'job="hotstage"'),
        (' job = "hotstage" , env=~"prod|test"', 'job="hotstage",env=~"prod|test"'),
        ('path="a\\\\b \\"c\\"",zone!~"x.*"', 'path="a\\\\b \\"c\\"",zone!~"x.*"'),
        ('job="},{"', 'job="},{"'),
        ("", ""),
        ("  ", ""),
    ],
)
def test_label_matchers_come_out_in_one_spelling(text: str, same: str) -> None:
    assert matchers(text) == same


@pytest.mark.parametrize(
    "text",
    [
        "hotstage",
        "job=hotstage",
        "job='hotstage'",
        "job=`hotstage`",
        'job="a"} or up{job="b"',
        'job="a\\',
        'job="a\\x7d"',
        'job="a\n"',
        '__name__="up"',
        'job="a" env="b"',
        ',job="a"',
        'job="a",',
        'job="a",,env="b"',
        'job="a" # and no more',
        '{job="a"}',
        'job="' + "a" * MAX_CHARACTERS + '"',
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingError, match="prometheus_selector"):
        matchers(text)


@given(PIECES)
def test_what_is_accepted_stays_inside_its_braces(text: str) -> None:
    try:
        accepted = matchers(text)
    except SettingError:
        return
    parsed = promql_parser.parse(f"up{{{accepted}}}")
    assert isinstance(parsed, promql_parser.VectorSelector)
    assert parsed.name == "up"
