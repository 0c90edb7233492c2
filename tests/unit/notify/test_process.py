# SPDX-License-Identifier: Apache-2.0
"""The notifier's parts put together, and what it refuses before it begins."""

from __future__ import annotations

import time

import pytest

from hotstage.clock import SystemClock
from hotstage.config.settings import Destination, NotifyConfig
from hotstage.errors import ConfigError, StoreError
from hotstage.notify.process import Notifier, send_test, targets_of


@pytest.fixture
def config(tmp_path, secret_text):
    (tmp_path / "secret").write_text(secret_text)

    def build(*ports, **changed):
        destinations = [
            Destination(
                name=f"d{port}", url=f"http://127.0.0.1:{port}/", secret_file=str(tmp_path / "secret")
            )
            for port in ports
        ]
        fields = {
            "agent_socket": str(tmp_path / "none.sock"),
            "directory": str(tmp_path / "notify"),
            "destinations": destinations,
        }
        return NotifyConfig(**(fields | changed))

    return build


def test_what_waits_from_an_earlier_run_is_delivered_though_no_agent_answers(config, receive, held):
    receiver = receive()
    settings = config(receiver.port)
    earlier = Notifier(settings, {}, SystemClock())
    earlier.database.hold("store", [held(1)], [[f"d{receiver.port}"]], time.time_ns())
    earlier.database.close()
    notifier = Notifier(settings, {}, SystemClock())
    notifier.start()
    deadline = time.monotonic() + 10
    while not receiver.deliveries:
        assert time.monotonic() < deadline, "nothing was delivered within 10 s"
        time.sleep(0.01)
    notifier.stop()
    notifier.database.close()
    assert receiver.deliveries[0].verified


def test_a_thread_that_does_not_run_is_named(config, receive):
    notifier = Notifier(config(receive().port), {}, SystemClock())
    before = notifier.fallen()
    notifier.start()
    try:
        assert notifier.fallen() == []
    finally:
        notifier.stop()
        notifier.database.close()
    assert before == ["hotstage-pull", "hotstage-report", f"hotstage-to-{notifier.targets[0].name}"]


def test_a_wrong_destination_is_said_before_anything_is_opened(config, tmp_path):
    with pytest.raises(ConfigError, match=r"notify\.destinations d1"):
        Notifier(
            config(1, destinations=[Destination(name="d1", url="http://hooks.example/")]), {}, SystemClock()
        )
    assert not (tmp_path / "notify").exists()


def test_two_destinations_of_one_name_are_refused(config):
    with pytest.raises(ConfigError, match="two destinations"):
        targets_of(config(7, 7), {})


def test_a_directory_that_cannot_be_used_is_a_store_error(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write in"):
        Notifier(config(directory=str(tmp_path / "file" / "x")), {}, SystemClock())


def test_a_test_event_goes_past_the_queue_to_one_destination(config, receive, held):
    receiver, other = receive(), receive()
    settings = config(receiver.port, other.port)
    assert send_test(settings, f"d{receiver.port}", held(1), {}).kind == "delivered"
    assert (len(receiver.deliveries), len(other.deliveries)) == (1, 0)


def test_a_test_for_a_destination_that_is_not_there_names_those_that_are(config, held):
    with pytest.raises(ConfigError) as caught:
        send_test(config(7), "nope", held(1), {})
    assert caught.value.remedy == "configured: d7"
