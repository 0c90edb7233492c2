# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from hotstage.stages.names import OTHER, UNNAMED, Names
from hotstage.text import clean_name


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"i-0\0garbage", "i-0"),
        (b"", ""),
        (b"a\nb\x00", "a_b"),
        ("é".encode(), "__"),
        (b"/v1/chat", "/v1/chat"),
    ],
)
def test_a_name_is_cut_at_nul_and_made_printable(raw, text):
    assert clean_name(raw) == text


def test_ids_are_stable_and_zero_is_unnamed():
    names = Names()
    ids = names.intern_rows(np.array([b"b", b"a", b"", b"b"], "S8"))
    assert ids[0] == ids[3] and ids[2] == UNNAMED and ids[0] != ids[1]
    assert [names[int(each)] for each in ids] == ["b", "a", "", "b"]
    assert names.find("a") == ids[1] and names.find("never") == -1


def test_a_full_table_gives_other_and_counts_it():
    names = Names(limit=4)
    assert [names.intern(text) for text in ("a", "b", "c", "d", "a")] == [2, 3, OTHER, OTHER, 2]
    assert names.refused == 2
