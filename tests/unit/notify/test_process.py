# SPDX-License-Identifier: Apache-2.0
"""The notifier's parts put together, and what it refuses before it begins."""

from __future__ import annotations

import time

import pytest

from hotstage.clock import SystemClock
from hotstage.config.notify import Destination, NotifyConfig
from hotstage.errors import ConfigError, StoreError
from hotstage.notify.db import NotifyDatabase
from hotstage.notify.destinations import Target
from hotstage.notify.process import Notifier, may_begin_again, send_test
from hotstage.service import NoManager


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


def test_a_stop_leaves_everything_in_the_file_and_lets_go_of_the_directory(config, receive, held, tmp_path):
    settings = config(receive().port)
    notifier = Notifier(settings, {}, SystemClock())
    notifier.database.hold("store", [held(1)], [["elsewhere"]], time.time_ns())
    notifier.start()
    notifier.stop()
    assert sorted(path.name for path in (tmp_path / "notify").iterdir()) == [
        "lock",
        "notify.db",
        "notify.db-reserve",
    ]
    Notifier(settings, {}, SystemClock()).database.close()


def test_a_refused_destination_stops_nobody_and_its_events_wait_until_it_is_mended(
    config, receive, held, caplog, tmp_path
):
    receiver = receive()
    bad = Destination(name="bad", url="http://hooks.example/services/T0/KEY", format="plain")
    settings = config(destinations=[bad, *config(receiver.port).destinations])
    notifier = Notifier(settings, {}, SystemClock())
    names = [f"d{receiver.port}", "bad"]
    notifier.database.hold("store", [held(1)], [names], time.time_ns())
    notifier.start()
    deadline = time.monotonic() + 10
    while not receiver.deliveries:
        assert time.monotonic() < deadline, "the good destination got nothing within 10 s"
        time.sleep(0.01)
    assert [counts.pending for counts in notifier.database.counts(["bad"])] == [1]
    notifier.stop()
    told = [record for record in caplog.records if "refused" in record.message]
    assert len(told) == 1 and "http is for loopback only" in told[0].message
    assert "KEY" not in caplog.text
    assert "refused: bad" in notifier.status()
    notifier.database.close()

    mended = Destination(name="bad", url=f"http://127.0.0.1:{receiver.port}/", format="plain")
    notifier = Notifier(config(destinations=[mended]), {}, SystemClock())
    notifier.start()
    deadline = time.monotonic() + 10
    while len(receiver.deliveries) < 2:
        assert time.monotonic() < deadline, "what had waited was not sent within 10 s"
        time.sleep(0.01)
    notifier.stop()
    notifier.database.close()


def test_two_destinations_of_one_name_are_refused_before_anything_is_opened(config, tmp_path):
    with pytest.raises(ConfigError, match="two destinations"):
        Notifier(config(7, 7), {}, SystemClock())
    assert not (tmp_path / "notify").exists()


def test_a_directory_that_cannot_be_used_is_a_store_error(config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write in"):
        Notifier(config(directory=str(tmp_path / "file" / "x")), {}, SystemClock())


def test_a_test_event_goes_past_the_queue_and_tells_how_it_went(config, receive, held):
    receiver = receive()
    settings = config(receiver.port)
    target = Target.of(settings.destinations[0], {})
    outcome = send_test(settings, target, held(1))
    assert (outcome.kind, outcome.status, outcome.address) == ("delivered", 200, "127.0.0.1")
    assert 0 < outcome.seconds < 5
    assert len(receiver.deliveries) == 1


def test_a_test_that_the_resolver_spoils_tells_the_reason_and_the_remedy(config, held):
    target = Target.of(Destination(name="a", url="https://hooks.example/", format="plain"), {})
    outcome = send_test(config(), target, held(1), resolver=lambda host, port: ["10.0.0.1"])
    assert outcome.error == "hooks.example is 10.0.0.1, a private address"
    assert "allow_private" in outcome.remedy
    assert (outcome.status, outcome.address) == (None, None)


class Manager(NoManager):
    """What the service manager is told."""

    def __init__(self):
        self.told = []

    def ready(self, status):
        self.told.append(status)


def test_a_reload_that_would_break_a_working_destination_changes_nothing(config, held):
    notifier = Notifier(config(7), {}, SystemClock())
    broken = [Destination(name="d7", url="http://hooks.example/", format="plain")]
    manager = Manager()
    assert not may_begin_again(manager, lambda: config(destinations=broken), notifier)
    assert "not reloaded: notify.destinations d7: http is for loopback only" in manager.told[0]
    assert not may_begin_again(manager, lambda: config(7, 7), notifier)
    assert "two destinations" in manager.told[1]
    notifier.database.close()


def test_a_reload_may_bring_one_that_is_refused_beside_those_that_work(config):
    notifier = Notifier(config(7), {}, SystemClock())
    new = Destination(name="new", url="http://hooks.example/", format="plain")
    wanted = config(destinations=[*config(7).destinations, new])
    assert may_begin_again(Manager(), lambda: wanted, notifier)
    notifier.database.close()


@pytest.mark.parametrize("kind", ["a file", "below a file", "held by another", "a directory as database"])
def test_a_reload_into_a_directory_that_cannot_be_used_changes_nothing(config, tmp_path, kind, caplog):
    place = tmp_path / "other"
    other = None
    if kind == "held by another":
        other = NotifyDatabase(place)
    elif kind == "a directory as database":
        (place / "notify.db").mkdir(parents=True)
    else:
        place.write_text("")
    notifier = Notifier(config(7), {}, SystemClock())
    manager = Manager()
    wanted = config(7, directory=str(place / "x" if kind == "below a file" else place))
    assert not may_begin_again(manager, lambda: wanted, notifier)
    assert str(place) in manager.told[0]
    assert "not reloaded" in caplog.text
    notifier.database.hold("store", [], [], time.time_ns())
    notifier.database.close()
    if other is not None:
        other.close()


def test_a_reload_into_a_new_directory_leaves_it_free_for_the_next_run(config, tmp_path):
    notifier = Notifier(config(7), {}, SystemClock())
    wanted = config(7, directory=str(tmp_path / "new/place"))
    assert may_begin_again(Manager(), lambda: wanted, notifier)
    Notifier(wanted, {}, SystemClock()).database.close()
    assert may_begin_again(Manager(), lambda: config(7), notifier), "its own is held by itself"
    notifier.database.close()


def test_an_error_that_nobody_foresaw_while_reading_ends_no_notifier(config, caplog):
    def fail():
        raise RecursionError("deep")

    notifier = Notifier(config(7), {}, SystemClock())
    manager = Manager()
    assert not may_begin_again(manager, fail, notifier)
    assert "RecursionError" in manager.told[0]
    notifier.database.close()
