# SPDX-License-Identifier: Apache-2.0
"""The notifier's two routes, asked over the Unix socket."""

from __future__ import annotations

import json
import threading
import time
from importlib.resources import files

import jsonschema
import pytest

from hotstage.store.store import Changes

OPENAPI = json.loads(files("hotstage.api").joinpath("openapi.json").read_text())


def conforms(body, schema):
    """Raise unless `body` is what the OpenAPI file promises under this name."""
    jsonschema.validate(body, {"$ref": f"#/components/schemas/{schema}", "components": OPENAPI["components"]})
    return body


def put(served, make, *ids):
    served.api.store.commit([Changes(1, 1, events=tuple(make.event(id) for id in ids))])
    served.api.outbox_bell.ring()


def test_the_outbox_gives_rows_after_a_number_and_forgets_them_when_told(served, make):
    put(served, make, "a", "b")
    body = conforms(served.ask("/v1/outbox?after=0&limit=10", unix=True).json, "Outbox")
    assert [(row["seq"], row["id"], row["body"]) for row in body["rows"]] == [
        (1, "a", {"data": {}}),
        (2, "b", {"data": {}}),
    ]
    said = {"seq": 1, "store": body["store"]}
    answer = served.ask("/v1/outbox/ack", "POST", said, unix=True)
    assert conforms(answer.json, "Acknowledged") == {"acknowledged": 1}
    rows = served.ask("/v1/outbox?after=0", unix=True).json["rows"]
    assert [row["id"] for row in rows] == ["b"]


def test_a_long_poll_returns_as_soon_as_there_is_a_row(served, make):
    threading.Timer(0.1, put, (served, make, "late")).start()
    began = time.monotonic()
    rows = served.ask("/v1/outbox?wait=10", unix=True).json["rows"]
    assert [row["id"] for row in rows] == ["late"]
    assert time.monotonic() - began < 5


def test_a_long_poll_without_news_ends_empty_in_time(served):
    began = time.monotonic()
    assert served.ask("/v1/outbox?wait=0.2", unix=True).json["rows"] == []
    assert 0.15 < time.monotonic() - began < 5


def test_an_acknowledgement_of_another_store_is_refused(served, make):
    put(served, make, "a")
    answer = served.ask("/v1/outbox/ack", "POST", {"seq": 9, "store": "other"}, unix=True)
    assert (answer.status, answer.code) == (409, "another_store")
    assert len(served.ask("/v1/outbox", unix=True).json["rows"]) == 1


def test_an_acknowledgement_may_carry_the_notifiers_report(served):
    report = {"name": "pager", "delivered": 3, "failed": 1, "dead": 0, "pending": 2}
    answer = served.ask("/v1/outbox/ack", "POST", {"seq": 0, "destinations": [report]}, unix=True)
    assert answer.status == 200
    (held,) = served.api.deliveries.latest().destinations
    assert (held.name, held.delivered, held.pending, held.is_disabled) == ("pager", 3, 2, False)


@pytest.mark.parametrize("body", [b"", {}, {"seq": -1}, {"seq": 1 << 63}, {"seq": 1, "x": 1}, {"seq": "1"}])
def test_an_acknowledgement_that_cannot_be_forgets_nothing(served, make, body):
    put(served, make, "a")
    answer = served.ask("/v1/outbox/ack", "POST", body, unix=True)
    assert (answer.status, answer.code) == (400, "bad_body")
    assert len(served.ask("/v1/outbox", unix=True).json["rows"]) == 1
