# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step between a decision and a receiver: nothing lost, what comes twice has the same id."""

from __future__ import annotations

import pytest

from hotstage.clock import SystemClock, boot_id
from hotstage.store import breakers, outbox
from hotstage.store.store import Store


def genuine(receiver):
    """(id, subject) of each event when it first came, in that order; every delivery must be verified."""
    assert all(delivery.verified for delivery in receiver.deliveries)
    return [(d.id, d.subject) for d in receiver.deliveries if not d.is_replayed]


@pytest.mark.parametrize("point", ["before-commit", "inside-commit", "after-commit"])
def test_an_agent_killed_around_a_commit_has_all_of_a_transition_or_nothing(start_agent, tmp_path, point):
    agent = start_agent(point)
    assert agent.trip("a")
    assert agent.trip("b") is None, "it dies of its second commit"
    agent.process.wait(10)
    store = Store(tmp_path / "agent" / "state", SystemClock(), boot_id())
    names = ["stage:sa:image", "stage:sb:image"] if point == "after-commit" else ["stage:sa:image"]
    assert [record.name for record in store.restored_breakers()] == names
    moves = breakers.newest_transitions(store.database, 10)
    assert sorted(move.transition.name for move in moves) == names
    assert [row.event.subject for row in outbox.after(store.database, 0, 10)] == names
    assert store.database.read("SELECT * FROM meta WHERE key = 'half-written'") == []
    assert store.database.read("PRAGMA integrity_check") == [("ok",)]
    store.close()


STEPS = [
    f"{when}-{what}" for what in ("hold", "acknowledge", "post", "record") for when in ("before", "after")
]


@pytest.mark.parametrize("point", STEPS)
def test_a_notifier_killed_at_any_step_loses_nothing(start_agent, start_notifier, receive, until, point):
    agent, receiver = start_agent(), receive()
    for number in range(3):
        assert agent.trip("a") and agent.trip(number)
    dying = start_notifier({"hook": receiver.port}, die=point)
    assert dying.wait(20) == -9
    start_notifier({"hook": receiver.port})
    until(lambda: len(genuine(receiver)) == 6, f"all events after a kill {point}")
    subjects = [subject for _, subject in genuine(receiver)]
    assert subjects.count("stage:sa:image") == 3
    types = [d.type for d in receiver.deliveries if d.subject == "stage:sa:image" and not d.is_replayed]
    assert [kind.split(".")[3] for kind in types] == ["opened", "closed", "opened"], "order within a subject"
    twice = [d for d in receiver.deliveries if d.is_replayed]
    assert len(twice) <= 1
    if point in ("after-post", "before-record"):
        assert twice, "it was sent and not noted: sent again with the same id"


def test_an_agent_killed_while_its_rows_are_being_fetched_loses_nothing(
    start_agent, start_notifier, receive, until
):
    agent, receiver = start_agent(), receive()
    start_notifier({"hook": receiver.port})
    expected = 0
    for _ in range(3):
        for number in range(4):
            assert agent.trip(number)
            expected += 1
        agent.kill()
        agent = start_agent()
    until(lambda: len(genuine(receiver)) == expected, "every committed event")
    assert agent.end() == 0


def test_both_killed_again_and_again(start_agent, start_notifier, receive, until):
    receiver = receive()
    expected = 0
    for round_number in range(4):
        agent = start_agent()
        notifier = start_notifier({"hook": receiver.port})
        for _ in range(5):
            assert agent.trip(round_number)
            expected += 1
        (notifier if round_number % 2 else agent).kill()
        (agent if round_number % 2 else notifier).kill()
        agent.process.wait(10)
        notifier.wait(10)
    start_agent()
    start_notifier({"hook": receiver.port})
    until(lambda: len(genuine(receiver)) == expected, "every committed event")
