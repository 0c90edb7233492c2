# SPDX-License-Identifier: Apache-2.0
"""Signatures that the reference implementation accepts, and a check that accepts no other."""

from __future__ import annotations

import time

import pytest
import standardwebhooks

from hotstage.errors import ConfigError
from hotstage.notify.signing import Secret, headers, parse_secrets, verify

NOW = 1_614_265_330
BODY = b'{"test": 2432232314}'
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
OTHER = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"


def test_the_specifications_example_is_signed_as_printed(secret):
    assert secret.sign(ID, NOW, BODY) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_reference_implementation_accepts_ours(secret, secret_text):
    body = '{"ü":"✓"}'.encode()
    sent = headers([secret], ID, int(time.time()), body)
    assert standardwebhooks.Webhook(secret_text).verify(body, sent) == {"ü": "✓"}


def test_we_accept_the_reference_implementations(secret, secret_text):
    from datetime import UTC, datetime

    signature = standardwebhooks.Webhook(secret_text).sign(
        ID, datetime.fromtimestamp(NOW, UTC), BODY.decode()
    )
    sent = {"webhook-id": ID, "webhook-timestamp": str(NOW), "webhook-signature": signature}
    assert verify([secret], sent, BODY, NOW) is None


def test_during_a_rotation_either_key_verifies(secret, secret_text):
    old, new = secret, Secret.parse(OTHER, "test")
    now = int(time.time())
    sent = headers([new, old], ID, now, BODY)
    for held in (OTHER, secret_text):
        standardwebhooks.Webhook(held).verify(BODY, sent)
    assert verify([old], sent, BODY, now) is None
    assert verify([new, old], headers([old], ID, now, BODY), BODY, now) is None


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"webhook-signature": "v1,AAAA"}, "no signature matches"),
        ({"webhook-signature": "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}, "no signature matches"),
        ({"webhook-signature": "ü"}, "no signature matches"),
        ({"webhook-id": "msg_other"}, "no signature matches"),
        ({"webhook-timestamp": str(NOW + 1)}, "no signature matches"),
        ({"webhook-timestamp": str(NOW - 301)}, "more than five minutes"),
        ({"webhook-timestamp": str(NOW + 301)}, "more than five minutes"),
        ({"webhook-timestamp": "soon"}, "not a number"),
        ({"webhook-timestamp": "9" * 30}, "not a number"),
        ({"webhook-id": ""}, "missing"),
    ],
)
def test_what_is_not_genuine_and_fresh_is_refused(secret, changed, wrong):
    sent = headers([secret], ID, NOW, BODY) | changed
    assert wrong in verify([secret], sent, BODY, NOW)


def test_a_changed_body_and_a_foreign_key_are_refused(secret):
    sent = headers([secret], ID, NOW, BODY)
    assert verify([secret], sent, BODY + b" ", NOW)
    assert verify([Secret.parse(OTHER, "test")], sent, BODY, NOW)
    assert verify([], sent, BODY, NOW)


def test_a_secret_never_shows(secret, secret_text):
    assert secret_text[6:] not in repr(secret)
    assert repr(secret.key) not in repr(secret)


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_short", "whsec_" + "A" * 100, "whsec_!!!!" + "A" * 40])
def test_what_is_no_secret_is_refused_without_showing_it(text):
    with pytest.raises(ConfigError) as caught:
        Secret.parse(text, "secret_file /x")
    assert "secret_file /x" in caught.value.message
    assert not text or text not in caught.value.message


def test_unpadded_base64_is_the_same_secret():
    padded = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWQ=="
    assert Secret.parse(padded, "x") == Secret.parse(padded.rstrip("="), "x")


def test_a_file_holds_one_secret_a_line(secret_text, secret):
    assert parse_secrets(f"# new first\n{OTHER}\n\n{secret_text}\n", "x") == (
        Secret.parse(OTHER, "x"),
        secret,
    )
    with pytest.raises(ConfigError, match="holds no signing secret"):
        parse_secrets("# nothing\n", "x")
