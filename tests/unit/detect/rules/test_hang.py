# SPDX-License-Identifier: Apache-2.0
import pytest
from support.pulses import MS, SECOND, process, pulse, request, span

from hotstage.config.settings import DetectConfig
from hotstage.detect.base import Detectors
from hotstage.detect.finding import Severity
from hotstage.probes.catalogue import calls_by_id
from hotstage.stages.stage import NO_STAGE, Modality, Stage

START = 1000 * SECOND
PREFILL = 1 << Stage.llm_prefill
DECODE = 1 << Stage.llm_decode


class Server:
    """One process on the fast tick: each step says what it did since the last one."""

    def __init__(self):
        self.now, self.detectors = START, Detectors(DetectConfig())
        self.waiting, self.over = [], []

    def step(self, *, launches=0, ended=(), seconds=0.1, call=0, **others):
        found = []
        for _ in range(round(seconds * 10)):
            self.now += 100 * MS
            oldest = min((int(r["started_ns"]) for r in self.waiting), default=0)
            found = self.detectors.observe_pulse(
                pulse(
                    self.now,
                    ended=ended,
                    requests_open=self.waiting,
                    open_spans=others.get("open_spans", ()),
                    stale=others.get("stale", frozenset()),
                    processes=[
                        process(
                            launches=launches, open_requests=len(self.waiting), oldest_ns=oldest, tid=77,
                            call=call, since_ns=self.now - SECOND,
                            call_stage=others.get("call_stage", NO_STAGE), call_modality=Modality.image,
                        )
                    ],
                )
            )  # fmt: skip
        hung = [finding for finding in found if finding.kind == "alive_but_hung"]
        self.over += [finding for finding in hung if finding.is_over]
        return [finding for finding in hung if not finding.is_over]

    def work(self, seconds=10.0):
        """A busy server: launches and stages that end, all the time."""
        self.waiting = [request(1, self.now, open_mask=DECODE)]
        for tick in range(round(seconds * 10)):
            self.waiting[0]["updated_ns"] = self.now
            ends = [
                span(Stage.llm_prefill, Modality.text, self.now - 50 * MS, 50 * MS, tokens=500, request=tick)
            ]
            assert self.step(launches=20, ended=ends) == []
        return self


@pytest.fixture
def server():
    return Server().work()


def test_a_busy_process_that_stands_still_is_hung_after_five_seconds(server):
    assert server.step(seconds=4.8) == []
    (finding,) = server.step(seconds=0.3, call=33)
    assert finding.severity is Severity.critical
    assert (finding.entity.instance, finding.entity.pid) == ("i-0", 100)


def test_the_evidence_names_the_call_that_a_thread_sits_in(server):
    waits = next(call_id for call_id, call in calls_by_id().items() if call.name == "cuEventSynchronize")
    (finding,) = server.step(seconds=6, call=waits)
    columns = {item.column: item for item in finding.evidence}
    assert columns["progress_silence_seconds"].value == pytest.approx(6.0)
    assert columns["progress_silence_seconds"].limit == pytest.approx(5.0)
    assert columns["call_age_seconds"].value == pytest.approx(1.0)
    assert "thread 77 has been in cuEventSynchronize for 1.0 s" in finding.summary


def test_the_stage_of_the_oldest_request_is_named(server):
    server.waiting = [request(5, server.now, open_mask=DECODE)]
    stuck = span(Stage.llm_decode, Modality.video, server.now, 0, request=5, is_open=True)
    (finding,) = server.step(seconds=6, open_spans=[stuck])
    assert (finding.entity.stage, finding.entity.modality) == ("llm_decode", "video")


@pytest.mark.parametrize(
    ("call", "call_stage", "place"),
    [
        (33, Stage.llm_prefill, ("llm_prefill", "image")),
        (33, NO_STAGE, ("llm_decode", "video")),
        (0, Stage.llm_prefill, ("llm_decode", "video")),
    ],
)
def test_the_place_is_where_the_thread_is_stuck_and_else_where_the_oldest_request_is(
    server, call, call_stage, place
):
    server.waiting = [request(5, server.now, open_mask=DECODE)]
    stuck = span(Stage.llm_decode, Modality.video, server.now, 0, request=5, is_open=True)
    (finding,) = server.step(seconds=6, open_spans=[stuck], call=call, call_stage=call_stage)
    assert (finding.entity.stage, finding.entity.modality) == place
    oldest = next(item for item in finding.evidence if item.column == "oldest_age_seconds")
    assert oldest.note == "oldest request, in llm_decode"


def test_it_is_over_when_something_comes_out_again(server):
    assert server.step(seconds=7)
    assert server.step(launches=1), "a launch alone may only be the next thread that gets stuck"
    end = span(Stage.llm_prefill, Modality.text, server.now, 9 * SECOND, tokens=500)
    assert server.step(launches=1, ended=[end]) == []


def test_threads_that_still_run_into_the_wall_do_not_hide_it(server):
    assert server.step(seconds=4.8, launches=6) == []
    (finding,) = server.step(seconds=0.3, launches=6)
    assert "hardly a launch" in finding.summary


def test_an_idle_process_is_not_hung(server):
    server.waiting = []
    assert server.step(seconds=60) == []


