# SPDX-License-Identifier: Apache-2.0
"""One host on which much goes wrong at once, by real means, and who is told of it. The rules are the shipped
ones in quick motion: see support/alarms.py.

The tests stand in the order of the run: all is well, then AT_ONCE in a moment, then AFTER, which would hide
the rest.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.alert_faults import AFTER, AT_ONCE
from support.monitoring import wait_for
from support.receivers import Reply
from support.troubled import troubled_host

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(150)]

QUIET_SECONDS = 6.0
XIDS = ("xid@10-600:79", "xid@10.5-600:94")
HW_THERMAL = 0x40


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    with troubled_host(tmp_path_factory.mktemp("troubled"), *XIDS, seed=9303) as found:
        found.host.go()
        yield found


def test_while_all_is_well_nothing_fires(troubled):
    began = time.monotonic()
    wait_for(lambda: time.monotonic() > began + QUIET_SECONDS, "the quiet time", QUIET_SECONDS + 1)
    assert troubled.alarms.broken_rules() == []
    assert troubled.alarms.fired() == set()
    assert troubled.alarms.receiver.deliveries == []


def test_everything_goes_wrong(troubled):
    for name, status in (("gone", 410), ("refusing", 400), ("down", 503)):
        troubled.receivers[name].script = lambda request, before, status=status: Reply(status)
    troubled.do("launch")
    troubled.do("fail")
    troubled.do("exhaust")
    troubled.collector.answer = 400
    troubled.engine.kill()
    troubled.forget_target()
    troubled.slow_down(1, HW_THERMAL)
    troubled.override("trip", "modality:image")


@pytest.mark.parametrize("alert", AT_ONCE)
def test_it_is_told(troubled, alert):
    troubled.alarms.wait_told(alert, 50)


def test_backlogs_are_of_the_destination_that_is_down_and_of_the_one_that_is_refused(troubled):
    def waiting():
        found = troubled.alarms.prometheus.query('ALERTS{alertname="HotstageWebhookBacklog"}')
        return {each.labels["destination"] for each in found} == {"down", "unsafe"}

    wait_for(waiting, "both backlogs", 15)


def test_what_would_hide_the_rest_goes_wrong(troubled):
    troubled.do("flood")
    os.kill(troubled.notifier.pid, signal.SIGSTOP)
    troubled.override("trip", "modality:video")
    query = troubled.alarms.prometheus.query
    wait_for(
        lambda: query("hotstage_webhook_outbox_oldest_age_seconds > 0"), "an event on disk that waits", 10
    )
    troubled.fill_disk()

    def is_losing():
        for number in range(60):
            troubled.client.request(
                "POST",
                f"/v1/breakers/instance:i-{number}/override",
                {"action": "force_open", "reason": "test", "ttl_seconds": 600.0},
            )
        return query("hotstage_store_lost_changes_total > 0")

    wait_for(is_losing, "the first lost change", 15)


@pytest.mark.parametrize("alert", AFTER)
def test_it_is_told_then(troubled, alert):
    troubled.alarms.wait_told(alert, 50)


def test_nothing_else_has_fired_and_every_rule_can_be_evaluated(troubled):
    # Who launches and hardly serves deviates, too, after 40 s; Absent is the lonely Prometheus' own.
    fired = troubled.alarms.fired() - {"HotstageDispatchDeviation"} | {"HotstageAbsent"}
    assert fired == AT_ONCE.keys() | AFTER.keys()
    assert troubled.alarms.broken_rules() == []
    assert troubled.alarms.receiver.totals()["rejected"] == 0
