# SPDX-License-Identifier: Apache-2.0
"""Who may ask what."""

from __future__ import annotations

import os

import pytest
from support.certificates import self_signed

from hotstage.api.access import Access, parse_address
from hotstage.api.message import Peer
from hotstage.config.settings import HttpConfig
from hotstage.errors import ConfigError

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("listen", "parsed"),
    [
        ("127.0.0.1:9178", ("127.0.0.1", 9178)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses_are_parsed(listen, parsed):
    assert parse_address(listen) == parsed


@pytest.mark.parametrize("listen", ["9178", ":9178", "host:", "host:x", "host:70000", "host:-1", ""])
def test_what_is_no_address_is_a_config_error(listen):
    with pytest.raises(ConfigError, match="not an address:port"):
        parse_address(listen)


def test_an_open_address_needs_a_token_and_tls(token_file, tmp_path):
    certificate, key = self_signed(tmp_path)
    with pytest.raises(ConfigError, match="without a token"):
        Access.of(HttpConfig(listen="0.0.0.0:9178", tls_certificate_file=certificate, tls_key_file=key))
    with pytest.raises(ConfigError, match="without TLS") as caught:
        Access.of(HttpConfig(listen="0.0.0.0:9178", token_file=token_file))
    assert "allow_plaintext" in caught.value.remedy
    access = Access.of(
        HttpConfig(
            listen="0.0.0.0:9178", token_file=token_file, tls_certificate_file=certificate, tls_key_file=key
        )
    )
    assert access.is_loopback is False and access.tls is not None


def test_plaintext_to_other_hosts_is_a_decision_that_needs_the_token_all_the_same(token_file):
    with pytest.raises(ConfigError, match="without a token"):
        Access.of(HttpConfig(listen="0.0.0.0:9178", allow_plaintext=True))
    access = Access.of(HttpConfig(listen="0.0.0.0:9178", allow_plaintext=True, token_file=token_file))
    assert access.tls is None


def test_a_certificate_that_cannot_be_used_is_a_config_error(tmp_path):
    certificate, key = self_signed(tmp_path)
    _, foreign_key = self_signed(tmp_path, "other")
    (tmp_path / "no.pem").write_text("hello")
    for wrong in (
        {"tls_certificate_file": certificate},
        {"tls_key_file": key},
        {"tls_certificate_file": certificate, "tls_key_file": foreign_key},
        {"tls_certificate_file": str(tmp_path / "no.pem"), "tls_key_file": key},
        {"tls_certificate_file": str(tmp_path / "absent.pem"), "tls_key_file": key},
    ):
        with pytest.raises(ConfigError, match=r"http\.tls_"):
            Access.of(HttpConfig(**wrong))


def test_a_token_is_compared_whole_and_never_shown(token_file):
    access = Access.of(HttpConfig(token_file=token_file))
    assert access.is_authorised(f"Bearer {TOKEN}")
    assert access.is_authorised(f"bearer {TOKEN}")
    for wrong in (None, "", "Bearer", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \udcff"):
        assert not access.is_authorised(wrong and wrong.encode("utf-8", "replace").decode())
    assert TOKEN not in repr(access)


def test_without_a_token_nobody_is_authorised():
    assert not Access.of(HttpConfig()).is_authorised("Bearer ")


@pytest.mark.parametrize("content", ["", "short"])
def test_a_token_too_short_to_be_one_is_a_config_error(tmp_path, content):
    (tmp_path / "token").write_text(content)
    with pytest.raises(ConfigError, match="shorter than 16 bytes"):
        Access.of(HttpConfig(token_file=str(tmp_path / "token")))
    with pytest.raises(ConfigError, match="No such file"):
        Access.of(HttpConfig(token_file=str(tmp_path / "absent")))


def test_only_root_the_agents_user_and_operators_may_override():
    access = Access.of(HttpConfig(socket_group="no-such-group"))
    assert access.may_operate(Peer("uid 0", uid=0), is_authorised=False)
    assert access.may_operate(Peer("me", uid=os.geteuid()), is_authorised=False)
    assert not access.may_operate(Peer("uid 65534", uid=65534), is_authorised=False)
    assert not access.may_operate(Peer("127.0.0.1"), is_authorised=False)
    assert access.may_operate(Peer("127.0.0.1"), is_authorised=True)


@pytest.mark.parametrize(
    "content", ["sixteen bytes of words", "sixteen-bytes-of\ntwo-lines", "sixteen-bytes-\u20ac\u20ac"]
)
def test_a_token_that_no_header_can_carry_is_a_config_error(tmp_path, content):
    (tmp_path / "token").write_text(content)
    with pytest.raises(ConfigError, match="not one word of ASCII") as caught:
        Access.of(HttpConfig(token_file=str(tmp_path / "token")))
    assert "sixteen" not in caught.value.message
