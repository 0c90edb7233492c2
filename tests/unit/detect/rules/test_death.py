# SPDX-License-Identifier: Apache-2.0
from support.pulses import SECOND, process, pulse, request

from hotstage.detect.rules.death import Death
from hotstage.stages.spans import OUTCOME_LOST

START = 1000 * SECOND


def dead(at_ns, lost):
    ended = [request(n, START, ended_ns=at_ns, outcome=OUTCOME_LOST) for n in range(lost)]
    return pulse(at_ns, processes=[process(is_dead=True)], requests_ended=ended)


def test_a_process_that_dies_with_requests_in_flight_is_found_at_once():
    (finding,) = Death().observe_pulse(dead(START, 3))
    assert (finding.kind, finding.entity.pid, finding.entity.instance) == ("process_death", 100, "i-0")
    assert finding.is_hard and "3 requests" in finding.summary


def test_it_is_shown_for_five_seconds():
    detector = Death()
    detector.observe_pulse(dead(START, 1))
    assert detector.observe_pulse(pulse(START + 4 * SECOND))
    assert detector.observe_pulse(pulse(START + 5 * SECOND)) == []


def test_a_process_that_was_stopped_without_requests_is_no_finding():
    assert Death().observe_pulse(dead(START, 0)) == []
