# SPDX-License-Identifier: Apache-2.0
"""What happened to each request between two snapshots."""

from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage, sample, thread

from hotstage.stages.snapshot import snapshot
from hotstage.stages.snapshot_diff import diff

START = 50 * SECOND


def request(number, *, updated_ns=START):
    made = KernelRequest(number, at_ns=START + number)
    made.row["updated_ns"] = updated_ns
    return made


def between(clock, before, after, threads=()):
    names = {64: "cuStreamSynchronize"}
    return diff(
        snapshot(sample(START + SECOND, requests=before, threads=threads), clock, names),
        snapshot(sample(START + 9 * SECOND, requests=after, threads=threads), clock, names),
        ("a.json", "now"),
    )


def test_every_request_is_in_exactly_one_list(clock):
    still, moved, went, came = (request(n) for n in range(1, 5))
    later = request(2, updated_ns=START + 2 * SECOND)
    found = between(clock, [still, moved, went], [still, later, came])
    assert [[each.id for each in part] for part in (found.came, found.went, found.moved, found.still)] == [
        ["r-4"], ["r-3"], ["r-2"], ["r-1"],
    ]  # fmt: skip
    assert (found.before.name, found.after.name, found.seconds) == ("a.json", "now", 8.0)


def test_a_request_that_moved_tells_it_stage_by_stage(clock):
    def until(steps):
        made = request(1)
        made.begin(Stage.preprocess, START, modality=Modality.image)
        if steps:
            made.end(Stage.preprocess, START + MS)
            made.begin(Stage.vision_encode, START + 2 * MS, modality=Modality.image)
            made.end(Stage.vision_encode, START + 3 * MS)
            made.begin(Stage.llm_decode, START + 4 * MS)
            made.row["output_tokens"], made.row["launches"] = 7, 40
        return made

    (moved,) = between(clock, [until(0)], [until(1)]).moved
    assert [(step.stage, step.modality, step.change) for step in moved.steps] == [
        ("preprocess", "image", "finished"),
        ("vision_encode", "image", "finished"),
        ("llm_decode", "text", "began"),
    ]
    assert (moved.output_tokens, moved.launches) == (7, 40)
    assert [part.stage for part in moved.open] == ["llm_decode"]


def test_a_stage_begun_again_is_told_as_such(clock):
    def spans(count):
        made = request(1)
        for each in range(count):
            made.begin(Stage.llm_decode, START + each * MS)
            if each < count - 1:
                made.end(Stage.llm_decode, START + each * MS + 1)
        return made

    (moved,) = between(clock, [spans(1)], [spans(2)]).moved
    assert [step.change for step in moved.steps] == ["finished", "began_again"]


def test_a_request_that_stands_still_names_the_call_and_for_how_long(clock):
    stuck = request(1, updated_ns=START + SECOND).begin(Stage.vision_encode, START + SECOND)
    worker = thread(7, call=64, since_ns=START + SECOND, stage=Stage.vision_encode)
    worker["request_hash"] = 1
    (still,) = between(clock, [stuck], [stuck], [worker]).still
    assert (still.still_seconds, still.call.call, still.call.tid, still.call_is_of) == (
        8.0,
        "cuStreamSynchronize",
        7,
        "request",
    )
    assert still.call.age_seconds == 8.0
    assert still.last_sign_at_ns == START + SECOND + clock.WALL_OFFSET_NS


def test_launches_without_a_mark_are_a_sign_of_life(clock):
    worker, later = thread(7, stage=Stage.llm_decode), thread(7, stage=Stage.llm_decode, launches=5)
    for row in (worker, later):
        row["request_hash"] = 1
    before, after = (
        snapshot(sample(START + at, requests=[request(1)], threads=[row]), clock, {})
        for at, row in ((0, worker), (SECOND, later))
    )
    found = diff(before, after)
    assert [each.launches for each in found.moved] == [5]
    assert found.still == []


def test_one_id_used_for_two_requests_is_two_requests(clock):
    again = KernelRequest(1, at_ns=START + 5 * SECOND)
    found = between(clock, [request(1)], [again])
    assert (len(found.came), len(found.went)) == (1, 1)


def test_a_wall_clock_that_was_set_in_between_moves_nothing(clock):
    class SetClock(type(clock)):
        WALL_OFFSET_NS = clock.WALL_OFFSET_NS + 3600 * SECOND

    requests = [request(1).begin(Stage.vision_encode, START + MS)]
    before = snapshot(sample(START + SECOND, requests=requests), clock, {})
    after = snapshot(sample(START + 3 * SECOND, requests=requests), SetClock(), {})
    found = diff(before, after)
    assert [each.id for each in found.still] == ["r-1"]
    assert found.seconds == 2.0
