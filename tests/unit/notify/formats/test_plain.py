# SPDX-License-Identifier: Apache-2.0
"""Flat bodies with a sentence in them."""

from __future__ import annotations

import json

from hotstage.notify import formats
from hotstage.notify.formats.context import Context
from hotstage.sinks.events import EventMaker

HERE = Context("gpu-7", explorer_url="https://explorer.example")


def plain(held, event):
    content_type, body = formats.render(
        "plain", held(7, id=event.id, type=event.type, subject=event.subject, body=event.body), HERE
    )
    assert content_type == "application/json"
    return json.loads(body)


def test_an_opened_window_is_one_sentence_and_one_level(held, make):
    said = plain(held, EventMaker("h").window_opened(make.window(), 1_000))
    assert said["text"] == (
        "Anomaly: stage_latency, vision_encode image. On gpu-7: vision_encode is slow (figures as it opened)"
    )
    assert (said["status"], said["severity"], said["stage"], said["modality"]) == (
        "open", "warning", "vision_encode", "image",
    )  # fmt: skip
    assert (said["window_id"], said["ended_at"], said["link"]) == ("w-1", None, "https://explorer.example")
    assert all(not isinstance(value, dict | list) for value in said.values()), "flat"


def test_a_closed_window_says_how_long_it_lasted(held, make):
    window = make.window(opened_ns=0, peak_ns=12_000_000_000, closed_ns=32_000_000_000)
    said = plain(held, EventMaker("h").window_closed(window, 1_000))
    assert said["text"].endswith(
        "On gpu-7, after 32 s: vision_encode is slow (figures of its last sign; at its worst, 12 s after it"
        " opened, 3.5 times its limit)"
    )
    assert said["ended_at"] is not None


def test_a_breaker_says_its_state_and_whether_anybody_heeds_it(held, make):
    said = plain(held, EventMaker("h").transition(make.transition(), 1_000))
    assert said["text"] == (
        "Breaker stage:vision_encode:image is open."
        " On gpu-7 (dry run: callers are not told to heed it): window w-1 (figures as it moved)"
    )
    assert (said["breaker"], said["enforced"]) == ("stage:vision_encode:image", False)


def test_every_kind_of_event_has_the_same_keys(held, make):
    maker = EventMaker("h")
    events = [
        maker.window_opened(make.window(), 1),
        maker.transition(make.transition(), 1),
        maker.test(1, "a"),
    ]
    keys = {tuple(plain(held, event)) for event in events}
    assert len(keys) == 1
