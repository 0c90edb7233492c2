# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hotstage_explorer.feed import Feed
from hotstage_explorer.picture import AGENT, Picture
from hotstage_explorer.questions import Answer, Question


class CountingSource:
    """A source that numbers its pictures, and fails or waits when told."""

    address = "http://127.0.0.1:1"
    origin = AGENT

    def __init__(self) -> None:
        self.reads = 0
        self.was_read = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.error: Exception | None = None

    def read(self, previous: Picture) -> Picture:
        self.go_on.wait(5)
        self.reads += 1
        self.was_read.set()
        if self.error:
            raise self.error
        return replace(previous, version=previous.version + 1, link="live")

    def answer(self, question: Question, previous: Answer) -> Answer:
        return previous


@pytest.fixture
def source() -> CountingSource:
    return CountingSource()


@pytest.fixture
def feed(source: CountingSource) -> Iterator[Feed]:
    made = Feed(source, period_seconds=0.02, rest_after_seconds=0.06, patience_seconds=0.5)
    yield made
    source.go_on.set()
    made.close()


def test_nobody_looks_so_nothing_is_read(source: CountingSource, feed: Feed) -> None:
    assert feed.peek().link == "starting"
    assert not source.was_read.wait(0.05)


def test_the_first_look_waits_for_the_first_picture(feed: Feed) -> None:
    assert feed.latest().link == "live"


def test_many_lookers_share_one_reading(source: CountingSource) -> None:
    feed = Feed(source, period_seconds=30)
    threads = [threading.Thread(target=feed.latest) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert source.reads == 1
    feed.close()


def test_it_rests_when_nobody_has_looked_for_a_while(source: CountingSource, feed: Feed) -> None:
    feed.latest()
    deadline = threading.Event()
    deadline.wait(0.2)
    source.was_read.clear()
    assert not source.was_read.wait(0.1)
    assert feed.latest().version > 1
    assert source.was_read.is_set()


def test_a_slow_source_keeps_nobody_longer_than_their_patience(source: CountingSource, feed: Feed) -> None:
    source.go_on.clear()
    assert feed.latest().link == "starting"


def test_a_fault_of_ours_is_seen_on_the_page_and_passes(source: CountingSource, feed: Feed) -> None:
    source.error = RuntimeError("a bug")
    picture = feed.latest()
    assert picture.link == "unreachable"
    assert picture.problem
    assert "a bug" in picture.problem.message
    source.error = None
    for _ in range(100):
        if feed.latest().link == "live":
            return
        threading.Event().wait(0.01)
    pytest.fail("waited 1 s in vain for a live picture")


def test_closing_ends_the_thread(feed: Feed) -> None:
    feed.latest()
    feed.close()
    assert not [t for t in threading.enumerate() if t.name == "feed"]
