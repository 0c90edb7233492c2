# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, thread

from hotstage.probes.maps.layout import THREAD_DTYPE
from hotstage.stages.ledger import TOKENS_DTYPE
from hotstage.stages.processes import Processes
from hotstage.stages.spans import REQUEST_DTYPE

START = 50 * SECOND


@pytest.fixture
def look():
    """One look at these threads; (pid, launches, without a stage) of each process."""
    processes = Processes(lambda pid: True)

    def look(*threads):
        rows, _ = processes.advance(
            np.array(list(threads), THREAD_DTYPE), np.zeros(0, REQUEST_DTYPE), np.zeros(0, TOKENS_DTYPE)
        )
        return list(
            zip(*(rows[name].tolist() for name in ("pid", "launch_delta", "unattributed_total")), strict=True)
        )

    return look


def test_the_order_of_the_map_does_not_matter(look):
    look(thread(1, launches=10), thread(2, pid=200, launches=20), thread(3, launches=30))
    seen = look(
        thread(3, launches=31), thread(2, pid=200, launches=22, unattributed=2), thread(1, launches=14)
    )
    assert seen == [(100, 5, 0), (200, 2, 2)]


def test_a_thread_id_that_moves_to_another_process_counts_there(look):
    look(thread(1, launches=10))
    assert look(thread(1, pid=200, launches=3)) == [(200, 3, 0)]


def test_each_process_has_its_own_oldest_call():
    rows, _ = Processes(lambda pid: True).advance(
        np.array(
            [
                thread(1, call=7, since_ns=START),
                thread(2, call=8, since_ns=START - MS),
                thread(3, pid=200, call=9, since_ns=START - 5 * MS),
                thread(4, pid=300),
            ],
            THREAD_DTYPE,
        ),
        np.zeros(0, REQUEST_DTYPE),
        np.zeros(0, TOKENS_DTYPE),
    )
    assert rows[["pid", "call", "call_tid", "call_stage"]].tolist() == [
        (100, 8, 2, 255),
        (200, 9, 3, 255),
        (300, 0, 0, 255),
    ]


def test_the_instance_is_the_one_of_the_oldest_request_and_stays():
    processes, threads = Processes(lambda pid: True), np.array([thread(1)], THREAD_DTYPE)
    requests = np.zeros(2, REQUEST_DTYPE)
    requests["pid"], requests["started_ns"], requests["instance"] = 100, [START, START - MS], [4, 5]
    row = processes.advance(threads, requests, np.zeros(0, TOKENS_DTYPE))[0][0]
    assert (row["open_requests"], row["oldest_request_ns"], row["instance"]) == (2, START - MS, 5)
    row = processes.advance(threads, requests[:0], np.zeros(0, TOKENS_DTYPE))[0][0]
    assert (row["open_requests"], row["oldest_request_ns"], row["instance"]) == (0, 0, 5)
