# SPDX-License-Identifier: Apache-2.0
import time

import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage, sample, thread

from hotstage.probes.maps.layout import REQUEST_DTYPE
from hotstage.probes.samples import FastSample
from hotstage.stages.spans import OUTCOME_LOST
from hotstage.stages.tracker import Tracker

START = 50 * SECOND


@pytest.fixture
def dead_pids():
    return set()


@pytest.fixture
def tracker(dead_pids):
    return Tracker(is_alive=lambda pid: pid not in dead_pids)


def told(spans):
    return [(int(s["request_hash"]), int(s["stage"]), int(s["duration_ns"]), int(s["count"])) for s in spans]


def test_a_stage_that_ends_while_its_request_goes_on_is_told_once(tracker):
    request = KernelRequest(7, at_ns=START).begin(Stage.preprocess, START + MS)
    assert told(tracker.advance(sample(START + 100 * MS, requests=[request])).ended) == []
    request.end(Stage.preprocess, START + 41 * MS)
    pulse = tracker.advance(sample(START + 200 * MS, requests=[request]))
    assert told(pulse.ended) == [(7, Stage.preprocess, 40 * MS, 1)]
    assert told(tracker.advance(sample(START + 300 * MS, requests=[request])).ended) == []


def test_the_stages_of_a_finished_record_that_were_told_before_are_not_told_again(tracker):
    request = KernelRequest(7, at_ns=START).begin(Stage.tokenize, START).end(Stage.tokenize, START + 3 * MS)
    tracker.advance(sample(START + 100 * MS, requests=[request]))
    request.begin(Stage.llm_decode, START + 110 * MS, tokens=11).end(Stage.llm_decode, START + 150 * MS)
    end = request.finished(START + 160 * MS, output_tokens=11)
    pulse = tracker.advance(sample(START + 200 * MS, finished=[end]))
    assert told(pulse.ended) == [(7, Stage.llm_decode, 40 * MS, 1)]
    assert pulse.ended["tokens"].tolist() == [11]
    assert pulse.requests_ended["ended_ns"].tolist() == [START + 160 * MS]
    assert pulse.names.endpoints[int(pulse.requests_ended["endpoint"][0])] == "/v1/chat"
    assert told(tracker.advance(sample(START + 300 * MS)).ended) == []


def test_a_request_that_stands_in_the_map_and_in_the_ring_counts_once_and_is_not_in_flight(tracker):
    request = KernelRequest(7, at_ns=START).begin(Stage.tokenize, START).end(Stage.tokenize, START + 3 * MS)
    pulse = tracker.advance(
        sample(START + 100 * MS, requests=[request], finished=[request.finished(START + 90 * MS)])
    )
    assert told(pulse.ended) == [(7, Stage.tokenize, 3 * MS, 1)]
    assert len(pulse.requests_open) == 0
    assert len(pulse.requests_ended) == 1


def test_a_request_that_lived_between_two_looks_is_told_whole(tracker):
    tracker.advance(sample(START))
    request = KernelRequest(7, at_ns=START + 10 * MS)
    request.begin(Stage.tokenize, START + 10 * MS).end(Stage.tokenize, START + 12 * MS)
    pulse = tracker.advance(sample(START + 100 * MS, finished=[request.finished(START + 20 * MS)]))
    assert told(pulse.ended) == [(7, Stage.tokenize, 2 * MS, 1)]
    assert pulse.requests_started == 1


def test_an_id_used_again_is_another_request(tracker):
    first = KernelRequest(7, at_ns=START).begin(Stage.tokenize, START).end(Stage.tokenize, START + 3 * MS)
    tracker.advance(sample(START + 100 * MS, requests=[first]))
    again = KernelRequest(7, at_ns=START + 150 * MS)
    again.begin(Stage.tokenize, START + 150 * MS).end(Stage.tokenize, START + 155 * MS)
    pulse = tracker.advance(
        sample(START + 200 * MS, requests=[again], finished=[first.finished(START + 140 * MS)])
    )
    assert told(pulse.ended) == [(7, Stage.tokenize, 5 * MS, 1)]
    assert pulse.requests_open["started_ns"].tolist() == [START + 150 * MS]


def test_several_ends_of_one_stage_between_two_looks_are_one_row_with_their_count(tracker):
    request = KernelRequest(7, at_ns=START)
    for begin in (0, 10, 20):
        request.begin(Stage.vision_encode, START + begin * MS, modality=Modality.image)
        request.end(Stage.vision_encode, START + (begin + 4) * MS)
    pulse = tracker.advance(sample(START + 100 * MS, requests=[request]))
    assert told(pulse.ended) == [(7, Stage.vision_encode, 12 * MS, 3)]


def test_a_slot_of_which_only_the_count_has_moved_waits_for_the_next_look(tracker):
    request = KernelRequest(7, at_ns=START).begin(Stage.tokenize, START).end(Stage.tokenize, START + 3 * MS)
    torn = request.row.copy()
    torn["stages"]["total_ns"][Stage.tokenize] = 0
    assert told(tracker.advance(sample(START + 100 * MS, requests=[torn])).ended) == []
    pulse = tracker.advance(sample(START + 200 * MS, requests=[request]))
    assert told(pulse.ended) == [(7, Stage.tokenize, 3 * MS, 1)]


def test_an_open_stage_has_an_age_and_one_begun_during_the_read_is_new(tracker):
    old = KernelRequest(1, at_ns=START).begin(Stage.llm_prefill, START, tokens=900)
    new = KernelRequest(2, at_ns=START).begin(Stage.llm_prefill, START + 101 * MS)
    pulse = tracker.advance(sample(START + 100 * MS, requests=[old, new]))
    ages = {int(s["request_hash"]): (int(s["duration_ns"]), int(s["tokens"])) for s in pulse.open}
    assert ages == {1: (100 * MS, 900), 2: (0, 0)}
    assert pulse.open["is_open"].all()


