# SPDX-License-Identifier: Apache-2.0
"""What a snapshot shows of the kernel's rows, and what it leaves unknown."""

import json

import msgspec
import numpy as np
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage, sample, thread

from hotstage.stages.places import Places
from hotstage.stages.snapshot import snapshot
from hotstage.stages.snapshot_types import Snapshot

START = 50 * SECOND
NAMES = {31: "cuEventSynchronize"}


def working(tid, number, *, stage=Stage.vision_encode, **changes):
    """A thread in a stage of request `number`."""
    row = thread(tid, stage=stage, call=changes.pop("call", 0), since_ns=changes.pop("since_ns", 0))
    row["request_hash"] = number
    row["device"] = 255
    for name, value in changes.items():
        row[name] = value
    return row


def test_a_request_is_shown_with_its_open_and_finished_stages(clock):
    request = KernelRequest(9, at_ns=START, endpoint="/v1/vision")
    request.begin(Stage.preprocess, START, modality=Modality.image).end(Stage.preprocess, START + MS)
    request.begin(Stage.vision_encode, START + 2 * MS, modality=Modality.image, tokens=690)
    taken = snapshot(sample(START + 102 * MS, requests=[request], unclean=1), clock, {})
    (shown,) = taken.requests
    assert (shown.id, shown.endpoint, shown.instance, shown.pid) == ("r-9", "/v1/vision", "i-0", 100)
    assert shown.stages_done == ["preprocess"]
    assert shown.stage_mask == 1 << Stage.preprocess
    assert [(part.stage, part.seconds, part.tokens) for part in shown.stages] == [("preprocess", 1e-3, None)]
    (open_stage,) = shown.open
    assert (open_stage.stage, open_stage.modality) == ("vision_encode", "image")
    assert (open_stage.age_seconds, open_stage.tokens) == (0.1, 690)
    assert open_stage.since_ns == START + 2 * MS + clock.WALL_OFFSET_NS
    assert shown.tokens == {"image": 690}
    assert shown.started_at_ns == START + clock.WALL_OFFSET_NS
    assert shown.started_at == "2023-11-14T22:14:10.000Z"
    assert (taken.unclean, taken.taken_at_ns) == (1, START + 102 * MS + clock.WALL_OFFSET_NS)
    body = msgspec.json.encode(taken)
    assert msgspec.json.decode(body, type=Snapshot) == taken
    json.loads(body)


def test_threads_are_shown_only_in_a_call_or_stage_longest_first(clock):
    threads = [
        thread(1),
        thread(2, call=31, since_ns=START - 3 * SECOND, stage=Stage.llm_decode),
        thread(3, call=999, since_ns=START - 9 * SECOND),
    ]
    shown = snapshot(sample(START, threads=threads), clock, NAMES).threads
    assert [(each.tid, each.call, each.age_seconds) for each in shown] == [
        (3, "call_999", 9.0),
        (2, "cuEventSynchronize", 3.0),
    ]
    assert shown[0].stage is None
    assert shown[1].stage == "llm_decode"


def test_a_request_names_the_call_that_its_thread_sits_in_and_since_when(clock):
    requests = [KernelRequest(n, at_ns=START + n) for n in (1, 2)]
    threads = [working(7, 2, call=31, since_ns=START + MS), working(8, 1, stage_since_ns=START)]
    first, second = snapshot(
        sample(START + SECOND, requests=requests, threads=threads), clock, NAMES
    ).requests
    assert [(each.tid, each.call) for each in first.threads] == [(8, None)]
    (inside,) = second.threads
    assert (inside.tid, inside.call, inside.age_seconds) == (7, "cuEventSynchronize", 0.999)
    assert inside.since_ns == START + MS + clock.WALL_OFFSET_NS
    assert inside.request_key == second.key
    assert first.key != second.key


def test_one_id_in_two_cgroups_is_told_apart_by_the_process_or_not_at_all(clock):
    requests = [KernelRequest(5, at_ns=START, cgroup=c, pid=pid) for c, pid in ((1, 100), (2, 200))]
    threads = [working(7, 5, tgid=200), working(8, 5, tgid=300)]
    by_pid = {
        each.pid: each
        for each in snapshot(sample(START, requests=requests, threads=threads), clock, {}).requests
    }
    assert [each.tid for each in by_pid[200].threads] == [7]
    assert by_pid[100].threads == []


def test_a_request_that_no_thread_names_is_given_the_threads_of_its_stage_as_such(clock):
    requests = [
        KernelRequest(n, at_ns=START, pid=pid).begin(Stage.llm_decode, START)
        for n, pid in ((1, 100), (2, 200))
    ]
    batch = [thread(n, pid=100, call=31, since_ns=START - n, stage=Stage.llm_decode) for n in range(1, 9)]
    first, second = snapshot(sample(START, requests=requests, threads=batch), clock, NAMES).requests
    assert first.threads == []
    assert [each.tid for each in first.stage_threads] == [8, 7, 6, 5]
    assert second.stage_threads == []


