# SPDX-License-Identifier: Apache-2.0
"""Which requests are good, which are bad, and for which objective."""

from __future__ import annotations

import pytest

from hotstage.config.slo import SloObjective
from hotstage.errors import ConfigError
from hotstage.sinks import metrics
from hotstage.sinks.counts import Counts
from hotstage.sinks.readings import Readings
from hotstage.sinks.slo import Slos

FAST = SloObjective(name="chat-2s", endpoint="/v1/chat*", latency_seconds=2.0, objective=0.95)
ALL = SloObjective(name="all-30s", endpoint="*", latency_seconds=30.0)


@pytest.mark.parametrize(
    ("outcome", "seconds", "events"),
    [
        ("ok", 1.9, ["good"]),
        ("ok", 2.0, ["good"]),
        ("ok", 2.1, ["bad"]),
        ("error", 0.1, ["bad"]),
        ("refused", 0.0, ["bad"]),
        ("lost", 0.0, ["bad"]),
        ("cancelled", 0.1, []),
    ],
)
def test_good_is_well_and_in_time_and_a_callers_own_cancel_counts_for_nobody(outcome, seconds, events):
    found = Slos([FAST]).judge("/v1/chat/completions", outcome, seconds)
    assert [event for _, event in found] == events


def test_an_objective_counts_the_endpoints_of_its_pattern():
    slos = Slos([FAST, ALL])
    assert list(slos.judge("/v1/chat", "ok", 5.0)) == [("chat-2s", "bad"), ("all-30s", "good")]
    assert list(slos.judge("/v1/video", "ok", 5.0)) == [("all-30s", "good")]


def test_two_objectives_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two are named all-30s"):
        Slos([ALL, FAST, ALL])


def test_both_outcomes_are_there_from_the_start_and_grow_with_the_requests(a_pulse):
    counts = Counts(Slos([FAST]))
    assert dict(counts.slo_events.items()) == {("chat-2s", "good"): 0, ("chat-2s", "bad"): 0}
    requests = [("/v1/chat", "text", 0, 1.0), ("/v1/chat", "text", 0, 9.0), ("/v1/embed", "text", 0, 9.0)]
    counts.add_pulse(a_pulse(requests=requests), {})
    assert dict(counts.slo_events.items()) == {("chat-2s", "good"): 1, ("chat-2s", "bad"): 1}


def test_the_objective_itself_is_exported_for_those_who_compute_burn_rates(a_tick, plain_facts):
    readings = Readings(lambda: plain_facts, Slos([FAST, ALL]))
    readings.publish(a_tick())
    found = {reading.metric: reading.children for reading in readings.collect()}
    assert found[metrics.SLO_OBJECTIVE] == [(("chat-2s",), 0.95), (("all-30s",), 0.99)]
    assert len(found[metrics.SLO_EVENTS]) == 4


def test_as_many_objectives_as_the_settings_allow_have_a_series_each():
    many = [SloObjective(name=f"slo-{number}", endpoint="*", latency_seconds=1.0) for number in range(8)]
    counts = Counts(Slos(many))
    assert len(counts.slo_events) == 16
    assert counts.slo_events.dropped == 0
