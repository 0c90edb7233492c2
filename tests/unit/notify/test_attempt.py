# SPDX-License-Identifier: Apache-2.0
"""One try: what an answer leads to, and what is told of it."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from hotstage.notify.attempt import Outcome, attempt, judge
from hotstage.notify.formats.context import Context
from hotstage.notify.post import Limits, Poster

QUICK = Limits(0.5, 0.5)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, "delivered"),
        (204, "delivered"),
        (299, "delivered"),
        (301, "retry"),
        (302, "retry"),
        (308, "retry"),
        (400, "dead"),
        (401, "dead"),
        (404, "dead"),
        (408, "retry"),
        (409, "retry"),
        (410, "disable"),
        (413, "dead"),
        (425, "retry"),
        (429, "retry"),
        (500, "retry"),
        (503, "retry"),
        (599, "retry"),
    ],
)
def test_what_an_answer_leads_to(status, kind):
    assert judge(status, None).kind == kind


def test_only_429_and_503_may_ask_for_a_pause():
    assert judge(429, 9.0).wait_seconds == judge(503, 9.0).wait_seconds == 9.0
    assert judge(500, 9.0).wait_seconds is None


def test_an_attempt_is_signed_and_a_refused_connection_is_a_retry(receive, target, held):
    receiver = receive()
    context = Context("host-1", sent_ns=time.time_ns())
    assert attempt(target(receiver.port), held(), Poster(QUICK), context) == Outcome("delivered")
    (seen,) = receiver.deliveries
    assert (seen.id, seen.verified, seen.type) == ("evt_1", True, "io.hotstage.breaker.opened.v1")
    receiver.stop()
    outcome = attempt(target(receiver.port), held(), Poster(QUICK), context)
    assert outcome.kind == "retry"
    assert "refused" in outcome.error


def test_a_body_that_is_no_event_is_dead_and_blocks_nobody(target, held):
    assert attempt(target(), held(body=b"[]"), Poster(QUICK), Context("h")).kind == "dead"


def test_what_a_receiver_says_reaches_people_without_control_characters(target, held):
    words = b"\x1b]0;pwned\x07\x1b[31mEVIL\x1b[2J [/red]\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(words)

        thread = threading.Thread(target=serve)
        thread.start()
        outcome = attempt(target(listening.getsockname()[1]), held(), Poster(QUICK), Context("h"))
        thread.join(5)
    assert outcome.kind == "retry"
    assert "EVIL" in outcome.error
    assert outcome.error.isprintable()
