# SPDX-License-Identifier: Apache-2.0
"""Children of what is read whole at each scrape: who has found room keeps it, and no counter falls."""

from __future__ import annotations

from hotstage.sinks.admission import Admission
from hotstage.sinks.metric import Metric

COUNTER = Metric("hotstage_x_total", "counter", ("who",), "X.", cap=3)
GAUGE = Metric("hotstage_x", "gauge", ("who",), "X.", cap=2)


def test_children_of_a_counter_beyond_its_cap_share_other_for_ever() -> None:
    admission = Admission()
    first = admission.admit(COUNTER, [(("a",), 1.0), (("b",), 2.0), (("c",), 4.0), (("d",), 8.0)])
    assert first == [(("a",), 1.0), (("b",), 2.0), (("other",), 12.0)]
    assert admission.admit(COUNTER, [(("d",), 9.0), (("a",), 1.0)]) == [(("a",), 1.0), (("other",), 9.0)]
    assert admission.dropped == {"hotstage_x_total": 2}


def test_a_child_that_is_called_other_is_the_rest_and_nothing_lost() -> None:
    admission = Admission()
    assert admission.admit(COUNTER, [(("other",), 1.0)]) == [(("other",), 1.0)]
    both = [(("a",), 1.0), (("other",), 2.0), (("b",), 4.0)]
    assert admission.admit(COUNTER, both) == [(("a",), 1.0), (("b",), 4.0), (("other",), 2.0)]
    assert not any(admission.dropped.values())
    admission.admit(COUNTER, [*both, (("c",), 8.0)])
    assert admission.dropped == {"hotstage_x_total": 1}


def test_gauges_beyond_their_cap_are_left_out() -> None:
    admission = Admission()
    assert len(admission.admit(GAUGE, [((name,), 1.0) for name in "abc"])) == 2
    assert admission.dropped == {"hotstage_x": 1}


def test_all_metrics_together_stay_within_the_total() -> None:
    admission = Admission(total=10)
    found = []
    for number in range(9):
        metric = Metric(f"hotstage_x{number}_total", "counter", ("who",), "X.", cap=4)
        found += admission.admit(metric, [((name,), 1.0) for name in "abcdef"])
        gauge = Metric(f"hotstage_x{number}", "gauge", (), "X.")
        found += admission.admit(gauge, [((), 1.0)])
    assert 0 < len(found) <= 10


def test_without_labels_there_is_one_child() -> None:
    plain = Metric("hotstage_y_total", "counter", (), "Y.")
    assert Admission().admit(plain, [((), 5.0)]) == [((), 5.0)]