def test_traffic_that_comes_back_after_idle_counts_from_its_own_begin(server):
    server.waiting = []
    server.step(seconds=60)
    server.waiting = [request(9, server.now, open_mask=PREFILL)]
    assert server.step(seconds=4.5) == []
    assert server.step(seconds=1.0)


def test_longer_pauses_that_ended_by_themselves_give_more_patience(server):
    server.step(seconds=3)
    server.work(seconds=2)
    assert server.step(seconds=8.5) == []
    assert server.step(seconds=1.0)


def test_a_long_prefill_is_explained_by_its_size(server):
    server.waiting = [request(9, server.now, open_mask=PREFILL)]
    huge = span(Stage.llm_prefill, Modality.text, server.now, 0, tokens=8000, request=9, is_open=True)
    assert server.step(seconds=8, open_spans=[huge]) == []


def test_a_request_in_a_stage_of_the_cpu_does_not_wait_for_the_gpu(server):
    server.waiting = [request(9, server.now, open_mask=1 << Stage.media_decode)]
    assert server.step(seconds=20) == []


def test_a_model_being_loaded_is_not_a_hang(server):
    server.waiting = [request(9, server.now, open_mask=1 << Stage.model_load)]
    assert server.step(seconds=300) == []


def test_a_process_that_never_got_anything_out_is_starting_up():
    server = Server()
    server.waiting = [request(1, server.now, open_mask=PREFILL)]
    assert server.step(seconds=100) == []
    assert server.step(seconds=30)


def test_a_request_that_its_server_forgot_is_no_demand(server):
    forgotten = request(9, server.now)
    for _ in range(70):
        server.work(seconds=1)
        server.waiting.append(forgotten)
    server.waiting = [forgotten]
    assert server.step(seconds=120) == []


def test_lost_telemetry_is_no_silence(server):
    assert server.step(seconds=20, stale=frozenset({"lost_threads"})) == []
    assert server.step(seconds=4.5) == []
    assert server.step(seconds=1.0)


def test_launches_that_bring_nothing_out_are_a_hang_too(server):
    server.waiting = [request(9, server.now, open_mask=PREFILL)]
    spinning = span(Stage.llm_prefill, Modality.text, server.now, 0, tokens=500, request=9, is_open=True)
    assert server.step(seconds=9.5, launches=500, open_spans=[spinning]) == []
    (finding,) = server.step(seconds=1.0, launches=500, open_spans=[spinning])
    assert "no token" in finding.summary


def test_what_closes_tells_the_worst_of_it_and_its_whole_length(server):
    """Requests give up while it lasts, and the thread that waited longest comes back: both go down again."""
    waits = next(call_id for call_id, call in calls_by_id().items() if call.name == "cuEventSynchronize")
    began = server.now
    server.waiting = [request(number, began, open_mask=DECODE) for number in range(7)]
    assert server.step(seconds=20, call=waits)
    server.waiting = server.waiting[:2]
    (last,) = server.step(seconds=10)
    assert last.summary.count("with 2 requests in flight") == 1
    server.step(launches=20, ended=[span(Stage.llm_decode, Modality.text, began, 30 * SECOND)])
    (told,) = server.over
    assert told.summary == (
        "i-0 (pid 100) was hung for 30.1 s: no launch, no stage end and no token for up to 30.0 s, with up "
        "to 7 requests in flight; thread 77 in cuEventSynchronize for 1.0 s; then it went on"
    )
    columns = {item.column: item for item in told.evidence}
    assert columns["progress_silence_seconds"].value == pytest.approx(30.0)
    assert columns["progress_silence_seconds"].note.endswith("at its highest, 30.0 s after the hang began")
    assert columns["inflight"].value == 7.0
    assert columns["inflight"].note == ("requests in flight; at its highest, 20.0 s after the hang began")
    assert columns["call_age_seconds"].value == pytest.approx(1.0)
    assert (told.since_ns, told.at_ns) == (began, server.now)
    server.step(seconds=10)
    assert len(server.over) == 1, "it is told once"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"waiting": ()}, "then no request waited for its GPU any more"),
        ({"stale": frozenset({"gap"})}, "what it did then was not seen"),
    ],
)
def test_how_a_hang_ended_is_told_as_far_as_it_was_seen(server, what, words):
    assert server.step(seconds=8)
    server.waiting = list(what.get("waiting", server.waiting))
    assert server.step(stale=what.get("stale", frozenset())) == []
    assert server.over[-1].summary.endswith(words)


def test_what_is_hung_again_at_once_had_a_break(server):
    """Its threads run into the wall once more, all of them: then only what does not come out speaks."""
    assert server.step(seconds=8.5)
    assert server.step(seconds=0.2, launches=500) == []
    assert server.over[0].summary.startswith("i-0 (pid 100) was hung for 8.7 s: hardly a launch")
    assert server.over[0].summary.endswith("then it launched again, and nothing has come out yet")
    assert server.step(seconds=21)
    server.step(launches=1, ended=[span(Stage.llm_prefill, Modality.text, server.now, SECOND, tokens=500)])
    assert "was hung for 29.8 s, with 1 short break:" in server.over[-1].summary
    assert len(server.over) == 2
