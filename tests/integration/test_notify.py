# SPDX-License-Identifier: Apache-2.0
"""From a decision to a receiver, over real processes: how fast, how independent, how patient."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time


def test_decision_to_page_and_to_receiver_are_fast(
    start_agent, start_notifier, receive, until, record_property
):
    agent, receiver = start_agent(), receive()
    start_notifier({"hook": receiver.port})
    assert agent.trip("warm")
    until(lambda: receiver.totals()["verified"] == 1, "the first delivery")
    page = []
    for number in range(100):
        agent.order(f"trip {number % 7}")
        page.append(agent.answer("page")["seconds"])
        assert agent.answer("committed")
        time.sleep(0.01)
    until(lambda: receiver.totals()["verified"] == 101, "100 deliveries")
    page_p99 = sorted(page)[98]
    received_p99 = sorted(d.latency_seconds for d in receiver.deliveries[1:])[98]
    record_property("decision_to_page_p99_seconds", page_p99)
    record_property("decision_to_received_p99_seconds", received_p99)
    print(f"decision to page p99 {page_p99 * 1e3:.2f} ms, to receiver p99 {received_p99 * 1e3:.1f} ms")
    # Budgets of the design are 5 ms and 250 ms; the machine that runs the tests is shared.
    assert page_p99 < 0.02
    assert received_p99 < 1.0


def test_a_destination_that_is_down_and_one_that_hangs_delay_nobody(
    start_agent, start_notifier, receive, until
):
    agent, receiver = start_agent(), receive()
    with socket.create_server(("127.0.0.1", 0)) as hanging, socket.create_server(("127.0.0.1", 0)) as free:
        down = free.getsockname()[1]
        free.close()
        ports = {"down": down, "hangs": hanging.getsockname()[1], "works": receiver.port}
        start_notifier(ports, total_timeout_seconds=2.0)
        for number in range(10):
            assert agent.trip(number)
        until(lambda: receiver.totals()["verified"] == 10, "ten deliveries beside two broken destinations")
        assert max(d.latency_seconds for d in receiver.deliveries) < 5


def test_a_destination_that_answers_500_gets_everything_once_it_recovers(
    start_agent, start_notifier, receive, until
):
    healed = []
    receiver = receive(answer=lambda delivery, before: 200 if healed else 500)
    agent = start_agent()
    start_notifier({"hook": receiver.port})
    for number in range(5):
        assert agent.trip(number)
    until(lambda: len(receiver.deliveries) >= 5, "attempts")
    healed.append(True)
    until(lambda: receiver.totals()["verified"] == 5, "all five events")


def test_the_agent_learns_how_deliveries_stand(start_agent, start_notifier, receive, until, tmp_path):
    agent, receiver = start_agent(), receive()
    start_notifier({"hook": receiver.port})
    assert agent.trip("a")
    until(lambda: receiver.totals()["verified"] == 1, "the delivery")
    # The outbox is empty once the notifier has acknowledged.
    from hotstage.notify.pull import Agent

    asking = Agent(agent.socket_path)
    until(lambda: asking.outbox(0, 0).rows == [], "the acknowledgement")


def test_the_notifier_ends_cleanly_within_its_time_even_while_a_receiver_hangs(
    start_agent, start_notifier, until
):
    agent = start_agent()
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        notifier = start_notifier({"hangs": hanging.getsockname()[1]})
        assert agent.trip("a")
        connection, _ = hanging.accept()
        began = time.monotonic()
        notifier.send_signal(signal.SIGTERM)
        assert notifier.wait(10) == 0
        assert time.monotonic() - began < 4
        connection.close()


def test_the_receiver_command_prints_its_port_and_one_line_a_delivery(
    start_agent, start_notifier, until, tmp_path
):
    (tmp_path / "secret").write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    command = [sys.executable, "-m", "hotstage.notify.receiver", "--secret-file", str(tmp_path / "secret")]
    with subprocess.Popen(
        [*command, "--log", str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as process:
        listening = json.loads(process.stdout.readline())
        agent = start_agent()
        start_notifier({"hook": listening["port"]})
        assert agent.trip("a")
        delivery = json.loads(process.stdout.readline())
        assert (delivery["event"], delivery["verified"]) == ("delivery", True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert json.loads((tmp_path / "log").read_text()) == delivery
