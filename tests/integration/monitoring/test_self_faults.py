# SPDX-License-Identifier: Apache-2.0
"""Five hosts, on each of them something of its own goes wrong, and who is told of it.

The rules are the shipped ones in quick motion: see support/alarms.py. What goes wrong where:
support/five_hosts.py.
"""

from __future__ import annotations

import time

import pytest
from support.alert_faults import LAST, ON_FIVE_HOSTS
from support.five_hosts import SLOW_FROM_SECONDS, end_idle, five_hosts
from support.monitoring import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(180)]

QUIET_SECONDS = SLOW_FROM_SECONDS - 3

FOLLOWING = {
    ("slow", "HotstageStageSlow"),
    ("slow", "HotstageBreakerOpenDryRun"),
    ("flooded", "HotstageCollectorStale"),
    ("idle", "HotstageSeriesDropped"),
    ("idle", "HotstageTicksLate"),
    *((host, "HotstageOutboxNotDrained") for host in ("slow", "flooded", "idle")),
    *((host, "HotstageTelemetryLost") for host in ("slow", "crowded", "peer", "idle", "flooded")),
}
"""What the same faults cause besides; no host has a notifier, only their Prometheus tells. Where five agents
and what they watch fill the machine, one of them may be kept from its ring for too long, and says so."""


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    with five_hosts(tmp_path_factory.mktemp("five")) as found:
        yield found


def test_while_all_is_well_nothing_fires(five):
    began = time.monotonic()
    wait_for(lambda: time.monotonic() > began + QUIET_SECONDS, "the quiet time", QUIET_SECONDS + 1)
    assert five.alarms.broken_rules() == []
    assert five.fired() == {}
    assert five.alarms.receiver.deliveries == []


def test_each_host_gets_its_fault(five):
    five.do("crowded", f"map:{five.new_driver}")
    five.do("crowded", "crowd")
    five.hosts["flooded"].client.request(
        "POST",
        "/v1/breakers/instance:troublesome/override",
        {"action": "metrics_only", "reason": "test", "ttl_seconds": 0.5},
    )
    five.do("flooded", "flood")
    five.let_proc_be_slow()
    (five.hosts["peer"].layout.directory / "breakers").unlink()
    end_idle(five)
    five.fill_page()


@pytest.fixture(scope="module")
def asked(five):
    with five.asked_without_pause() as asking:
        yield asking


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("alert", ON_FIVE_HOSTS)
def test_it_is_told(five, alert):
    five.alarms.wait_told(alert, 100)


def test_an_agent_that_answers_and_does_not_tick_is_told_and_goes_on_when_it_can(five, asked):
    # An answer that comes too late for one scrape makes the rule begin to wait anew: leave the cores to them.
    asked.clear()
    up = f'hotstage_up{{instance="{five.hosts["peer"].target}"}}'
    query = five.alarms.prometheus.query
    five.let_proc_hang()
    try:
        wait_for(lambda: query(f"{up} == 0"), "the agent to say that it does not tick", 10)
        five.alarms.wait_told("HotstageNotTicking", 20)
    finally:
        five.end_lxcfs()
    wait_for(lambda: query(f"{up} == 1"), "the agent to tick again", 10)


def test_each_fired_where_its_fault_was_and_nothing_else_but_what_follows_from_it(five):
    expected = {(host, alert) for alert, (host, _) in (ON_FIVE_HOSTS | LAST).items()}
    fired = five.fired()
    unexpected = {key: labels for key, labels in fired.items() if key not in expected | FOLLOWING}
    assert not unexpected, unexpected
    assert expected <= fired.keys()
    assert five.alarms.broken_rules() == []
    assert five.alarms.receiver.totals()["rejected"] == 0
