# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from hotstage_explorer.desk import MAX_QUESTIONS, Desk
from hotstage_explorer.picture import AGENT, Picture, Section
from hotstage_explorer.questions import Answer, Question

LIST = Question("requests")


class CountingSource:
    """Answers with how often it was asked; waits or fails when told."""

    address = "http://127.0.0.1:1"
    origin = AGENT

    def __init__(self) -> None:
        self.asked: Counter[Question] = Counter()
        self.go_on = threading.Event()
        self.go_on.set()
        self.error: Exception | None = None

    def read(self, previous: Picture) -> Picture:
        return previous

    def answer(self, question: Question, previous: Answer) -> Answer:
        self.go_on.wait(5)
        self.asked[question] += 1
        if self.error:
            raise self.error
        return Section(self.asked[question], 1.0)


@pytest.fixture
def source() -> CountingSource:
    return CountingSource()


@pytest.fixture
def desk(source: CountingSource) -> Iterator[Desk]:
    made = Desk(source, period_seconds=0.02, rest_after_seconds=0.1, patience_seconds=1.0)
    yield made
    source.go_on.set()
    made.close()


def test_a_question_is_answered_and_counted(desk: Desk) -> None:
    answer, version = desk.ask(LIST)
    assert answer.value >= 1
    assert version >= 1


def test_all_who_ask_share_one_reading(source: CountingSource, desk: Desk) -> None:
    desk.ask(LIST)
    before = source.asked[LIST]
    askers = [threading.Thread(target=desk.ask, args=(LIST,)) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(2)
    assert source.asked[LIST] - before <= 3


def test_nobody_asks_so_nothing_is_read(source: CountingSource, desk: Desk) -> None:
    desk.ask(LIST)
    time.sleep(0.3)
    rested = source.asked[LIST]
    time.sleep(0.2)
    assert source.asked[LIST] == rested


def test_a_source_that_hangs_holds_nobody_longer_than_the_patience(source: CountingSource) -> None:
    source.go_on.clear()
    desk = Desk(source, patience_seconds=0.1)
    began = time.monotonic()
    answer, version = desk.ask(LIST)
    assert time.monotonic() - began < 1.0
    assert (answer.value, version) == (None, 0)
    source.go_on.set()
    desk.close()


def test_a_fault_inside_is_told_and_the_last_value_kept(source: CountingSource, desk: Desk) -> None:
    desk.ask(LIST)
    source.error = RuntimeError("no such thing")
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and desk.ask(LIST)[0].problem is None:
        time.sleep(0.01)
    answer, _ = desk.ask(LIST)
    assert "no such thing" in (answer.problem or "waited 2 s for the problem in vain")
    assert answer.value is not None


def test_questions_are_bounded_and_the_one_asked_last_stays(source: CountingSource, desk: Desk) -> None:
    for number in range(3 * MAX_QUESTIONS):
        desk.ask(Question("request", str(number)))
    assert len(desk._cases) == MAX_QUESTIONS
    assert Question("request", str(3 * MAX_QUESTIONS - 1)) in desk._cases


def test_each_of_several_questions_has_its_turn(source: CountingSource, desk: Desk) -> None:
    questions = [Question("request", str(number)) for number in range(5)]
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and min(source.asked[each] for each in questions) < 3:
        for question in questions:
            desk.ask(question)
    assert min(source.asked[each] for each in questions) >= 3


def test_several_questions_wait_no_longer_than_one(source: CountingSource) -> None:
    source.go_on.clear()
    desk = Desk(source, patience_seconds=0.3)
    questions = [Question("request", str(number)) for number in range(6)]
    began = time.monotonic()
    answers = desk.ask_all(questions)
    assert 0.25 < time.monotonic() - began < 0.9
    assert [answers[each][1] for each in questions] == [0] * 6
    source.go_on.set()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and not all(version for _, version in desk.ask_all(questions).values()):
        time.sleep(0.01)
    assert all(answer.value for answer, _ in desk.ask_all(questions).values())
    desk.close()
