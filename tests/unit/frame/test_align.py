# SPDX-License-Identifier: Apache-2.0
from hotstage.frame.align import age_seconds, is_fresh


def test_a_late_sample_does_not_speak_of_now():
    assert is_fresh(7, 10, 3)
    assert not is_fresh(6, 10, 3)
    assert not is_fresh(None, 10, 3)


def test_what_began_during_the_read_is_new():
    assert age_seconds(2_000_000_000, 1_000_000_000) == 0.0
    assert age_seconds(1_000_000_000, 3_500_000_000) == 2.5
