# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np

from hotstage.frame.call_rates import CallRates, Counts
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.maps.graphs import GRAPH_WORK_DTYPE
from hotstage.probes.maps.layout import CALL_KEY_DTYPE, CALL_STAT_DTYPE
from hotstage.probes.samples import CallSample
from hotstage.stages.shares import SHARE_DTYPE
from hotstage.stages.stage import NO_STAGE, Modality, Stage

SECOND = 1_000_000_000
CALL = {call.name: call_id for call_id, call in calls_by_id().items()}
LAUNCH, ALLOC, GRAPH = CALL["cuLaunchKernel"], CALL["cuMemAlloc_v2"], CALL["cuGraphLaunch"]
MARK = next(call_id for call_id, call in calls_by_id().items() if call.family == "mark")
ENCODE = (Stage.vision_encode, Modality.image)
BARE = (NO_STAGE, 0)


def sample(second, *counters):
    """Each counter: (pid, call, (stage, modality), count, out-of-memory errors)."""
    keys, stats = np.zeros(len(counters), CALL_KEY_DTYPE), np.zeros(len(counters), CALL_STAT_DTYPE)
    for row, (pid, call, (stage, modality), count, oom) in enumerate(counters):
        keys[row] = (pid, call, stage, modality, 0, 0, 0, 0)
        stats[row]["count"], stats[row]["errors"], stats[row]["errors_oom"] = count, oom, oom
    return CallSample(
        second * SECOND, keys, stats, np.ones(len(counters), bool), np.zeros((1, 242), np.uint64)
    )


def test_counters_become_what_happened_since():
    rates = CallRates()
    rates.take(sample(1, (7, LAUNCH, ENCODE, 1000, 0), (7, LAUNCH, BARE, 50, 0), (7, ALLOC, ENCODE, 5, 0)))
    rates.take(sample(3, (7, LAUNCH, ENCODE, 1300, 0), (7, LAUNCH, BARE, 150, 0), (7, ALLOC, ENCODE, 8, 2)))
    counts = rates.of_pids([7])
    assert rates.seconds == 2.0
    assert (counts.calls, counts.launches, counts.unattributed, counts.errors_oom) == (403, 400, 100, 2)
    assert rates.of_stages()[ENCODE].launches == 300
    assert (NO_STAGE, 0) not in rates.of_stages()


def test_a_counter_that_appears_counts_from_zero_and_one_that_goes_just_stops():
    rates = CallRates()
    rates.take(sample(1, (7, LAUNCH, ENCODE, 10, 0)))
    rates.take(sample(2, (8, LAUNCH, ENCODE, 31, 0)))
    assert rates.of_all().launches == 31
    assert rates.of_pids([7]).launches == 0


def test_marks_are_not_calls_and_a_sample_seen_twice_counts_once():
    rates = CallRates()
    rates.take(sample(1, (7, MARK, ENCODE, 1, 0)))
    for _ in range(2):
        rates.take(sample(2, (7, MARK, ENCODE, 99, 0), (7, LAUNCH, ENCODE, 5, 0)))
    assert rates.of_all().calls == 5


def test_rates_are_of_the_last_ten_seconds():
    rates = CallRates()
    for second in range(31):
        rates.take(sample(second, (7, LAUNCH, ENCODE, 100 * min(second, 15), 0)))
    assert rates.of_all().launches == 0
    assert rates.seconds == 10.0


def test_launches_of_a_batch_go_to_the_stages_of_its_members():
    rates, decode = CallRates(), (Stage.llm_decode, Modality.text)
    rates.take(sample(1, (7, LAUNCH, decode, 0, 0)))
    shares = np.zeros(2, SHARE_DTYPE)
    shares["pid"], shares["batch_stage"] = 7, Stage.llm_decode
    shares["stage"], shares["launches"] = (Stage.llm_decode, Stage.llm_prefill), (30.1, 69.9)
    rates.take(sample(2, (7, LAUNCH, decode, 100, 0)), None, [shares])
    found = {stage: round(counts.launches, 6) for (stage, _), counts in rates.of_stages().items()}
    assert found == {Stage.llm_decode: 30.1, Stage.llm_prefill: 69.9}
    for second in range(3, 14):  # the window moves on, and nothing stays behind
        rates.take(sample(second, (7, LAUNCH, decode, 100, 0)))
    assert rates.of_stages() == {}


def timed(second, call, count, total_ns):
    taken = sample(second, (7, call, ENCODE, count, 0))
    taken.stats["total_ns"] = total_ns
    return taken