def test_a_request_missing_from_a_few_reads_is_kept_and_then_given_up_once(tracker):
    request = KernelRequest(7, at_ns=START)
    tracker.advance(sample(START, requests=[request]))
    outcomes = []
    for look in range(1, 12):
        outcomes += tracker.advance(sample(START + look * 100 * MS)).requests_ended["outcome"].tolist()
    assert outcomes == [OUTCOME_LOST]


def test_the_requests_of_a_dead_server_end_as_lost_and_never_come_back(tracker, dead_pids):
    request = KernelRequest(7, at_ns=START, pid=100).begin(Stage.llm_decode, START)
    worker = thread(1000, pid=100, launches=5)
    tracker.advance(sample(START, requests=[request], threads=[worker]))
    dead_pids.add(100)
    pulse = tracker.advance(sample(START + 100 * MS, requests=[request], threads=[worker]))
    assert pulse.requests_ended["outcome"].tolist() == [OUTCOME_LOST]
    assert pulse.processes["is_dead"].tolist() == [True]
    assert len(pulse.open) == len(pulse.requests_open) == 0
    later = tracker.advance(sample(START + 200 * MS, requests=[request], threads=[worker]))
    assert len(later.requests_ended) == len(later.requests_open) == len(later.processes) == 0


def test_launches_are_summed_over_threads_that_come_and_go(tracker):
    tracker.advance(sample(START, threads=[thread(1, launches=1000), thread(2, launches=7)]))
    pulse = tracker.advance(
        sample(START + 100 * MS, threads=[thread(1, launches=1011), thread(3, launches=13, unattributed=2)])
    )
    row = pulse.processes[0]
    assert (row["launch_delta"], row["launch_total"], row["unattributed_total"]) == (24, 24, 2)
    reused = tracker.advance(sample(START + 200 * MS, threads=[thread(1, launches=3)]))
    assert reused.processes["launch_delta"].tolist() == [3]
    assert reused.processes["launch_total"].tolist() == [27]


def test_the_call_a_process_sits_in_longest_is_named(tracker):
    waiting = thread(5, call=31, since_ns=START - 9 * SECOND, stage=Stage.llm_decode)
    pulse = tracker.advance(
        sample(START, threads=[thread(4, call=16, since_ns=START - MS), waiting, thread(6)])
    )
    row = pulse.processes[0]
    assert (row["call"], row["call_tid"], row["call_since_ns"]) == (31, 5, START - 9 * SECOND)
    assert row["call_stage"] == Stage.llm_decode


def test_output_tokens_add_up_over_progress_and_end(tracker):
    request = KernelRequest(7, at_ns=START)
    request.row["output_tokens"] = 4
    tracker.advance(sample(START, requests=[request]))
    end = request.finished(START + 50 * MS, output_tokens=11)
    other = KernelRequest(8, at_ns=START)
    pulse = tracker.advance(sample(START + 100 * MS, requests=[other], finished=[end]))
    assert pulse.processes["output_tokens_total"].tolist() == [11]


def test_a_blinding_loss_and_a_missed_tick_make_a_pulse_stale(tracker):
    tracker.advance(sample(START, losses={"lost_events_ring": 3, "missed_request": 1}))
    fine = tracker.advance(sample(START + 100 * MS, losses={"lost_events_ring": 3, "missed_request": 5}))
    assert (fine.lost, fine.stale) == ({"missed_request": 4}, frozenset())
    lossy = tracker.advance(sample(START + 200 * MS, losses={"lost_events_ring": 4, "missed_request": 5}))
    assert (lossy.lost, lossy.stale) == ({"lost_events_ring": 1}, frozenset({"lost_events_ring"}))
    assert tracker.advance(sample(START + 3 * SECOND, losses=lossy.losses)).stale == frozenset({"gap"})


def test_names_from_a_hostile_process_are_bounded_and_printable(tracker):
    request = KernelRequest(1, at_ns=START, endpoint="/ok")
    request.row["endpoint"] = b"/\x1b[31m\xff"
    pulse = tracker.advance(sample(START, requests=[request]))
    assert pulse.names.endpoints[int(pulse.requests_open["endpoint"][0])] == "/_[31m_"
    flood = [KernelRequest(n, at_ns=START, endpoint=f"/e{n}") for n in range(2000)]
    pulse = tracker.advance(sample(START + 100 * MS, requests=flood))
    assert len(pulse.names.endpoints) == 1024
    assert pulse.names.endpoints.refused > 900


def test_a_tick_with_two_thousand_requests_in_flight_stays_small(tracker):
    """Guards the shape of the code (no per-request Python), not the machine: twenty times the budget."""
    rows = np.zeros(2000, REQUEST_DTYPE)
    rows["request_hash"] = np.arange(1, 2001)
    rows["started_ns"], rows["tgid"], rows["endpoint"] = START, 100, b"/v1/chat"
    rows["stages"]["open"][:, Stage.llm_decode] = 1
    spent = []
    for look in range(12):
        rows["stages"]["count"][: 50 * look, Stage.llm_prefill] = 1
        rows["stages"]["total_ns"][: 50 * look, Stage.llm_prefill] = 5 * MS
        now = FastSample(
            START + look * 100 * MS, **{f: getattr(sample(0), f) for f in ("threads", "finished", "events")},
            requests=rows.copy(), xids=(), losses={}, unclean=0,
        )  # fmt: skip
        began = time.perf_counter()
        tracker.advance(now)
        spent.append(time.perf_counter() - began)
    assert min(spent[2:]) < 0.1
