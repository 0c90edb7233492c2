# SPDX-License-Identifier: Apache-2.0
"""A simulated host that dies is told as such, and never stands in the way of the end."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.receivers import RawReceiver, Reply

from hotstage.cli.demo import demo
from hotstage.cli.demo.simulated import SimulatedHost, planned_faults
from hotstage.clock import SystemClock
from hotstage.errors import ConfigError, PeerError


@pytest.fixture
def dead_host(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.wait(10)
    return SimulatedHost(process, SystemClock(), (), tmp_path)


def test_a_dead_host_is_noticed_while_it_should_run(dead_host):
    with pytest.raises(PeerError, match="ended with code 0"):
        dead_host.news()
    dead_host.end()


def test_a_word_to_a_dead_host_is_its_own_error_and_the_end_still_comes(dead_host):
    with pytest.raises(PeerError, match="ended with code 0"):
        dead_host.stop()
    dead_host.end()


def test_a_fault_that_there_is_not_is_refused_once_with_what_there_is(tmp_path, capfd):
    with pytest.raises(ConfigError) as refused:
        SimulatedHost.start(tmp_path, seed=1, clock=SystemClock(), faults=("nosuch@3",))
    assert refused.value.exit_code == 2
    assert "waiting" not in refused.value.message
    assert "hotstage demo --help" in refused.value.remedy
    assert "unknown fault 'nosuch'" in capfd.readouterr().err


def test_the_health_of_an_instance_is_what_its_port_says(dead_host, tmp_path):
    with RawReceiver(lambda request, before: Reply(200, body=b"ok")) as receiver:
        ports = {"i-0": int(receiver.url.rpartition(":")[2])}
        host = SimulatedHost(dead_host.process, SystemClock(), (), tmp_path, ports)
        assert host.health("i-0").startswith("200")
        assert receiver.requests[0].path == "/health"
    assert host.health("i-1").startswith("no answer")
    dead_host.end()


def test_a_fault_without_a_start_begins_when_the_help_says():
    (fault,) = planned_faults(["encoder-stall"], None)
    assert (fault["name"], fault["start_seconds"], fault["end_seconds"]) == ("encoder-stall", 15.0, 30.0)
    option = next(each for each in demo.params if each.name == "faults")
    assert "START is 15 unless given" in option.help


def test_a_fault_that_there_is_not_is_refused_in_the_hosts_own_words():
    with pytest.raises(ConfigError, match="encoder-stal") as refused:
        planned_faults(["encoder-stal@x"], None)
    assert refused.value.remedy
