# SPDX-License-Identifier: Apache-2.0
"""Messages within Slack's documented limits, whatever names programs give themselves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotstage.frame.entity import Entity, EntityKind
from hotstage.notify import formats
from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.context import Context
from hotstage.sinks.events import EventMaker
from hotstage.windows.window import Candidate, Cause

HERE = Context("gpu-7")
# https://api.slack.com/reference/block-kit/blocks, …/composition-objects#text, …/methods/chat.postMessage
MAX_TEXT, MAX_BLOCKS, MAX_HEADER, MAX_SECTION, MAX_FIELDS, MAX_FIELD = 40_000, 50, 150, 3_000, 10, 2_000


def slack(event, context=HERE):
    held = HeldEvent(7, event.id, event.type, event.subject, event.created_ns, event.body)
    content_type, body = formats.render("slack", held, context)
    assert content_type == "application/json; charset=utf-8"
    return json.loads(body)


def texts(message):
    """Every text object of a message, as Slack's types have them."""
    for block in message["blocks"]:
        yield from [block["text"]] if "text" in block else []
        yield from block.get("fields", [])
        yield from block.get("elements", [])


def assert_within_limits(message):
    assert 0 < len(message["text"]) <= MAX_TEXT
    assert len(message["blocks"]) <= MAX_BLOCKS
    for block in message["blocks"]:
        assert block["type"] in ("header", "section", "context")
        if block["type"] == "header":
            assert block["text"]["type"] == "plain_text"
            assert 0 < len(block["text"]["text"]) <= MAX_HEADER
        elif "text" in block:
            assert 0 < len(block["text"]["text"]) <= MAX_SECTION
        assert len(block.get("fields", [])) <= MAX_FIELDS
        assert all(0 < len(field["text"]) <= MAX_FIELD for field in block.get("fields", []))
        assert len(block.get("elements", [])) <= MAX_FIELDS


def window(make, name, summary="slow"):
    entity = Entity(EntityKind.stage, stage=name, modality=name, endpoint=name, instance=name, gpu_uuid=name)
    cause = Cause(name, summary, 0.9, (Candidate(name, 0.9, summary, entity),))
    return make.window(kind=name, entity=entity, cause=cause)


def test_a_message_says_what_where_and_since_when(make):
    message = slack(EventMaker("h").window_opened(make.window(), 1_000))
    assert message["text"] == (
        "🟠 Anomaly: stage_latency, vision_encode image."
        " On gpu-7: vision_encode is slow (figures as it opened)"
    )
    assert message["blocks"][0]["text"]["text"] == "🟠 Anomaly: stage_latency, vision_encode image"
    assert {"Stage: vision_encode", "Severity: warning", "Host: gpu-7"} <= {
        field["text"] for field in message["blocks"][2]["fields"]
    }
    assert_within_limits(message)


def test_what_is_over_is_green(make):
    over = slack(EventMaker("h").window_closed(make.window(closed_ns=9_000), 1_000))
    assert over["text"].startswith("🟢 Over: ")


@pytest.mark.parametrize(
    "hostile",
    [
        "<!channel>",
        "<@U012AB3CD>",
        "<#C024BE7LR>",
        "<https://evil.example|click me>",
        "*bold* _italic_ ~gone~ `code`",
        "```\nblock\n```",
        "> quoted\n> twice",
        ":rotating_light:",
        "@here @everyone",
        "&lt;!channel&gt;",
        "<!date^0^{date}^https://evil.example|x>",
        "\u202eevil\u2028next",
        "https://evil.example/x",
    ],
)
def test_a_hostile_name_makes_no_markup_mention_or_link(make, hostile):
    message = slack(EventMaker("h").window_opened(window(make, hostile, hostile), 1_000))
    assert all(text["type"] == "plain_text" and text["emoji"] is False for text in texts(message))
    for text in (message["text"], *(each["text"] for each in texts(message))):
        assert "<" not in text and ">" not in text
        assert "\n" not in text and "\u202e" not in text
    assert (message["mrkdwn"], message["parse"], message["link_names"]) == (False, "none", False)
    assert (message["unfurl_links"], message["unfurl_media"]) == (False, False)
    assert_within_limits(message)


@given(st.text(min_size=1, max_size=5_000), st.text(max_size=60_000))
def test_no_name_or_cause_breaks_a_limit_or_an_escape(name, summary):
    data = {
        "window_id": name, "kind": name, "severity": name, "entity": {"stage": name, "pid": 1},
        "cause": {"summary": summary}, "opened_at": "t",
    }  # fmt: skip
    body = json.dumps({"source": "urn:hotstage:h", "time": "t", "data": data}).encode()
    event = HeldEvent(1, "evt_1", "io.hotstage.window.opened.v1", "window:w", 5, body)
    message = json.loads(formats.render("slack", event, HERE)[1])
    assert_within_limits(message)
    for text in (message["text"], *(each["text"] for each in texts(message))):
        for part in text.split("&")[1:]:
            assert part.startswith(("amp;", "lt;", "gt;")), "an escape was cut in half"


def test_a_link_is_there_only_where_the_explorer_has_an_address(make):
    event = EventMaker("h").window_opened(make.window(), 1_000)
    assert "explorer" not in json.dumps(slack(event))
    message = slack(event, Context("gpu-7", explorer_url="https://explorer.example/?a=1&b=2"))
    links = [text["text"] for text in texts(message) if text["type"] == "mrkdwn"]
    assert links == ["<https://explorer.example/?a=1&amp;b=2|Open the explorer>"]


def test_a_breaker_and_a_test_have_their_messages_too(make):
    breaker = slack(EventMaker("h").transition(make.transition(enforced=True), 1_000))
    assert breaker["text"].startswith("🔴 Breaker stage:vision_encode:image is open. On gpu-7: window w-1")
    assert_within_limits(slack(EventMaker("h").test(1_000, "chat")))
