# SPDX-License-Identifier: Apache-2.0
"""What receivers do to a notifier, good and bad, and what it does then. Real sockets, a real agent's outbox.

Signatures that are wrong, stale or repeated are the receiver's: `tests/unit/notify/test_receiver.py`.
kill -9 between a POST and its note is in `test_outbox.py`.
"""

from __future__ import annotations

import base64
import ssl
import subprocess
import time
from contextlib import contextmanager

import pytest
import standardwebhooks
from support.receivers import RawReceiver, Reply

from hotstage.clock import SystemClock
from hotstage.config.notify import Destination, NotifyConfig
from hotstage.notify.process import Notifier

OLD, NEW, FOREIGN = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))


@pytest.fixture
def notify(tmp_path):
    """`with notify(Destination(…), resolver=…) as notifier`: a notifier on this test's agent."""

    @contextmanager
    def run(*destinations, resolver=None, **settings):
        config = NotifyConfig(
            agent_socket=str(tmp_path / "agent" / "agent.sock"),
            directory=str(tmp_path / "notify"),
            destinations=list(destinations),
            **{"retry_base_seconds": 0.05, "retry_max_seconds": 5.0, "total_timeout_seconds": 2.0} | settings,
        )
        notifier = Notifier(config, {}, SystemClock(), **({"resolver": resolver} if resolver else {}))
        notifier.start()
        try:
            yield notifier
        finally:
            notifier.stop()
            notifier.database.close()

    return run


def counts(notifier, name="hook"):
    (found,) = notifier.database.counts([name])
    return found


def hook(receiver, **changed):
    return Destination(**({"name": "hook", "url": receiver.url + "/in", "format": "plain"} | changed))


def test_a_rotated_secret_satisfies_who_has_the_old_key_and_who_has_the_new(
    start_agent, notify, until, tmp_path
):
    (tmp_path / "secrets").write_text(f"{NEW}\n{OLD}\n")
    agent = start_agent()
    with RawReceiver() as receiver:
        destination = hook(receiver, format="cloudevents", secret_file=str(tmp_path / "secrets"))
        with notify(destination):
            assert agent.trip("a")
            until(lambda: receiver.requests, "the delivery")
    (request,) = receiver.requests
    for key in (OLD, NEW):
        assert (
            standardwebhooks.Webhook(key).verify(request.body, dict(request.headers))["specversion"] == "1.0"
        )
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(FOREIGN).verify(request.body, dict(request.headers))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_the_event_waits(start_agent, notify, until, status):
    agent = start_agent()
    with RawReceiver() as elsewhere, RawReceiver() as receiver:
        receiver.script = lambda request, before: Reply(status, {"Location": elsewhere.url + "/stolen"})
        with notify(hook(receiver)) as notifier:
            assert agent.trip("a")
            until(lambda: counts(notifier).failed >= 1, "a failed attempt")
            assert "redirects are not followed" in counts(notifier).error
            receiver.script = lambda request, before: Reply(200)
            until(lambda: counts(notifier).delivered == 1, "the delivery once the receiver has settled")
        assert elsewhere.requests == []
        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


def test_410_ends_it_at_once(start_agent, notify, until):
    agent = start_agent()
    with RawReceiver(lambda request, before: Reply(410)) as receiver, notify(hook(receiver)) as notifier:
        assert agent.trip("a")
        until(lambda: counts(notifier).disabled_error, "the end")
        assert agent.trip("b")
        until(lambda: counts(notifier).dead == 2, "the next event as a dead letter")
        assert len(receiver.requests) == 1


def test_429_with_retry_after_gives_the_receiver_its_rest(start_agent, notify, until):
    agent = start_agent()
    with RawReceiver() as receiver:
        receiver.script = lambda request, before: (
            Reply(429, {"Retry-After": "1"}) if before == 0 else Reply(200)
        )
        with notify(hook(receiver)) as notifier:
            assert agent.trip("a")
            until(lambda: receiver.requests, "the first attempt")
            assert agent.trip("b")
            until(lambda: counts(notifier).delivered == 2, "both deliveries")
        waited = [later.at - receiver.requests[0].at for later in receiver.requests[1:]]
        assert min(waited) >= 0.95, "no subject is sent meanwhile, though a retry was due after 0.05 s"


def test_a_body_that_drips_or_is_huge_costs_nothing(start_agent, notify, until):
    agent = start_agent()
    with RawReceiver() as receiver, notify(hook(receiver)) as notifier:
        receiver.script = lambda request, before: (
            Reply(200, body=b"x" * 50, drip_seconds=0.2)
            if before == 0
            else Reply(200, body=b"x" * 10_000_000)
        )
        began = time.monotonic()
        assert agent.trip("a") and agent.trip("b")
        until(lambda: counts(notifier).delivered == 2, "both deliveries")
        assert time.monotonic() - began < 2, "ten seconds of dripping are not waited for"
        assert counts(notifier).failed == 0


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """A certificate for `right.example` of an authority that this process trusts."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=tmp_path)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req", "-x509", *new_key, "-subj", "/CN=test CA", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"
    )
    openssl("req", *new_key, "-subj", "/CN=right.example", "-keyout", "leaf.key", "-out", "leaf.csr")
    (tmp_path / "san").write_text("subjectAltName=DNS:right.example")
    openssl(
        "x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", "san", "-out", "leaf.pem",
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "leaf.pem", tmp_path / "leaf.key")
    return context


def test_a_certificate_of_another_name_gets_nothing(start_agent, notify, until, authority):
    agent = start_agent()
    with RawReceiver(tls=authority) as receiver:
        right, wrong = (
            hook(
                receiver, name=name, url=f"https://{name}.example:{receiver.port}/{name}", allow_private=True
            )
            for name in ("right", "wrong")
        )
        with notify(right, wrong, resolver=lambda host, port: ["127.0.0.1"]) as notifier:
            assert agent.trip("a")
            until(lambda: counts(notifier, "right").delivered == 1, "the delivery under the right name")
            until(lambda: counts(notifier, "wrong").failed >= 1, "the refusal of the wrong name")
            assert "certificate is not accepted" in counts(notifier, "wrong").error
        assert {request.path for request in receiver.requests} == {"/right"}


def test_a_name_that_flips_to_the_metadata_service_is_not_followed_there(start_agent, notify, until):
    agent = start_agent()
    asked = []

    def resolver(host, port):
        if host != "hooks.example":
            return [host]
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.1", "169.254.169.254"]

    with RawReceiver() as receiver:
        # Without TLS on the other side the first attempt, at an allowed address, fails as well.
        flips = hook(
            receiver, name="flips", url=f"https://hooks.example:{receiver.port}/", allow_private=True
        )
        with notify(hook(receiver), flips, resolver=resolver) as notifier:
            assert agent.trip("a")
            until(lambda: counts(notifier, "flips").failed >= 2, "two attempts")
            assert counts(notifier, "flips").error == (
                "hooks.example is 169.254.169.254, a link-local or metadata address"
            )
            assert counts(notifier, "flips").pending == 1, "the event waits for an answer that is allowed"
            until(lambda: counts(notifier).delivered == 1, "the delivery to the other one")