def test_work_that_nobody_counted_is_unknown_and_work_under_way_is_counted(clock):
    requests = [KernelRequest(n, at_ns=START + n) for n in (1, 2)]
    requests[1].row["launches"], requests[1].row["bytes"] = 10, 4096
    threads = [working(7, 2, launch_total=25, flushed_launch_total=20, bytes_total=100)]
    unknown, known = snapshot(sample(START + SECOND, requests=requests, threads=threads), clock, {}).requests
    assert (unknown.launches, unknown.bytes, unknown.errors) == (None, None, None)
    assert (known.launches, known.bytes, known.errors) == (15, 4196, 0)
    assert (unknown.devices, unknown.contexts, unknown.cuda_stream) == (None, None, None)
    assert (unknown.input_digest, unknown.traceparent, unknown.model_id) == (None, None, None)


def test_devices_come_from_the_thread_then_the_stream_then_the_process(clock):
    requests = [KernelRequest(n, at_ns=START + n, pid=100 + n // 3) for n in (1, 2, 3)]
    requests[1].row["cuda_stream"] = 0x5550
    threads = [
        working(7, 1, device=1, stream=0x7770),
        working(8, 0, device=0, stream=0x5550, stage=Stage.llm_decode),
    ]
    places = Places(
        {(100, 0xA0): 0, (100, 0xA1): 1, (101, 0xB0): 3}, {(100, 1): "GPU-one", (101, 3): "GPU-three"}
    )
    taken = snapshot(sample(START, requests=requests, threads=threads), clock, {}, places)
    shown = [
        ([(d.ordinal, d.uuid, d.source) for d in each.devices], [c.context for c in each.contexts])
        for each in taken.requests
    ]
    assert shown == [
        ([(1, "GPU-one", "thread")], [0xA1]),
        ([(0, None, "stream")], [0xA0]),
        ([(3, "GPU-three", "process")], [0xB0]),
    ]


def test_a_process_on_two_devices_tells_nothing_of_a_requests_device(clock):
    places = Places({(100, 0xA0): 0, (100, 0xA1): 1}, {})
    (shown,) = snapshot(sample(START, requests=[KernelRequest(1, at_ns=START)]), clock, {}, places).requests
    assert (shown.devices, shown.contexts) == (None, None)


def test_each_modality_has_its_first_and_last_mark(clock):
    request = KernelRequest(1, at_ns=START)
    request.begin(Stage.preprocess, START + MS, modality=Modality.image, tokens=5)
    request.end(Stage.preprocess, START + 2 * MS)
    for at_ns in (START + 3 * MS, START + 5 * MS):
        request.begin(Stage.llm_decode, at_ns).end(Stage.llm_decode, at_ns + MS)
    last_ns = START + 6 * MS
    text, image = snapshot(sample(START + SECOND, requests=[request]), clock, {}).requests[0].modalities
    assert (text.modality, text.last_stage, text.tokens) == ("text", "llm_decode", None)
    assert 0 <= START + 3 * MS + clock.WALL_OFFSET_NS - text.first_at_ns < 256
    assert 0 <= last_ns + clock.WALL_OFFSET_NS - text.last_at_ns < 256
    assert (image.modality, image.last_stage, image.tokens) == ("image", "preprocess", 5)
    assert 0 <= START + MS + clock.WALL_OFFSET_NS - image.first_at_ns < 256


def test_a_hostile_name_is_cleaned_and_spoils_no_other(clock):
    requests = [KernelRequest(n, at_ns=START + n) for n in (1, 2)]
    requests[0].row["id"], requests[0].row["endpoint"] = b"a\x1b[31m\xff\x00b", b""
    first, second = snapshot(sample(START, requests=requests), clock, {}).requests
    assert (first.id, first.endpoint) == ("a_[31m_", None)
    assert second.id == "r-2"


def test_a_flood_is_cut_and_counted(clock):
    rows = np.repeat(KernelRequest(1, at_ns=START).row.reshape(1), 8300)
    rows["started_ns"] = START + np.arange(8300)
    taken = snapshot(sample(START + SECOND, requests=list(rows)), clock, {})
    assert (len(taken.requests), taken.requests_total) == (8192, 8300)
    assert taken.requests[0].started_at_ns == START + clock.WALL_OFFSET_NS


def test_losses_that_may_hide_a_request_stand_beside_it(clock):
    losses = {"lost_requests": 3, "lost_threads": 0, "lost_histograms": 9}
    assert snapshot(sample(START, losses=losses), clock, {}).losses == {"lost_requests": 3}
