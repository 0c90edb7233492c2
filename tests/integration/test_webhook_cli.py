# SPDX-License-Identifier: Apache-2.0
"""`hotstage webhook` as a person uses it, beside a running notifier and without one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.receivers import RawReceiver, Reply

from hotstage.config.load import load
from hotstage.config.render import toml

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOKEN = "t0k3n-of-the-receiver"


@pytest.fixture
def receiver():
    with RawReceiver() as running:
        yield running


@pytest.fixture
def config_file(tmp_path, receiver):
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "token").write_text(TOKEN)
    tree = {
        "notify": {
            "agent_socket": str(tmp_path / "agent" / "agent.sock"),
            "directory": str(tmp_path / "notify"),
            "retry_base_seconds": 0.05,
            "destinations": [
                {
                    "name": "hook",
                    "url": f"{receiver.url}/services/KEY-IN-PATH?key=KEY-IN-QUERY",
                    "secret_file": str(tmp_path / "secret"),
                    "authorization_file": str(tmp_path / "token"),
                },
                {"name": "chat", "url": "http://0x7f.1/services/T0/KEY-IN-PATH", "format": "slack"},
            ],
        }
    }
    file = tmp_path / "config.toml"
    file.write_text(toml(tree))
    return file


@pytest.fixture
def hotstage(config_file):
    """`hotstage(…)` → (exit code, standard output, standard error); no secret is ever in them."""

    def run(*arguments):
        command = [sys.executable, "-m", "hotstage", "--config", str(config_file), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        for secret in (SECRET, SECRET[6:], TOKEN, "KEY-IN-PATH", "KEY-IN-QUERY"):
            assert secret not in done.stdout + done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_test_event_is_signed_and_authorized_and_tells_how_it_went(hotstage, receiver):
    code, out, _ = hotstage("webhook", "test", "hook", "--json")
    assert code == 0
    (result,) = json.loads(out)["tests"]
    assert (result["delivered"], result["status"], result["address"]) == (True, 200, "127.0.0.1")
    assert 0 < result["latency_ms"] < 5_000
    (request,) = receiver.requests
    assert request.json["type"] == "io.hotstage.test.v1"
    assert request.json["source"].startswith("urn:hotstage:")
    assert request.headers["webhook-signature"].startswith("v1,")
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.path == "/services/KEY-IN-PATH?key=KEY-IN-QUERY"


def test_a_refused_destination_fails_with_its_reason_and_remedy_and_the_others_are_tried(hotstage, receiver):
    code, out, err = hotstage("webhook", "test", "--all")
    assert code == 1
    assert "hook: answered 200" in out
    assert "chat: not delivered: notify.destinations chat: 0x7f.1 is an IPv4 address in disguise" in err
    assert "remedy: write an address as four decimal numbers" in err
    code, _, err = hotstage("config", "check")
    assert code == 3
    assert "a destination is refused: notify.destinations chat" in err and "remedy:" in err


def test_destinations_are_listed_before_any_notifier_ran_and_an_unknown_one_names_the_known(hotstage):
    code, out, _ = hotstage("webhook", "test", "--json")
    assert code == 0
    hook, chat = json.loads(out)["destinations"]
    assert (hook["state"], hook["pending"], chat["state"]) == ("new", None, "refused")
    assert hook["url"].endswith("/…") and "services" not in hook["url"]
    code, _, err = hotstage("webhook", "test", "nope")
    assert code == 2
    assert "configured: hook, chat" in err
    code, _, err = hotstage("webhook", "replay")
    assert code == 4
    assert "start the notifier once" in err


def test_list_and_replay_work_while_the_notifier_runs_and_when_it_does_not(
    hotstage, receiver, start_agent, start_notifier_on, until, config_file
):
    config = load(config_file, {}).notify
    receiver.script = lambda request, before: Reply(410)
    agent = start_agent()
    notifier = start_notifier_on(config)
    assert agent.trip("a") and agent.trip("a") and agent.trip("b")

    def listed():
        return {
            each["name"]: each
            for each in json.loads(hotstage("webhook", "list", "--json")[1])["destinations"]
        }

    hook = until(lambda: (found := listed()["hook"])["dead"] == 3 and found, "three dead letters")
    assert (hook["state"], hook["pending"], hook["delivered"]) == ("disabled", 0, 0)
    assert hook["disabled_at"] and "410" in hook["last_error"]
    assert listed()["chat"]["pending"] == 3, "the refused one's events wait"

    receiver.script = lambda request, before: Reply(200)
    code, out, _ = hotstage("webhook", "replay", "hook", "--json")
    assert (code, json.loads(out)["replayed"][0]) == (
        0,
        {"name": "hook", "queued": 3, "queued_after_them": 0, "tried_at_once": 0, "enabled_again": True},
    )
    until(lambda: len(receiver.requests) == 4, "three deliveries after the replay")
    first, *again = receiver.requests
    assert first.headers["webhook-id"] == again[0].headers["webhook-id"]
    types = [request.json["type"].split(".")[3] for request in again if "sa" in request.json["subject"]]
    assert types == ["opened", "closed"], "in order"
    until(lambda: listed()["hook"]["delivered"] == 3, "the note of them")

    notifier.kill()
    notifier.wait(10)
    code, out, _ = hotstage("webhook", "replay", "hook", "--id", again[0].headers["webhook-id"], "--json")
    assert json.loads(out)["replayed"][0]["queued"] == 1
    assert json.loads(out)["replayed"][0]["queued_after_them"] == 1, "what closed it comes with it"
    assert hotstage("webhook", "replay", "hook", "--id", "evt_none")[0] == 1
    code, out, _ = hotstage("webhook", "replay", "--since", "1h", "--json")
    assert [each["queued"] for each in json.loads(out)["replayed"]] == [1, 0]
    start_notifier_on(config)
    until(lambda: len(receiver.requests) == 7, "all three once more")
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 3
    assert hotstage("webhook", "replay", "--dead", "--id", "x")[0] == 2
