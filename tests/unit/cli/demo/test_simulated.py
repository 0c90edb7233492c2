# SPDX-License-Identifier: Apache-2.0
"""A simulated host that dies is told as such, and never stands in the way of the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hotstage.cli.demo.simulated import SimulatedHost
from hotstage.clock import SystemClock
from hotstage.errors import PeerError


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