def test_waits_are_of_the_calls_that_returned_even_where_none_began():
    rates = CallRates()
    rates.take(timed(1, CALL["cuStreamSynchronize"], 5, 0))
    rates.take(timed(3, CALL["cuStreamSynchronize"], 5, 3 * SECOND))
    counts = rates.of_pids([7])
    assert (counts.calls, counts.sync_ns, counts.copy_ns, counts.alloc_ns) == (0, 3 * SECOND, 0, 0)
    assert rates.of_stages()[ENCODE].sync_ns == 3 * SECOND
    for second in range(4, 15):
        rates.take(timed(second, CALL["cuStreamSynchronize"], 5, 3 * SECOND))
    assert rates.of_stages() == {}


def test_copies_and_allocations_are_kept_apart_and_launches_wait_for_nothing():
    for name, place in (
        ("cuMemcpyHtoD_v2", "copy_ns"),
        ("cuMemFree_v2", "alloc_ns"),
        ("cuLaunchKernel", None),
    ):
        rates = CallRates()
        rates.take(timed(1, CALL[name], 1, 0))
        rates.take(timed(2, CALL[name], 2, 700))
        counts = rates.of_all()
        found = {each: getattr(counts, each) for each in ("sync_ns", "copy_ns", "alloc_ns")}
        assert {each for each, value in found.items() if value} == ({place} if place else set())


def test_what_shares_of_batches_leave_of_nothing_is_no_rate():
    counts = Counts(calls=5.4e-13, launches=-5.4e-13, errors=20)
    assert (counts.rate("calls", 10), counts.rate("launches", 10), counts.rate("errors", 10)) == (
        0.0,
        0.0,
        2.0,
    )


def test_graphs_are_told_by_the_kernels_that_they_replay():
    rates = CallRates()
    decode, prefill = (Stage.llm_decode, Modality.text), (Stage.llm_prefill, Modality.text)
    rates.take(with_graphs(sample(1)))
    counters = ((7, LAUNCH, ENCODE, 90, 0), (7, GRAPH, decode, 50, 0), (7, GRAPH, prefill, 4, 0))
    work = ((7, LAUNCH, ENCODE, 30, 0, 0), (7, GRAPH, decode, 10, 4000, 0), (7, GRAPH, prefill, 0, 0, 4))
    rates.take(with_graphs(sample(2, *counters), *work))
    found = {
        code: (counts.launches, counts.graph_launches, counts.graph_kernels, counts.unknown_graphs)
        for code, counts in rates.of_stages().items()
    }
    # 10 of the graph launches went into a graph themselves
    assert found == {ENCODE: (90, 0, 0, 0), decode: (50, 40, 4000, 0), prefill: (4, 4, 0, 4)}
    assert rates.of_all().graph_kernels == 4000
    for second in range(3, 14):
        rates.take(with_graphs(sample(second, *counters), *work))
    assert not rates.of_stages()


def with_graphs(taken, *work):
    """Each: (pid, call, (stage, modality), captured, kernels, unknown)."""
    keys, rows = np.zeros(len(work), CALL_KEY_DTYPE), np.zeros(len(work), GRAPH_WORK_DTYPE)
    for at, (pid, call, (stage, modality), *counts) in enumerate(work):
        keys[at] = (pid, call, stage, modality, 0, 0, 0, 0)
        rows[at] = tuple(counts)
    return replace(taken, graphs=(keys, rows))


def test_of_a_batchs_graphs_its_members_have_the_part_that_they_have_of_its_launches():
    rates = CallRates()
    decode, prefill = (Stage.llm_decode, Modality.text), (Stage.llm_prefill, Modality.text)
    rates.take(with_graphs(sample(1)))
    shares = np.zeros(2, SHARE_DTYPE)
    shares["pid"], shares["launches"] = 7, (60.0, 20.0)
    shares["batch_stage"], shares["batch_modality"] = decode
    shares["stage"], shares["modality"] = (decode[0], prefill[0]), (decode[1], prefill[1])
    work = with_graphs(sample(2, (7, GRAPH, decode, 80, 0)), (7, GRAPH, decode, 0, 4000, 0))
    rates.take(work, shares=[shares])
    found = {
        code: (counts.graph_launches, counts.graph_kernels) for code, counts in rates.of_stages().items()
    }
    assert found == {decode: (60.0, 3000.0), prefill: (20.0, 1000.0)}
