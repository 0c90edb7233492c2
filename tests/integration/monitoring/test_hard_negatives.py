# SPDX-License-Identifier: Apache-2.0
"""A host that gets nothing to do, then two and a half times its traffic, as much as it can serve: no window
opens, no breaker moves, nobody is woken up.
"""

from __future__ import annotations

import pytest

from hotstage.cli.client import AgentClient

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(120)]


def test_neither_idleness_nor_more_traffic_opens_or_fires_anything(watch):
    watched = watch("idle@8-15", "load-ramp@18-34", seed=9302)
    demo = watched.seen.demo
    demo.wait_until(36)
    heat = [value for _, value in watched.seen.prometheus.query_range(
        "sum(hotstage_endpoint_heat)", seconds=34
    )[0].points]  # fmt: skip
    assert min(heat) < 0.5 * heat[0], "the idle time was seen"
    assert max(heat) > 1.5 * heat[0], "the ramp was seen"
    client = AgentClient(url=demo.agent_url)
    assert client.get("/v1/windows")["windows"] == []
    assert [each["name"] for each in client.get("/v1/breakers")["breakers"] if each["transitions"]] == []
    assert watched.broken_rules() == []
    assert watched.fired() == set()
    assert watched.receiver.deliveries == []
