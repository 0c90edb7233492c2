# SPDX-License-Identifier: Apache-2.0
import json

from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage, sample, thread

from hotstage.stages.snapshot import snapshot

START = 50 * SECOND


def test_a_request_is_shown_with_its_open_and_finished_stages(clock):
    request = KernelRequest(9, at_ns=START, endpoint="/v1/vision")
    request.begin(Stage.preprocess, START, modality=Modality.image).end(Stage.preprocess, START + MS)
    request.begin(Stage.vision_encode, START + 2 * MS, modality=Modality.image, tokens=690)
    body = snapshot(sample(START + 102 * MS, requests=[request], unclean=1), clock, {})
    (shown,) = body["requests"]
    assert (shown["id"], shown["endpoint"], shown["instance"], shown["pid"]) == (
        "r-9",
        "/v1/vision",
        "i-0",
        100,
    )
    assert shown["stages_done"] == ["preprocess"] and shown["stage_mask"] == 1 << Stage.preprocess
    (open_stage,) = shown["open"]
    assert (open_stage["stage"], open_stage["modality"]) == ("vision_encode", "image")
    assert open_stage["age_seconds"] == 0.1
    assert open_stage["since_ns"] == START + 2 * MS + clock.WALL_OFFSET_NS
    assert shown["tokens"] == {"image": 690}
    assert shown["started_at_ns"] == START + clock.WALL_OFFSET_NS and shown["started_at"].endswith("Z")
    assert body["unclean"] == 1
    json.dumps(body, allow_nan=False)


def test_threads_are_shown_only_in_a_call_or_stage_longest_first(clock):
    threads = [
        thread(1),
        thread(2, call=31, since_ns=START - 3 * SECOND, stage=Stage.llm_decode),
        thread(3, call=999, since_ns=START - 9 * SECOND),
    ]
    shown = snapshot(sample(START, threads=threads), clock, {31: "cuEventSynchronize"})["threads"]
    assert [(each["tid"], each["call"], each["age_seconds"]) for each in shown] == [
        (3, "call_999", 9.0),
        (2, "cuEventSynchronize", 3.0),
    ]
    assert shown[0]["stage"] is None and shown[1]["stage"] == "llm_decode"


def test_a_flood_is_cut_and_counted(clock):
    requests = [KernelRequest(n, at_ns=START + n) for n in range(1, 2103)]
    body = snapshot(sample(START + SECOND, requests=requests), clock, {})
    assert (len(body["requests"]), body["requests_total"]) == (2000, 2102)
    assert body["requests"][0]["id"] == "r-1"
