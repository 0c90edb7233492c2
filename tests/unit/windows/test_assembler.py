# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from hotstage.config.settings import WindowsConfig
from hotstage.detect.finding import Evidence, Finding, Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.request_costs import Penalties
from hotstage.windows.assembler import Assembler

SECOND = 1_000_000_000
NO_PENALTIES = Penalties()


def latency(stage="vision_encode", modality="image", instance=None, *, since=0.0, score=4.0, at=0.0):
    entity = Entity(EntityKind.stage, stage=stage, modality=modality, instance=instance)
    return finding("stage_latency", entity, since, score)


def hang(instance="i-0", pid=100, *, since=0.0):
    entity = Entity(EntityKind.instance, instance=instance, pid=pid, stage="llm_decode", modality="text")
    return finding("alive_but_hung", entity, since, 1.1, Severity.critical)


def xid(*, since=0.0):
    return finding(
        "gpu_xid", Entity(EntityKind.gpu, gpu_uuid="GPU-1"), since, 2.0, Severity.critical, hard=True
    )


def finding(kind, entity, since=0.0, score=1.0, severity=Severity.warning, hard=False):
    return Finding(
        detector=kind,
        kind=kind,
        entity=entity,
        since_ns=round(since * SECOND),
        at_ns=0,
        score=score,
        limit=1.0,
        summary=f"{kind} of {entity}",
        severity=severity,
        evidence=(Evidence("c", score),),
        is_hard=hard,
    )


class Desk:
    def __init__(self, **config):
        self.ids = 0
        self.assembler = Assembler(WindowsConfig(**config), self.new_id)

    def new_id(self, opened_ns):
        self.ids += 1
        return f"w{self.ids}"

    def at(self, seconds, *findings, stale=False, penalties=NO_PENALTIES, gpu=None):
        at_ns = round(seconds * SECOND)
        return self.assembler.advance(
            at_ns, findings, is_stale=stale, penalties=penalties, gpu_of=lambda entity: gpu
        )


@pytest.fixture
def desk():
    return Desk()


def test_a_finding_opens_a_window_at_once_and_it_closes_three_seconds_after_the_last(desk):
    (window,) = desk.at(10, latency(since=9.0)).opened
    assert (window.kind, window.entity.stage, window.opened_ns, window.is_open) == (
        "stage_latency",
        "vision_encode",
        10 * SECOND,
        True,
    )
    desk.at(11, latency())
    assert desk.at(13.9).closed == ()
    (closed,) = desk.at(14).closed
    assert (closed.id, closed.closed_ns, closed.is_open) == (window.id, 14 * SECOND, False)
    assert desk.at(15).open == ()


def test_a_gap_shorter_than_that_is_the_same_window(desk):
    (first,) = desk.at(0, latency()).opened
    desk.at(2)
    assert desk.at(2.9, latency()).opened == ()
    assert [window.id for window in desk.at(3, latency()).open] == [first.id]


def test_an_instance_that_becomes_known_refines_the_window(desk):
    desk.at(0, latency())
    update = desk.at(0.1, latency(instance="i-1"))
    assert [window.entity.instance for window in update.updated] == ["i-1"]
    assert len(desk.at(0.2, latency()).open) == 1


def test_a_stage_that_is_dragged_along_is_a_candidate_not_a_window(desk):
    desk.at(0, latency(score=4.0))
    update = desk.at(2, latency(score=4.0), latency("llm_prefill", "image", since=1.5, score=1.2))
    assert update.opened == ()
    (window,) = desk.at(
        3.5, latency(score=4.0), latency("llm_prefill", "image", since=1.5, score=1.2)
    ).updated
    assert window.kind == "stage_latency" and window.entity.stage == "vision_encode"
    assert [each.entity.stage for each in window.cause.candidates] == ["vision_encode", "llm_prefill"]
    assert window.cause.candidates[0].confidence > window.cause.candidates[1].confidence


