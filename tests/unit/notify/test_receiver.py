# SPDX-License-Identifier: Apache-2.0
"""The receiver believes nothing that is not signed."""

from __future__ import annotations

import http.client
import json
import socket
import time

import pytest

from hotstage.notify.receiver import main
from hotstage.notify.signing import Secret, headers


def post(receiver, sent, body):
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=5)
    connection.request("POST", "/", body, sent)
    status = connection.getresponse().status
    connection.close()
    return status


def body_of(created_ns):
    return json.dumps({"type": "t", "subject": "s", "createdns": str(created_ns)}).encode()


def test_a_genuine_delivery_is_accepted_with_its_latency(receive, secret):
    receiver = receive()
    body = body_of(time.time_ns() - 50_000_000)
    assert post(receiver, headers([secret], "e1", int(time.time()), body), body) == 200
    (delivery,) = receiver.deliveries
    assert (delivery.id, delivery.type, delivery.subject, delivery.verified) == ("e1", "t", "s", True)
    assert 0.05 <= delivery.latency_seconds < 5


def test_a_forged_one_is_refused_and_recorded(receive):
    receiver = receive()
    other = Secret.parse("whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY", "x")
    assert post(receiver, headers([other], "e1", int(time.time()), b"{}"), b"{}") == 401
    assert post(receiver, {}, b"not json") == 401
    assert [d.verified for d in receiver.deliveries] == [False, False]
    assert receiver.totals() == {"received": 2, "verified": 0, "rejected": 2}


def test_a_stale_one_is_refused(receive, secret):
    receiver = receive()
    assert post(receiver, headers([secret], "e1", int(time.time()) - 400, b"{}"), b"{}") == 401
    assert "five minutes" in receiver.deliveries[0].error


def test_a_repeated_id_counts_once(receive, secret):
    receiver = receive()
    for _ in range(2):
        post(receiver, headers([secret], "e1", int(time.time()), b"{}"), b"{}")
    assert [d.is_replayed for d in receiver.deliveries] == [False, True]
    assert receiver.totals()["verified"] == 1


def test_a_delivery_that_was_answered_with_an_error_is_not_a_replay_next_time(receive, secret):
    receiver = receive(answer=lambda delivery, before: 500 if before == 0 else 200)
    for _ in range(2):
        post(receiver, headers([secret], "e1", int(time.time()), b"{}"), b"{}")
    assert [(d.answered, d.is_replayed) for d in receiver.deliveries] == [(500, False), (200, False)]


def test_a_ten_megabyte_body_is_refused(receive):
    assert post(receive(), {"Content-Length": "10000000"}, b"") == 413


def test_totals_are_served(receive):
    receiver = receive()
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=5)
    connection.request("GET", "/")
    assert json.load(connection.getresponse()) == {"received": 0, "verified": 0, "rejected": 0}
    connection.close()


ALERTS = {
    "version": "4",
    "status": "firing",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "A"},
            "fingerprint": "f1",
            "startsAt": "2026-11-29T00:00:00Z",
        },
        {
            "status": "resolved",
            "labels": {"alertname": "B"},
            "fingerprint": "f2",
            "startsAt": "2026-11-29T00:00:00Z",
        },
    ],
}


def test_alertmanagers_alerts_are_taken_with_the_bearer_token_only(receive):
    receiver = receive(bearer="t" * 32)
    body = json.dumps(ALERTS).encode()
    assert post(receiver, {"Authorization": "Bearer " + "t" * 32}, body) == 200
    assert [(d.type, d.subject, d.verified) for d in receiver.deliveries] == [
        ("alert.firing", "A", True),
        ("alert.resolved", "B", True),
    ]
    assert post(receiver, {"Authorization": "Bearer wrong"}, body) == 401
    assert post(receiver, {}, body) == 401
    assert receiver.totals() == {"received": 4, "verified": 2, "rejected": 2}


def test_an_alert_that_is_sent_again_is_a_replay_and_its_end_is_not(receive):
    receiver = receive(bearer="t" * 32)
    firing = {"version": "4", "alerts": ALERTS["alerts"][:1]}
    resolved = {"version": "4", "alerts": [{**ALERTS["alerts"][0], "status": "resolved"}]}
    for content in (firing, firing, resolved):
        post(receiver, {"Authorization": "Bearer " + "t" * 32}, json.dumps(content).encode())
    assert [d.is_replayed for d in receiver.deliveries] == [False, True, False]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"version":"3","alerts":[]}',
        b'{"version":"4","alerts":[1]}',
        b'{"version":"4","alerts":[{}]}',
    ],
)
def test_what_is_no_alertmanager_body_is_refused(receive, content):
    receiver = receive(bearer="t" * 32)
    assert post(receiver, {"Authorization": "Bearer " + "t" * 32}, content) == 400
    assert "Alertmanager" in receiver.deliveries[0].error


def test_a_token_does_not_replace_a_signature(receive, secret):
    receiver = receive(bearer="t" * 32)
    sent = {"Authorization": "Bearer " + "t" * 32, "webhook-id": "e1"}
    assert post(receiver, sent, json.dumps(ALERTS).encode()) == 401


def test_without_a_token_of_its_own_it_takes_no_alerts(receive):
    assert post(receive(), {"Authorization": "Bearer x"}, json.dumps(ALERTS).encode()) == 401


def test_the_command_refuses_a_token_that_can_be_guessed(tmp_path, capsys):
    (tmp_path / "token").write_text("secret\n")
    assert main(["--bearer-file", str(tmp_path / "token")]) == 2
    said = capsys.readouterr().err
    assert "bearer token" in said and "secret" not in said


def test_the_command_wants_something_to_check_by(capsys):
    with pytest.raises(SystemExit):
        main([])
    assert "--bearer-file" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "whsec_short"])
def test_the_command_refuses_a_file_without_a_secret(tmp_path, capsys, content):
    (tmp_path / "secret").write_text(content)
    assert main(["--secret-file", str(tmp_path / "secret")]) == 2
    assert "signing secret" in capsys.readouterr().err


def test_a_body_that_its_sender_did_not_finish_is_no_delivery(receive):
    receiver = receive()
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=5) as connection:
        connection.sendall(b"POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    assert receiver.deliveries == []
