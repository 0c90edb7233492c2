# SPDX-License-Identifier: Apache-2.0
"""One destination's deliveries: what an answer leads to, and in which order things go out."""

from __future__ import annotations

import threading
import time

import pytest
from support.receivers import RawReceiver, Reply

from hotstage.clock import SystemClock
from hotstage.notify import delivery as module
from hotstage.notify.delivery import RetryPolicy, Worker
from hotstage.notify.formats.context import Context
from hotstage.notify.post import Limits, Poster
from hotstage.notify.replay import Selection, replay

POLICY = RetryPolicy(base_seconds=0.02, max_seconds=0.1, give_up_after_seconds=60)
QUICK = Limits(0.5, 0.5)


def test_delays_grow_with_full_jitter_up_to_the_cap():
    policy = RetryPolicy(5.0, 21_600.0, 259_200.0)
    ceilings = [policy.delay_seconds(n, None, lambda: 1.0) for n in range(9)]
    assert ceilings == [5.0, 30.0, 120.0, 600.0, 1_800.0, 7_200.0, 21_600.0, 21_600.0, 21_600.0]
    assert policy.delay_seconds(3, None, lambda: 0.25) == 150.0
    assert policy.delay_seconds(0, 90.0, lambda: 1.0) == 90.0
    assert policy.delay_seconds(0, 1e9, lambda: 1.0) == 21_600.0


class SteppedClock(SystemClock):
    """The machine's clocks, the wall one as someone has set it."""

    step_ns = 0

    def wall_ns(self):
        return super().wall_ns() + self.step_ns


@pytest.fixture
def clock():
    return SteppedClock()


@pytest.fixture
def work(box, target, clock):
    """`work(receiver)` → a Worker not started, its target registered; `work.box` to fill."""
    workers = []

    def build(receiver, policy=POLICY, **options):
        box.register({"a": "x"})
        worker = Worker(
            target(receiver.port), box, Poster(QUICK), policy, clock, Context("host-1"), **options
        )
        workers.append(worker)
        return worker

    build.box = box
    yield build
    for worker in workers:
        worker.stop()
        if worker._thread.ident is not None:
            worker.join(5)


def fill(box, *events):
    box.hold("store", events, [["a"]] * len(events), time.time_ns())


def wait_until(condition, what, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.005)


def test_events_go_out_in_order_with_their_own_ids(work, receive, held):
    receiver = receive()
    worker = work(receiver)
    fill(work.box, *(held(n) for n in range(1, 6)))
    while worker.deliver_next():
        pass
    assert [d.id for d in receiver.deliveries] == [f"evt_{n}" for n in range(1, 6)]
    assert work.box.counts(["a"])[0].delivered == 5


def test_a_retry_carries_the_same_id_and_later_events_of_the_subject_wait(work, receive, held):
    receiver = receive(answer=lambda delivery, before: 500 if before < 2 else 200)
    worker = work(receiver)
    fill(work.box, held(1), held(2))
    worker.start()
    wait_until(lambda: work.box.counts(["a"])[0].delivered == 2, "both deliveries")
    assert [d.id for d in receiver.deliveries] == ["evt_1", "evt_1", "evt_1", "evt_2"]
    assert all(d.verified for d in receiver.deliveries)
    assert work.box.counts(["a"])[0].failed == 2


def test_another_subject_does_not_wait_for_a_failing_one(work, receive, held):
    receiver = receive(answer=lambda delivery, before: 503 if delivery.subject == "bad" else 200)
    slow = RetryPolicy(base_seconds=100, max_seconds=100, give_up_after_seconds=1e6)
    worker = work(receiver, slow)
    fill(work.box, held(1, subject="bad"), held(2, subject="bad"), held(3, subject="good"))
    while worker.deliver_next():
        pass
    assert [d.id for d in receiver.deliveries] == ["evt_1", "evt_3"]


def test_a_receiver_that_asks_for_a_pause_gets_it_from_all_subjects(work, held):
    with RawReceiver(lambda request, before: Reply(429, {"Retry-After": "30"})) as receiver:
        worker = work(receiver, RetryPolicy(base_seconds=0.01, max_seconds=60, give_up_after_seconds=1e6))
        fill(work.box, held(1, subject="x"), held(2, subject="y"))
        assert worker.deliver_next()
        assert not worker.deliver_next()
        assert len(receiver.requests) == 1


def test_attempts_are_timed_whatever_becomes_of_them(work, receive, held):
    receiver = receive(answer=lambda delivery, before: 500 if before == 0 else 200)
    worker = work(receiver, RetryPolicy(0.001, 0.001, 60))
    fill(work.box, held(1))
    worker.start()
    wait_until(lambda: work.box.counts(["a"])[0].delivered == 1, "the delivery")
    per_bucket, seconds = worker.durations.total()
    assert sum(per_bucket) == 2
    assert 0 < seconds < 5


def test_410_ends_a_destination_and_a_replay_brings_it_back(work, receive, held):
    answers = [410]
    receiver = receive(answer=lambda delivery, before: answers[0])
    worker = work(receiver)
    fill(work.box, held(1), held(2))
    while worker.deliver_next():
        pass
    assert len(receiver.deliveries) == 1
    assert work.box.counts(["a"])[0].dead == 2
    answers[0] = 200
    replay(work.box.database, ["a"], Selection("dead"), time.time_ns())
    while worker.deliver_next():
        pass
    assert [d.id for d in receiver.deliveries] == ["evt_1", "evt_1", "evt_2"]