def test_the_stronger_stage_takes_the_window_of_the_one_it_dragged(desk):
    desk.at(0, latency("cross_modal_align", "image", score=1.2))
    update = desk.at(0.5, latency("cross_modal_align", "image", score=1.2), latency(since=0.2, score=4.0))
    (window,) = update.open
    assert window.entity.stage == "vision_encode"


def test_two_equal_faults_are_two_windows(desk):
    update = desk.at(0, latency(score=3.0), latency("audio_encode", "audio", score=3.2))
    assert len(update.opened) == 2


def test_one_stage_slow_for_all_inputs_is_one_window(desk):
    update = desk.at(0, *(latency("tokenize", modality, score=2.0) for modality in ("text", "image")))
    assert len(update.opened) == 1


def test_another_instance_is_another_story(desk):
    update = desk.at(0, latency(instance="i-0", score=4.0), latency("llm_prefill", "image", "i-1", score=1.2))
    assert len(update.opened) == 2


def test_what_comes_much_later_is_another_story(desk):
    for tick in range(20):
        desk.at(tick, latency(score=4.0))
    assert (
        len(desk.at(20, latency(score=4.0), latency("llm_prefill", "image", since=19.5, score=1.2)).opened)
        == 1
    )


def test_a_hang_takes_the_window_of_the_slow_stage_on_its_instance(desk):
    desk.at(0, latency(instance="i-0"))
    (window,) = desk.at(4, latency(instance="i-0"), hang(since=-1.0)).open
    assert (window.kind, window.entity.pid, window.severity) == ("alive_but_hung", 100, Severity.critical)


def test_an_xid_does_not_swallow_an_unrelated_slow_stage(desk):
    assert len(desk.at(0, xid(), latency()).opened) == 2


def test_two_hung_instances_are_two_windows(desk):
    assert len(desk.at(0, hang(), hang("i-1", 101)).opened) == 2


def test_stale_telemetry_neither_opens_nor_closes(desk):
    assert desk.at(0, latency(), stale=True).opened == ()
    desk.at(1, latency())
    assert desk.at(60, stale=True).closed == ()
    assert len(desk.at(60.1).closed) == 1


def test_a_hard_fact_opens_even_then(desk):
    assert len(desk.at(0, xid(), stale=True).opened) == 1


def test_a_window_is_told_again_once_a_second_and_at_once_when_it_gets_worse(desk):
    desk.at(0, latency())
    assert sum(len(desk.at(tick / 10, latency()).updated) for tick in range(1, 31)) == 3
    worse = finding("stage_latency", latency().entity, severity=Severity.critical)
    assert len(desk.at(3.1, worse).updated) == 1


def test_the_peak_is_kept(desk):
    desk.at(0, latency(score=2.0))
    desk.at(1, latency(score=5.0))
    (closed,) = [*desk.at(2, latency(score=3.0)).closed, *desk.at(6).closed]
    assert (closed.score, closed.peak_ns) == (5.0, SECOND)


def test_there_are_never_too_many_open():
    desk = Desk(max_open=3)
    rules = [finding("rule", Entity(EntityKind.endpoint, endpoint=f"/{n}")) for n in range(11)]
    assert len(desk.at(0, *rules).open) == 3
    assert desk.assembler.refused == 8


def test_candidates_that_are_nearly_equal_are_ranked_by_what_they_cost_users(desk):
    first = latency("vision_encode", "image", score=8.0)
    near = latency("llm_prefill", "audio", score=4.1)
    costly = latency("video_encode", "video", score=4.0)

    def ranked(**told):
        window = desk.at(0, first, near, costly, **told)
        (shown,) = window.opened or window.updated or window.open
        return [each.entity.modality for each in shown.cause.candidates]

    assert ranked() == ["image", "audio", "video"]
    desk.assembler = Assembler(WindowsConfig(), desk.new_id)
    assert ranked(penalties=Penalties(by_modality={"video": 1.0})) == ["image", "video", "audio"]


