# SPDX-License-Identifier: Apache-2.0
"""CloudEvents bodies."""

from __future__ import annotations

import json

from hotstage.notify import formats
from hotstage.notify.formats.context import Context
from hotstage.sinks.events import EventMaker


def test_a_cloudevent_has_the_required_attributes_and_the_data(held):
    content_type, body = formats.render("cloudevents", held(7), Context("h"))
    assert content_type == "application/cloudevents+json; charset=utf-8"
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": "evt_7",
        "source": "urn:hotstage:h",
        "type": "io.hotstage.breaker.opened.v1",
        "subject": "s",
        "time": "2026-11-29T18:00:00.000Z",
        "datacontenttype": "application/json",
        "sequence": "7",
        "createdns": "5",
        "data": {"to": "open"},
    }


def test_extension_names_are_lower_case_letters_and_digits(held):
    assert all(
        name.isalnum() and name.islower()
        for name in json.loads(formats.render("cloudevents", held(), Context("h"))[1])
    )


def test_a_trace_is_carried_where_there_is_one(held):
    body = b'{"source":"u","time":"t","data":{},"traceparent":"00-aa-bb-01"}'
    assert (
        json.loads(formats.render("cloudevents", held(body=body), Context("h"))[1])["traceparent"]
        == "00-aa-bb-01"
    )


def test_what_the_agent_writes_is_understood(held, make):
    event = EventMaker("host-1").transition(make.transition(), 1_000)
    body = json.loads(formats.render("cloudevents", held(body=event.body), Context("h"))[1])
    assert (body["source"], body["data"]["breaker"]) == ("urn:hotstage:host-1", "stage:vision_encode:image")
