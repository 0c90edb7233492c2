# SPDX-License-Identifier: Apache-2.0
from hotstage.stages.pulse import quiet_pulse


def test_a_quiet_pulse_holds_nothing_and_hides_nothing():
    pulse = quiet_pulse(7)
    assert (len(pulse.ended), len(pulse.open), len(pulse.processes), pulse.requests_started) == (0, 0, 0, 0)
    assert pulse.stale == frozenset() and pulse.at_ns == 7
