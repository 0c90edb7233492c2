# SPDX-License-Identifier: Apache-2.0
import pytest
from support.pulses import I0, I1, MS, NAMES, SECOND, process, pulse, request
from support.windows import window

from hotstage.breaker.record import BreakerRecord, OverrideAction
from hotstage.breaker.registry import BreakerSet
from hotstage.config.settings import BreakersConfig
from hotstage.detect.finding import Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.stages.stage import Modality, Stage

ENCODE = 1 << Stage.vision_encode
SLOW = window("stage_latency", stage="vision_encode", modality="image")
NAME = "stage:vision_encode:image"


class Host:
    def __init__(self, **config):
        self.set, self.now = BreakerSet(BreakersConfig(**config)), 1000 * SECOND

    def tick(self, *windows, ended=1, stale=frozenset(), instances=(I0, I1)):
        self.now += 100 * MS
        seen = pulse(
            self.now,
            requests_ended=[
                request(n, self.now, stage_mask=ENCODE, modality=Modality.image) for n in range(ended)
            ],
            processes=[process(pid, instance=each) for pid, each in enumerate(instances, 100)],
            stale=stale,
        )
        return self.set.advance(self.now, seen, windows)

    def ticks(self, seconds, *windows, **others):
        return [moved for _ in range(round(seconds * 10)) for moved in self.tick(*windows, **others)]


@pytest.fixture
def host():
    return Host()


def test_there_is_no_breaker_before_a_window_needs_one(host):
    host.ticks(5)
    assert host.set.records == ()


def test_a_window_opens_its_breaker_and_organic_traffic_closes_it_again(host):
    moves = host.ticks(5, SLOW) + host.ticks(20)
    assert [(move.name, move.from_state, move.to_state) for move in moves] == [
        (NAME, "closed", "open"),
        (NAME, "open", "half_open"),
        (NAME, "half_open", "closed"),
    ]
    assert moves[0].window_id == "w1" and not moves[0].enforced


def test_without_traffic_it_stays_half_open(host):
    host.ticks(5, SLOW)
    host.ticks(60, ended=0)
    assert [record.shown for record in host.set.records] == ["half_open"]


def test_lossy_pulses_leave_it_as_it_is_and_stale(host):
    host.ticks(5, SLOW)
    assert host.ticks(60, stale=frozenset({"lost_events_ring"})) == []
    (record,) = host.set.records
    assert (record.shown, record.is_stale) == ("open", True)


def test_a_window_below_the_severity_moves_nothing(host):
    host.ticks(2, window("stage_latency", severity=Severity.info, stage="sample", modality="text"))
    assert host.set.records == ()


def test_never_more_than_half_of_the_instances_are_shed():
    host = Host(enforced=True)
    hangs = [window("alive_but_hung", window_id=f"w{n}", instance=f"i-{n}", pid=n) for n in range(2)]
    host.tick()
    host.ticks(2, *hangs)
    assert sorted(record.shown for record in host.set.records) == ["closed", "open"]


def test_a_dry_run_shows_all_of_them(host):
    hangs = [window("alive_but_hung", window_id=f"w{n}", instance=f"i-{n}", pid=n) for n in range(2)]
    host.ticks(2, *hangs)
    assert [record.shown for record in host.set.records] == ["open", "open"]


def test_the_number_of_breakers_is_bounded():
    host = Host(max_breakers=2)
    many = [window("alive_but_hung", instance=f"x-{n}", pid=n) for n in range(5)]
    host.tick(*many)
    assert len(host.set.records) == 2
    assert host.set.refused == 3


def trip(host, name):
    return host.set.override(
        name, OverrideAction.force_open, ttl_ns=5 * SECOND, actor="uid 0", reason="drill", now_ns=host.now
    )


def test_a_trip_makes_the_breaker_that_no_window_has_named_yet_and_it_closes_after_its_time(host):
    moved = trip(host, "modality:image")
    assert (moved.name, moved.to_state, moved.enforced) == ("modality:image", "forced_open", True)
    assert [(move.to_state, move.enforced) for move in host.ticks(6)] == [("closed", False)]
    assert [record.name for record in host.set.records] == ["modality:image"]


def test_a_window_goes_on_with_the_breaker_that_a_trip_made(host):
    trip(host, NAME)
    host.ticks(3, SLOW)
    (record,) = host.set.records
    assert (record.shown, record.state) == ("forced_open", "open")


def test_a_trip_of_an_unknown_form_is_refused_with_the_forms(host):
    with pytest.raises(ValueError, match="stage:STAGE:MODALITY"):
        trip(host, "vision_encode")
    assert host.set.records == ()


def test_trips_cannot_make_more_breakers_than_there_may_be():
    host = Host(max_breakers=2)
    trip(host, "modality:image")
    trip(host, "modality:video")
    with pytest.raises(ValueError, match="max_breakers"):
        trip(host, "modality:audio")
    assert len(host.set.records) == 2


def test_a_person_overrides_and_resets(host):
    host.ticks(1, SLOW)
    moved = host.set.override(
        NAME, OverrideAction.disable, ttl_ns=60 * SECOND, actor="uid:0", reason="known", now_ns=host.now
    )
    assert (moved.to_state, moved.actor) == ("disabled", "uid:0")
    moved = host.set.reset(NAME, actor="uid:0", now_ns=host.now)
    assert moved.to_state == "open"
    with pytest.raises(KeyError):
        host.set.reset("stage:none", actor="uid:0", now_ns=host.now)


def test_restored_records_are_stale_until_the_first_look(host):
    scope = Entity(EntityKind.instance, instance="i-0")
    host.set.restore([BreakerRecord("instance:i-0", scope, enforced=True)])
    (record,) = host.set.records
    assert record.is_stale and not record.enforced
    host.tick()
    assert not host.set.records[0].is_stale
    assert NAMES.instances[I0] == "i-0"


def test_a_conflict_is_a_hard_fact_at_the_first_look_and_one_of_estimated_tokens_none(host):
    host.tick()
    guess = window("token_conflict", severity=Severity.info, instance="i-1", pid=101)
    (moved,) = host.tick(window("token_conflict", instance="i-0", pid=100), guess)
    assert (moved.name, moved.to_state) == ("instance:i-0", "open")
