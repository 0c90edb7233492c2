# SPDX-License-Identifier: Apache-2.0
"""The notifier's README shows what is really sent, and its verification really verifies."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from hotstage import notify
from hotstage.config.notify import Destination
from hotstage.notify import formats, signing
from hotstage.notify.db import HeldEvent
from hotstage.notify.formats.context import Context
from hotstage.sinks.events import EventMaker

README = (Path(notify.__file__).parent / "README.md").read_text(encoding="utf-8")
OPENED_NS = 1_796_000_000_000_000_000
HERE = Context("gpu-7", explorer_url="https://explorer.example.com/", sent_ns=OPENED_NS + 120_000_000)


@pytest.mark.parametrize("name", formats.FORMATS)
def test_the_example_of_a_format_is_what_it_sends(name, make):
    event = EventMaker("8c1f0a52b7de4936").window_opened(
        make.window("w-42", opened_ns=0, labels={}), OPENED_NS
    )
    held = HeldEvent(7, event.id, event.type, event.subject, event.created_ns, event.body)
    content_type, body = formats.render(name, held, HERE)
    found = re.search(rf"### `{name}`.*?```json\n(.*?)```", README, re.DOTALL)
    assert found, f"the README has no example of {name}"
    assert json.loads(found[1]) == json.loads(body), json.dumps(
        json.loads(body), indent=2, ensure_ascii=False
    )
    assert f"`{content_type}`" in README


def test_every_format_that_can_be_configured_is_made_and_explained():
    names = get_args(get_type_hints(Destination)["format"])
    assert set(names) == set(formats.FORMATS)


def test_every_setting_of_a_destination_is_explained():
    assert [key for key in Destination.__struct_fields__ if f"`{key}`" not in README] == []


def test_the_verification_accepts_what_is_genuine_and_nothing_else(secret, secret_text):
    scope: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", README, re.DOTALL)[1], scope)  # type: ignore[index]
    verify = scope["verify"]
    body = b'{"a": 1}'
    now = int(time.time())
    sent = signing.headers([secret], "evt_1", now, body)
    assert verify(secret_text, sent, body)
    assert not verify(secret_text, sent, body + b" ")
    assert not verify("whsec_" + "QUJD" * 10, sent, body)
    assert not verify(secret_text, signing.headers([secret], "evt_1", now - 400, body), body)
    assert not verify(secret_text, {**sent, "webhook-id": "evt_2"}, body)
    rotated = signing.headers([signing.Secret(b"x" * 32), secret], "evt_1", now, body)
    assert verify(secret_text, rotated, body)