def test_a_refused_event_is_dead_and_the_next_one_goes_out(work, receive, held):
    receiver = receive(answer=lambda delivery, before: 400 if before == 0 else 200)
    worker = work(receiver)
    fill(work.box, held(1), held(2))
    while worker.deliver_next():
        pass
    counts = work.box.counts(["a"])[0]
    assert (counts.dead, counts.delivered) == (1, 1)


def test_an_event_is_given_up_after_its_time(work, receive, held):
    receiver = receive(answer=lambda delivery, before: 500)
    worker = work(receiver, RetryPolicy(10, 10, give_up_after_seconds=1e-9))
    fill(work.box, held(1))
    while worker.deliver_next():
        pass
    assert work.box.counts(["a"])[0].dead == 1
    ((error,),) = work.box.database.read("SELECT error FROM deliveries")
    assert error == "given up: answered 500"


def test_a_redirect_is_not_followed(work, receive, held):
    elsewhere = receive()
    receiver = receive(answer=lambda delivery, before: 302)
    worker = work(receiver, RetryPolicy(100, 100, 1e6))
    fill(work.box, held(1))
    worker.deliver_next()
    assert elsewhere.deliveries == []
    ((error,),) = work.box.database.read("SELECT error FROM deliveries")
    assert "redirects are not followed" in error


def test_a_full_disk_after_the_post_does_not_send_it_again(work, receive, held, monkeypatch):
    monkeypatch.setattr(module, "_REFUSED_WRITE_SECONDS", 0.01)
    receiver = receive()
    worker = work(receiver)
    fill(work.box, held(1))
    work.box.database._writer.execute("PRAGMA query_only = ON")
    worker.start()
    wait_until(lambda: receiver.deliveries, "the delivery")
    time.sleep(0.1)
    work.box.database._writer.execute("PRAGMA query_only = OFF")
    wait_until(lambda: work.box.counts(["a"])[0].delivered == 1, "the note of it")
    assert len(receiver.deliveries) == 1


def test_the_log_tells_when_a_destination_starts_to_fail_and_when_it_is_back(work, receive, held, caplog):
    caplog.set_level("INFO")
    receiver = receive(answer=lambda delivery, before: 500 if before < 3 else 200)
    worker = work(receiver)
    fill(work.box, held(1))
    worker.start()
    wait_until(lambda: work.box.counts(["a"])[0].delivered == 1, "the delivery")
    worker.stop()
    worker.join(5)
    told = [record.message for record in caplog.records if record.name == module.__name__]
    assert told == ["destination fails, events wait: answered 500", "destination takes events again"]


def test_a_worker_tells_that_counts_have_moved(work, receive, held):
    moved = threading.Event()
    worker = work(receive(), on_change=moved.set)
    fill(work.box, held(1))
    worker.deliver_next()
    assert moved.is_set()


DAY_NS = 86_400 * 10**9


def test_a_wall_clock_set_back_holds_up_neither_a_retry_nor_a_new_event(work, receive, held, clock):
    with RawReceiver(
        lambda request, before: Reply(503 if before == 0 else 200, {"Retry-After": "0"})
    ) as receiver:
        worker = work(receiver)
        fill(work.box, held(1), held(2, subject="other"))
        worker.deliver_next()
        clock.step_ns = -DAY_NS
        worker.start()
        wait_until(lambda: work.box.counts(["a"])[0].delivered == 2, "both deliveries a day earlier")


def test_a_wall_clock_set_back_does_not_lengthen_a_pause_that_was_asked_for(work, held, clock):
    answers = [Reply(503, {"Retry-After": "1"}), Reply(200)]
    with RawReceiver(lambda request, before: answers[min(before, 1)]) as receiver:
        worker = work(receiver, RetryPolicy(0.01, 1.0, 60))
        fill(work.box, held(1))
        worker.deliver_next()
        clock.step_ns = -DAY_NS
        assert not worker.deliver_next(), "it asked for a second"
        worker.start()
        wait_until(lambda: work.box.counts(["a"])[0].delivered == 1, "the delivery after the pause")


def test_a_wall_clock_set_four_days_ahead_gives_nothing_up(work, receive, held, clock):
    worker = work(receive(answer=lambda delivery, before: 500), RetryPolicy(10, 10, 3 * 86_400))
    fill(work.box, held(1))
    clock.step_ns = 4 * DAY_NS
    worker.deliver_next()
    counts = work.box.counts(["a"])[0]
    assert (counts.pending, counts.dead) == (1, 0)


def test_an_error_that_nobody_foresaw_is_told_once_counted_and_does_not_end_the_worker(
    work, receive, held, caplog, monkeypatch
):
    receiver = receive()
    worker = work(receiver)
    fill(work.box, held(1))
    read, spoiled = work.box.next_due, [OverflowError("too large"), OverflowError("too large")]

    def next_due(name):
        if spoiled:
            raise spoiled.pop()
        return read(name)

    monkeypatch.setattr(work.box, "next_due", next_due)
    monkeypatch.setattr(module, "_STUMBLE_SECONDS", 0.01)
    worker.start()
    wait_until(lambda: receiver.deliveries, "the delivery after two errors")
    assert worker.is_alive()
    told = [record for record in caplog.records if "internal: OverflowError" in record.message]
    assert len(told) == 1 and told[0].exc_info
    assert work.box.counts(["a"])[0].failed == 2
