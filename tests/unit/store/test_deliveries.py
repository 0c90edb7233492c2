# SPDX-License-Identifier: Apache-2.0
"""The notifier's last word."""

from __future__ import annotations

import msgspec
import pytest

from hotstage.store.deliveries import Deliveries, DestinationReport, NotifierReport


def test_the_last_report_is_held():
    held = Deliveries()
    assert held.latest() is None
    report = NotifierReport(5, (DestinationReport(name="a", delivered=1, failed=0, dead=0, pending=0),))
    held.put(report)
    assert held.latest() is report


@pytest.mark.parametrize("changed", [{"delivered": -1}, {"name": ""}, {"name": "x" * 65}, {"pending": 1.5}])
def test_a_report_that_cannot_be_is_refused_at_the_door(changed):
    fields = {"name": "a", "delivered": 1, "failed": 0, "dead": 0, "pending": 0} | changed
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, DestinationReport)
