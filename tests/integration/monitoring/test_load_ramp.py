# SPDX-License-Identifier: Apache-2.0
"""A host that gets two and a half times the traffic, as much as it can serve: nobody is woken up."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(120)]


def test_more_traffic_alone_fires_nothing(watch):
    watched = watch("load-ramp@6-26", seed=9302)
    demo = watched.seen.demo
    demo.wait_until(27)
    heat = watched.seen.prometheus.query_range("sum(hotstage_endpoint_heat)", seconds=25)[0].points
    assert max(value for _, value in heat) > 1.5 * heat[0][1], "the ramp was seen"
    assert watched.broken_rules() == []
    assert watched.fired() == set()
    assert watched.receiver.deliveries == []