def test_what_begins_after_the_cause_has_ended_is_a_story_of_its_own(desk):
    """It would be taken as a consequence by its place, score and time, had it begun while the first fired."""
    encoder = latency(since=9.0, score=5.0)
    (first,) = desk.at(10, encoder).opened
    desk.at(11, encoder)
    later = latency("cross_modal_align", "video", since=12.0, score=2.0)
    (second,) = desk.at(12.5, later).opened
    assert (second.entity.stage, second.id) == ("cross_modal_align", "w2")
    (closed,) = desk.at(14, later).closed
    assert closed.id == first.id


def test_a_consequence_may_show_late_and_linger_and_what_goes_on_gets_a_window(desk):
    encoder = latency(since=9.0, score=5.0)
    desk.at(10, encoder)
    dragged = latency("cross_modal_align", "video", since=9.5, score=2.0)
    assert desk.at(12, dragged).opened == (), "it began while the encoder was slow"
    for seconds in range(13, 33):
        assert desk.at(seconds, dragged).closed == (), seconds
    (closed,) = desk.at(33, dragged).closed
    assert (closed.id, closed.entity.stage) == ("w1", "vision_encode")
    (own,) = desk.at(33.1, dragged).opened
    assert own.entity.stage == "cross_modal_align"


def test_figures_of_another_moment_than_the_causes_say_so(desk):
    slow = latency(instance="i-0", since=0.0)
    desk.at(1, hang(), replace(slow, at_ns=SECOND))
    (window,) = desk.at(6, replace(hang(), at_ns=6 * SECOND)).updated
    assert [item.note for item in window.evidence] == ["", "as of 5.0 s before the cause's figures"]


def over(found, summary):
    return replace(found, is_over=True, summary=summary)


def test_the_last_word_on_a_finding_is_told_at_once_and_closes_the_record(desk):
    desk.at(10, hang())
    (told,) = desk.at(10.1, over(hang(), "it was hung for 6 s")).updated
    assert (told.is_open, told.cause.summary) == (True, "it was hung for 6 s")
    assert desk.at(12.9).closed == (), "and keeps nothing open"
    (closed,) = desk.at(13).closed
    assert (closed.closed_ns, closed.updated_ns) == (13 * SECOND, 10 * SECOND)
    assert closed.cause.summary == "it was hung for 6 s"


def test_a_last_word_opens_nothing(desk):
    assert desk.at(0, over(hang(), "it was hung")).open == ()


def test_what_fires_again_takes_the_place_of_the_last_word(desk):
    desk.at(10, hang())
    desk.at(10.1, over(hang(), "it was hung for 6 s"))
    again = replace(hang(), summary="it is hung again")
    desk.at(11.2, again)
    (window,) = desk.at(12.3, again).open
    assert window.cause.summary == "it is hung again"


def test_the_window_of_what_an_xid_explains_names_its_window(desk):
    broken = replace(xid(), evidence=(Evidence("xid", 79.0),))
    (of_gpu,) = desk.at(0, broken).opened
    (of_server,) = desk.at(6, broken, hang(since=1.0), gpu="GPU-1").opened
    assert (of_gpu.caused_by, of_server.caused_by) == (None, of_gpu.id)
    for second in range(7, 11):
        desk.at(second, broken, gpu="GPU-1")
    assert [window.id for window in desk.at(11, broken).open] == [of_gpu.id], "it ends by itself"


def test_a_hang_that_was_there_before_its_xid_was_told_is_linked_then(desk):
    broken = replace(xid(since=8.0), evidence=(Evidence("xid", 119.0),))
    (hung,) = desk.at(6, hang(since=0.5), gpu="GPU-1").opened
    assert hung.caused_by is None
    update = desk.at(8, broken, hang(since=0.5), gpu="GPU-1")
    assert [window.caused_by for window in update.updated] == [update.opened[0].id]


def test_a_server_of_another_gpu_or_of_none_that_is_known_is_not_linked(desk):
    broken = replace(xid(), evidence=(Evidence("xid", 79.0),))
    for gpu in ("GPU-2", None):
        assert {window.caused_by for window in desk.at(1, broken, hang(), gpu=gpu).open} == {None}
