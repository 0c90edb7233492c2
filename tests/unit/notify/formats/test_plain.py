# SPDX-License-Identifier: Apache-2.0
"""Flat bodies."""

from __future__ import annotations

import json

from hotstage.notify import formats


def test_plain_is_flat_and_says_what_it_is(held):
    content_type, body = formats.render("plain", held(7))
    assert content_type == "application/json"
    assert json.loads(body) == {
        "id": "evt_7",
        "type": "io.hotstage.breaker.opened.v1",
        "subject": "s",
        "source": "urn:hotstage:h",
        "time": "2026-11-29T18:00:00.000Z",
        "time_ns": 5,
        "sequence": 7,
        "data": {"to": "open"},
    }
