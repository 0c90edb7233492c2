# SPDX-License-Identifier: Apache-2.0
"""Where events may go, and where never."""

from __future__ import annotations

import ipaddress

import pytest

from hotstage.config.settings import Destination
from hotstage.errors import ConfigError
from hotstage.notify.destinations import RefusedAddressError, Target, system_resolver, why_refused

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def made(url="https://hooks.example/x", **changed):
    fields = {"name": "a", "url": url, "secret_env": "SECRET"} | changed
    return Target.of(Destination(**fields), {"SECRET": SECRET})


def resolved(target, *addresses):
    return target.resolve(lambda host, port: list(addresses))


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "header"),
    [
        ("https://hooks.example/x?k=1", "hooks.example", 443, "/x?k=1", "hooks.example"),
        ("https://hooks.example:8443", "hooks.example", 8443, "/", "hooks.example:8443"),
        ("http://127.0.0.1:9/y", "127.0.0.1", 9, "/y", "127.0.0.1:9"),
        ("http://[::1]/", "::1", 80, "/", "[::1]"),
    ],
)
def test_a_url_becomes_what_delivery_needs(url, host, port, path, header):
    target = made(url)
    assert (target.host, target.port, target.path, target.host_header) == (host, port, path, header)


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("http://hooks.example/", "http is for loopback only"),
        ("ftp://hooks.example/", "not an http"),
        ("hooks.example/x", "not an http"),
        ("https:///x", "not an http"),
        ("https://user:pw@hooks.example/", "user and password"),
        ("https://hooks.example:99999/", "malformed"),
        ("https://[::1/", "malformed"),
        ("https://hooks.example/\r\nX: y", "not an http"),
        ("https://hooks.example/a b", "not an http"),
        ("https://hööks.example/", "not an http"),
    ],
)
def test_a_url_that_cannot_be_is_a_config_error_that_names_the_destination(url, wrong):
    with pytest.raises(ConfigError, match=wrong) as caught:
        made(url)
    assert "notify.destinations a" in caught.value.message
    assert "pw" not in caught.value.message


def test_the_query_and_the_secret_never_show():
    target = made("https://hooks.example/x?key=hidden")
    assert "hidden" not in repr(target) + target.shown_url
    assert SECRET[6:] not in repr(target)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.1.1",
        "fe80::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "224.0.0.1",
        "ff02::1",
        "0.0.0.0",
        "::",
        "240.0.0.1",
        "255.255.255.255",
        "::ffff:8.8.8.8",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::1",
    ],
)
def test_no_setting_permits_these(address):
    assert why_refused(ipaddress.ip_address(address), allow_private=True)


@pytest.mark.parametrize("address", ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1"])
def test_private_addresses_need_permission(address):
    assert "allow_private" in why_refused(ipaddress.ip_address(address), allow_private=False)
    assert why_refused(ipaddress.ip_address(address), allow_private=True) is None


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111"])
def test_public_addresses_are_allowed(address):
    assert why_refused(ipaddress.ip_address(address), allow_private=False) is None


def test_the_address_that_was_checked_is_the_one_to_connect_to():
    assert resolved(made(), "8.8.8.8", "8.8.4.4") == "8.8.8.8"


def test_one_forbidden_answer_spoils_all():
    with pytest.raises(RefusedAddressError, match=r"169\.254\.169\.254"):
        resolved(made(), "8.8.8.8", "169.254.169.254")


def test_a_name_that_leads_to_loopback_is_refused_unless_it_says_so():
    with pytest.raises(RefusedAddressError, match="loopback"):
        resolved(made(), "127.0.0.1")
    assert resolved(made("https://localhost/"), "127.0.0.1") == "127.0.0.1"


def test_http_stays_on_loopback_whatever_the_name_resolves_to():
    with pytest.raises(RefusedAddressError, match="http is for loopback only"):
        resolved(made("http://localhost/"), "8.8.8.8")


def test_no_answer_is_an_os_error():
    with pytest.raises(OSError, match="no address"):
        resolved(made())


def test_a_name_that_no_resolver_takes_is_an_os_error_too():
    with pytest.raises(OSError, match="label"):
        system_resolver("a" * 70 + ".example", 443)


def test_types_are_prefixes_and_none_means_all():
    assert made().wants("io.hotstage.window.opened.v1")
    picky = made(types=["io.hotstage.breaker.", "io.hotstage.test.v1"])
    assert picky.wants("io.hotstage.breaker.closed.v1")
    assert not picky.wants("io.hotstage.window.opened.v1")


def test_secrets_come_from_a_file_a_credential_or_the_environment(tmp_path):
    (tmp_path / "hook").write_text(SECRET + "\n")
    from_file = Target.of(
        Destination(name="a", url="https://x.example", secret_file=str(tmp_path / "hook")), {}
    )
    from_credential = Target.of(
        Destination(name="a", url="https://x.example", secret_file="hook"),
        {"CREDENTIALS_DIRECTORY": str(tmp_path)},
    )
    assert from_file.secrets == from_credential.secrets == made("https://x.example").secrets


def test_two_secrets_in_a_variable_are_separated_by_a_space():
    config = Destination(name="a", url="https://x.example", secret_env="S")
    assert len(Target.of(config, {"S": f"{SECRET} {SECRET}"}).secrets) == 2


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"secret_file": "/nonexistent/secret"}, "No such file"),
        ({"secret_env": "UNSET"}, "UNSET holds no signing secret"),
        ({}, "no signing secret"),
    ],
)
def test_a_missing_secret_is_a_config_error(changed, wrong):
    with pytest.raises(ConfigError, match=wrong):
        Target.of(Destination(name="a", url="https://x.example", **changed), {})


def test_a_plain_receiver_may_do_without_a_signature():
    assert Target.of(Destination(name="a", url="https://x.example", format="plain"), {}).secrets == ()
