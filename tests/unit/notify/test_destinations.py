# SPDX-License-Identifier: Apache-2.0
"""Where events may go, and where never."""

from __future__ import annotations

import pytest

from hotstage.config.notify import Destination
from hotstage.errors import ConfigError
from hotstage.notify.destinations import (
    RefusedAddressError,
    Target,
    read_targets,
    system_resolver,
    unsafe,
)

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


UNSAFE = [
    ("http://hooks.example/", "http is for loopback only"),
    ("http://10.0.0.5/", "http is for loopback only"),
    ("http://127.0.0.1.nip.example/", "http is for loopback only"),
    ("http://2852039166/", "in disguise"),
    ("http://0x7f.1/", "in disguise"),
    ("http://[::ffff:127.0.0.1]/", "in disguise"),
    ("http://169.254.169.254/", "metadata"),
    ("ftp://hooks.example/", "not an http"),
    ("hooks.example/x", "not an http"),
    ("https:///x", "not an http"),
    ("https://user:pw@hooks.example/", "user and password"),
    ("https://hooks.example@169.254.169.254/", "user and password"),
    ("https://hooks.example\\@evil.example/", "not an http"),
    ("https://hooks.example:99999/", "malformed"),
    ("https://hooks.example:0/", "port 0"),
    ("https://[::1/", "malformed"),
    ("https://hooks.example/\r\nX: y", "not an http"),
    ("https://hooks.example/a b", "not an http"),
    ("https://hooks.example/a#token", "never sent"),
    ("https://hööks.example/", "outside ASCII"),
    ("https://ｈooks.example/", "outside ASCII"),
    ("https://169.254.169.254/latest/meta-data", "link-local or metadata"),
    ("https://[fe80::1]/", "link-local or metadata"),
    ("https://[fe80::1%25eth0]/", "a host with a %"),
    ("https://[fd00:ec2::254]/", "link-local or metadata"),
    ("https://[::ffff:169.254.169.254]/", "in disguise"),
    ("https://[::ffff:8.8.8.8]/", "in disguise"),
    ("https://[64:ff9b::a9fe:a9fe]/", "in disguise"),
    ("https://2852039166/", "in disguise"),
    ("https://0xa9fea9fe/", "in disguise"),
    ("https://0251.0376.0251.0376/", "in disguise"),
    ("https://169.254.43518/", "in disguise"),
    ("https://127.1/", "in disguise"),
    ("https://0x7f.1/", "in disguise"),
    ("https://hooks.example.0x7f/", "in disguise"),
    ("https://169.254.169.254./", "ends in a dot"),
    ("https://hooks.example./", "ends in a dot"),
    ("https://%31%36%39.254.169.254/", "a host with a %"),
    ("https://metadata.google.internal/", "metadata service"),
    ("https://METADATA.google.internal/", "metadata service"),
    ("https://a..b/", "not the name of a host"),
    ("https://-a.example/", "not the name of a host"),
    ("https://0.0.0.0/", "no host's address"),
    ("https://[::]/", "in disguise"),
    ("https://10.1.2.3/", "a private address"),
    ("https://[fd12::1]/", "a private address"),
]


@pytest.mark.parametrize(("url", "wrong"), UNSAFE)
def test_an_unsafe_url_is_refused_with_the_destination_the_reason_and_a_remedy(url, wrong):
    with pytest.raises(ConfigError, match=wrong) as caught:
        made(url)
    assert "notify.destinations a" in caught.value.message
    assert "pw" not in caught.value.message
    assert caught.value.remedy
    (error,) = unsafe([Destination(name="a", url=url)])
    assert error.message == caught.value.message, "a check of the configuration says the same"


@pytest.mark.parametrize(
    ("url", "changed"),
    [
        ("https://hooks.example/x", {}),
        ("https://HOOKS.example/x", {}),
        ("https://xn--hks-sna.example/", {}),
        ("https://1.1.1.1/", {}),
        ("https://3com.example/", {}),
        ("https://under_score.example/", {}),
        ("https://[2606:4700::1111]/", {}),
        ("https://10.1.2.3/", {"allow_private": True}),
        ("http://127.0.0.1:9/", {}),
        ("http://LOCALHOST:9/", {}),
    ],
)
def test_what_is_safe_is_not_refused(url, changed):
    assert unsafe([Destination(name="a", url=url, **changed)]) == []
    assert made(url, **changed).name == "a"


def test_a_refused_destination_leaves_the_others_and_shows_no_secret():
    bad = Destination(name="bad", url="http://user:pw@chat.example/services/T0/XXXX", types=["io.hotstage.b"])
    targets, refused = read_targets(
        [bad, Destination(name="good", url="https://x.example", format="plain")], {}
    )
    assert [each.name for each in targets] == ["good"]
    (each,) = refused
    assert (each.name, each.shown_url) == ("bad", "http://chat.example/…")
    assert "XXXX" not in repr(each) and "pw" not in repr(each)
    assert each.reason and each.remedy
    assert each.wants("io.hotstage.breaker.opened.v1") and not each.wants("io.hotstage.window.opened.v1")


def test_a_missing_secret_refuses_the_one_destination_only():
    lost = Destination(name="lost", url="https://x.example", secret_file="/nonexistent/secret")
    targets, refused = read_targets(
        [lost, Destination(name="b", url="https://x.example", format="plain")], {}
    )
    assert ([each.name for each in targets], [each.name for each in refused]) == (["b"], ["lost"])
    assert "/nonexistent/secret" in refused[0].reason


def test_two_destinations_of_one_name_are_an_error_of_the_whole():
    twice = [Destination(name="a", url="https://x.example", format="plain")] * 2
    with pytest.raises(ConfigError, match="two destinations"):
        read_targets(twice, {})


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://127.0.0.1:9093", "/api/v2/alerts"),
        ("http://127.0.0.1:9093/am/", "/am/api/v2/alerts"),
        ("http://127.0.0.1:9093/api/v2/alerts", "/api/v2/alerts"),
    ],
)
def test_an_alertmanager_is_named_by_its_own_address(url, path):
    assert made(url, format="alertmanager").path == path


def test_the_query_and_the_secret_never_show():
    target = made("https://hooks.example/x?key=hidden")
    assert "hidden" not in repr(target) + target.shown_url + target.identity
    assert "T000" not in repr(made("https://chat.example/services/T000/B000/KEY"))
    assert SECRET[6:] not in repr(target)


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


def test_the_identity_tells_two_urls_apart_that_look_the_same():
    one, other = made("https://chat.example/services/A"), made("https://chat.example/services/B")
    assert one.shown_url == other.shown_url
    assert one.identity != other.identity == made("https://chat.example/services/B").identity


def test_an_address_that_the_resolver_made_up_is_an_os_error():
    with pytest.raises(OSError, match="no address but"):
        resolved(made(), "not an address")


def test_who_hears_how_an_alert_begins_hears_how_it_ends():
    picky = made(format="alertmanager", types=["io.hotstage.window.opened"])
    assert picky.wants("io.hotstage.window.closed.v1")
    assert not picky.wants("io.hotstage.breaker.closed.v1")
    assert not made(types=["io.hotstage.window.opened"]).wants("io.hotstage.window.closed.v1")


def test_types_are_prefixes_and_none_means_all():
    assert made().wants("io.hotstage.window.opened.v1")
    picky = made(types=["io.hotstage.breaker.", "io.hotstage.test.v1"])
    assert picky.wants("io.hotstage.breaker.closed.v1")
    assert not picky.wants("io.hotstage.window.opened.v1")
