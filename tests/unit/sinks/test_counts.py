# SPDX-License-Identifier: Apache-2.0
"""What only grows: stages, requests, calls, windows, transitions, XIDs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hotstage.breaker.record import BreakerState
from hotstage.frame.entity import HOST
from hotstage.probes.catalogue import calls_by_id
from hotstage.probes.catalogue.spec import Family
from hotstage.probes.maps.graphs import GRAPH_WORK_DTYPE
from hotstage.probes.maps.layout import CALL_KEY_DTYPE, CALL_STAT_DTYPE
from hotstage.probes.samples import CallSample, XidEvent
from hotstage.sinks import metrics
from hotstage.sinks.counts import Counts
from hotstage.sinks.tally import Slots, Tally
from hotstage.stages.labels import StageLabels
from hotstage.stages.stage import OWN_STAGES, Modality, Stage

LAUNCH = next(call_id for call_id, call in calls_by_id().items() if call.family is Family.LAUNCH)
MARK = next((call_id for call_id, call in calls_by_id().items() if call.family is Family.MARK), None)
LAUNCH_NAME = calls_by_id()[LAUNCH].name
IN_ENCODER = (LAUNCH_NAME, "vision_encode", "image")


def sample(*rows, at_ns=1):
    """Rows of (tgid, call, count, errors, moved) and, where it matters, the total seconds."""
    keys, stats = np.zeros(len(rows), CALL_KEY_DTYPE), np.zeros(len(rows), CALL_STAT_DTYPE)
    for key, stat, (tgid, call, count, errors, _, *seconds) in zip(keys, stats, rows, strict=True):
        key["tgid"], key["call"] = tgid, call
        stat["total_ns"] = round(sum(seconds) * 1e9)
        key["stage"], key["modality"] = Stage.vision_encode, Modality.image
        stat["count"], stat["errors"] = count, errors
    moved = np.array([row[4] for row in rows], np.bool_)
    return CallSample(at_ns, keys, stats, moved, np.zeros((1, 242), np.uint64))


def test_stages_are_grouped_and_each_span_counts_once(a_pulse):
    counts = Counts()
    stages = [
        ("vision_encode", "image", 0.010, 7, 1),
        ("vision_encode", "image", 0.030, 7, 1),
        ("llm_decode", "text", 0.4, 8, 2),
    ]
    counts.add_pulse(a_pulse(stages), {7: "GPU-a"})
    found = {
        labels: (buckets[-1][1], round(total, 6)) for labels, buckets, total in counts.stage_duration.items()
    }
    assert found == {
        ("vision_encode", "image", "vlm", "GPU-a"): (2, 0.04),
        ("llm_decode", "text", "vlm", ""): (2, 0.4),
    }


def test_requests_are_counted_by_outcome_and_timed_only_if_they_ran(a_pulse):
    counts = Counts()
    requests = [("/v1/chat", "image", outcome, 1.5) for outcome in (0, 0, 1, 2, 3, 4)]
    counts.add_pulse(a_pulse(requests=requests), {})
    by_outcome = {labels[-1]: count for labels, count in counts.requests.items()}
    assert by_outcome == {"ok": 2, "error": 1, "cancelled": 1, "refused": 1, "lost": 1}
    ((labels, buckets, total),) = counts.request_duration.items()
    assert (labels, buckets[-1][1], total) == (("/v1/chat", "image", "vlm"), 4, 6.0)


def test_an_empty_pulse_counts_nothing(a_pulse):
    counts = Counts()
    counts.add_pulse(a_pulse(), {})
    assert len(counts.stage_duration) == len(counts.requests) == 0


def test_calls_are_the_sum_of_what_each_counter_grew_by():
    counts = Counts()
    counts.add_calls(sample((1, LAUNCH, 10, 0, True), (2, LAUNCH, 5, 1, True)), StageLabels())
    counts.add_calls(sample((1, LAUNCH, 13, 0, True), (2, LAUNCH, 5, 1, False)), StageLabels())
    assert dict(counts.calls.items()) == {IN_ENCODER: 18}
    assert dict(counts.call_errors.items()) == {IN_ENCODER: 1}


def test_a_process_that_is_gone_keeps_its_calls_and_a_reused_pid_starts_anew():
    counts = Counts()
    counts.add_calls(sample((1, LAUNCH, 1_000, 0, True)), StageLabels())
    counts.add_calls(sample(), StageLabels())
    counts.add_calls(sample((1, LAUNCH, 3, 0, True)), StageLabels())
    assert dict(counts.calls.items()) == {IN_ENCODER: 1_003}


def test_a_key_that_one_read_of_the_map_misses_counts_once():
    counts = Counts()
    one, two = (1, LAUNCH, 10, 0, True), (2, LAUNCH, 5, 1, True)
    for rows in ((one, two), (two,), ((2, LAUNCH, 6, 1, True), one), ((1, LAUNCH, 12, 0, True),)):
        counts.add_calls(sample(*rows), StageLabels())
    assert dict(counts.calls.items()) == {IN_ENCODER: 18}
    assert dict(counts.call_errors.items()) == {IN_ENCODER: 1}


def test_calls_that_moved_while_nobody_added_them_up_are_added_with_the_next_ones():
    counts = Counts()
    counts.add_calls(sample((1, LAUNCH, 10, 0, True)), StageLabels())
    counts.add_calls(sample((1, LAUNCH, 15, 0, False)), StageLabels())
    assert dict(counts.calls.items()) == {IN_ENCODER: 15}


def test_calls_in_a_stage_that_a_process_made_up_go_where_its_name_is_by_now():
    counts, labels, own = Counts(), StageLabels(), OWN_STAGES.start
    for count, names in ((3, {}), (5, {(1, own): "rerank"}), (9, {(1, own): "rank again"})):
        labels.know(names)
        taken = sample((1, LAUNCH, count, 0, True))
        taken.keys["stage"] = own
        counts.add_calls(taken, labels)
    assert {stage: count for (_, stage, _), count in counts.calls.items()} == {
        "other": 3,
        "rerank": 2,
        "rank again": 4,
    }


def test_beyond_the_cap_calls_share_one_child():
    tally = Tally(replace(metrics.CALLS, cap=3))
    slots = Slots([("a",), ("b",), ("c",), None, ("d",)])
    for _ in range(2):
        tally.add_at(slots, np.array([1, 2, 3, 4, 5]), is_moved=np.array([True, True, True, True, False]))
    assert (dict(tally.items()), tally.dropped) == ({("a",): 2, ("b",): 4, ("other",): 6}, 2)
    tally.add_at(slots, np.array([0, 0, 0, 0, 5]), is_moved=np.array([False] * 4 + [True]))
    assert dict(tally.items())[("other",)] == 11


def test_keys_of_departed_processes_are_forgotten_in_time():
    counts = Counts()
    for tgid in range(2_000):
        counts.add_calls(sample((tgid, LAUNCH, 1, 0, True)), StageLabels())
    assert len(counts._calls._before) < 1_100
    assert dict(counts.calls.items()) == {IN_ENCODER: 2_000}


def test_waits_are_the_time_in_blocking_calls_by_reason():
    ids = {call.name: call_id for call_id, call in calls_by_id().items()}
    counts = Counts()
    rows = [("cuStreamSynchronize", 2.0), ("cuEventSynchronize", 0.5), ("cuMemcpyHtoD_v2", 0.25)]
    counts.add_calls(sample(*((1, ids[name], 4, 0, True, seconds) for name, seconds in rows)), StageLabels())
    counts.add_calls(
        sample((1, ids["cuStreamSynchronize"], 5, 0, True, 3.0), (1, LAUNCH, 9, 0, True, 7.0)), StageLabels()
    )
    assert dict(counts.waits.items()) == {
        ("vision_encode", "image", "sync"): 3.5,
        ("vision_encode", "image", "memcpy"): 0.25,
    }


def test_a_source_keeps_the_time_when_it_was_last_fresh(a_frame):
    counts = Counts()
    counts.add_frame(a_frame({}, stale=["devices"]), 5_000_000_000_000)
    counts.add_frame(a_frame({}, stale=["devices", "host"]), 6_000_000_000_000)
    assert counts.fresh_seconds == {"requests": 6_000.000001, "calls": 6_000.000001, "host": 5_000.000001}


def test_marks_are_not_calls():
    counts = Counts()
    if MARK is not None:
        counts.add_calls(sample((1, MARK, 10, 0, True)), StageLabels())
    counts.add_calls(sample((1, 511, 10, 0, True)), StageLabels())
    assert len(counts.calls) == 0


def test_windows_are_counted_by_enums_never_by_id(make):
    counts = Counts()
    counts.add_windows([make.window("w-1"), make.window("w-2"), make.window("w-3", entity=HOST)])
    assert dict(counts.windows.items()) == {
        ("stage_latency", "warning", "vision_encode"): 2,
        ("stage_latency", "warning", ""): 1,
    }


def test_the_reason_of_a_transition_is_an_enum(make):
    closed, opened, half = BreakerState.closed, BreakerState.open, BreakerState.half_open
    moves = [(closed, opened), (opened, half), (half, opened), (half, closed)]
    counts = Counts()
    counts.add_transitions(make.transition(from_state=a, to_state=b, reason="3 words") for a, b in moves)
    counts.add_transitions([make.transition(to_state=BreakerState.forced_open, actor="uid 0")])
    assert [labels[3] for labels, _ in counts.transitions.items()] == [
        "window",
        "cool_down",
        "relapse",
        "recovered",
        "override",
    ]


def test_xids_carry_the_uuid_where_nvml_knows_it():
    counts = Counts()
    xids = [
        XidEvent(5, bus, 79, "", "kernel_log") for bus in ("0000:01:00.0", "0000:01:00.0", "0000:02:00.0")
    ]
    counts.add_xids(xids, {"0000:01:00.0": "GPU-a"}, 2_000_000_000_000)
    assert dict(counts.xids.items()) == {("GPU-a", "79"): 2, ("0000:02:00.0", "79"): 1}
    assert counts.xid_last_seconds[("GPU-a", "79")] == 2_000.000000005


def test_kernels_in_graphs_are_counted_by_stage_and_unknown_graphs_by_themselves():
    counts, labels = Counts(), StageLabels()
    for at, (kernels, unknown) in enumerate(((100, 0), (100, 2), (350, 2), (40, 1))):  # the last: begun anew
        keys, work = np.zeros(1, CALL_KEY_DTYPE), np.zeros(1, GRAPH_WORK_DTYPE)
        keys["tgid"], keys["stage"], keys["modality"] = 7, Stage.llm_decode, Modality.text
        work["kernels"], work["unknown"] = kernels, unknown
        counts.add_calls(replace(sample(at_ns=at), graphs=(keys, work)), labels)
    assert dict(counts.graph_kernels.items()) == {("llm_decode", "text"): 390.0}
    assert dict(counts.unknown_graphs.items()) == {(): 3.0}
