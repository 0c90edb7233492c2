# SPDX-License-Identifier: Apache-2.0
"""`hotstage top` as a person has it: keys, other sizes of the terminal, interrupts, an agent that goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from support.answers import answering
from support.terminals import on_terminal
from support.top_agent import TopAgent

LEFT = b"\x1b[?25h\x1b[?1049l"


def command(address, *options):
    return [sys.executable, "-m", "hotstage", "top", "--agent", address, "--interval", "0.2", *options]


@pytest.fixture
def live():
    """`hotstage top` on 120 × 20, with what it asks: (program, agent)."""
    agent = TopAgent(processes=40)
    with (
        answering(agent.answer) as address,
        on_terminal(command(address), (120, 20), {"TERM": "xterm", "NO_COLOR": ""}) as program,
    ):
        program.until(lambda: "server-100" in program.text and len(program.screen) == 20, "the first table")
        yield program, agent


def test_keys_change_the_view_the_order_and_the_rows_and_q_ends(live):
    program, _ = live
    assert "host gpu-7" in program.screen[0] and "server-139" not in program.text
    program.press("t")
    program.until(lambda: "vision_encode" in program.text, "the stages")
    program.press("p")
    program.until(lambda: "server-100" in program.text, "the processes again")
    program.press("s")
    program.until(lambda: "call/s▾" in program.text, "the next order")
    program.press("j\x1b[B")
    program.until(lambda: "rows 3-" in program.text, "two rows further")
    program.press("\x1b[6~" * 9)
    program.until(lambda: "of 40" in program.text and "server-139" in program.text, "the last row")
    program.press("q")
    assert program.wait() == 0
    assert program.raw.endswith(LEFT) and program.is_cooked()


def test_a_resize_is_drawn_at_once(live):
    program, _ = live
    program.resize(50, 10)
    program.until(lambda: len(program.screen) == 10, "ten lines")
    assert max(map(len, program.screen)) <= 50
    program.resize(160, 30)
    program.until(lambda: len(program.screen) == 30 and "no stage" in program.text, "all columns")


def test_losses_appear_when_they_come_and_go_with_the_next_look(live):
    program, agent = live
    program.until(lambda: "losses in the last" in program.text, "a second look")
    agent.losses = {"lost_threads": 5}
    program.until(lambda: "lost_threads 5, may falsify" in program.text, "the loss")
    program.until(lambda: ": none" in program.text, "an interval without")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_whatever_ends_it_leaves_the_terminal_as_it_was(live, number, code):
    program, _ = live
    if number is signal.SIGINT:
        program.press("\x03")
    else:
        os.kill(program.pid, number)
    assert program.wait() == code
    assert LEFT in program.raw and program.is_cooked()


def test_a_stop_lends_the_terminal_back_and_it_goes_on_later(live):
    program, _ = live
    program.press("\x1a")
    program.until(lambda: os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WNOHANG) is not None, "the stop")
    program.until(lambda: program.raw.endswith(LEFT) and program.is_cooked(), "the shell's screen")
    drawn = program.raw.count(b"\x1b[?1049h")
    os.kill(program.pid, signal.SIGCONT)
    program.until(lambda: program.raw.count(b"\x1b[?1049h") == drawn + 1, "its own screen again")
    program.until(lambda: "host gpu-7" in program.text, "the table again")


def test_an_agent_that_goes_is_named_with_the_remedy_and_one_that_comes_back_is_shown():
    agent = TopAgent()
    with answering(agent.answer) as address:
        terminal = on_terminal(command(address), (120, 20), {"TERM": "xterm"})
        program = terminal.__enter__()
        program.until(lambda: "server-100" in program.text, "the first table")
    try:
        program.until(lambda: "no agent answers at" in program.text, "the trouble")
        assert "remedy: start one with `hotstage agent`" in program.text
        assert "server-100" in program.text, "what was known stays"
        agent.processes = 3
        with answering(agent.answer, urlsplit(address).port):
            program.until(lambda: "server-102" in program.text, "the agent again")
            assert "no answer" not in program.text
            program.press("q")
            assert program.wait() == 0
    finally:
        terminal.__exit__(None, None, None)


def test_an_agent_that_hangs_does_not_take_the_keys_away():
    agent = TopAgent()
    answers = iter(range(6))  # a look and a bit

    def answer(path):
        if next(answers, None) is None:
            time.sleep(3)
        return agent.answer(path)

    with (
        answering(answer) as address,
        on_terminal(command(address), (120, 20), {"TERM": "xterm"}) as program,
    ):
        program.until(lambda: "server-100" in program.text, "the first table")
        program.press("tq")
        began = time.monotonic()
        assert program.wait() == 0
        assert time.monotonic() - began < 2


def ended(*arguments, **environment):
    return subprocess.run(
        arguments, check=False, capture_output=True, text=True, timeout=30, env={**os.environ, **environment}
    )


def test_without_a_terminal_both_tables_come_once():
    with answering(TopAgent().answer) as address:
        done = ended(*command(address, "--sort", "sync"))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stdout.index("server-101") < done.stdout.index("server-100")
    assert "vision_encode" in done.stdout and "losses in the last" in done.stdout


def test_json_is_one_document():
    with answering(TopAgent().answer) as address:
        done = ended(*command(address, "--json"))
    document = json.loads(done.stdout)
    assert document["losses"] == [] and document["interval_seconds"] >= 0.2
    assert document["processes"][0]["copy_wait_threads"] is None


def test_nobody_who_answers_is_an_error_with_a_remedy_and_no_screen():
    with on_terminal(command("http://127.0.0.1:9"), (80, 20), {"TERM": "xterm"}) as program:
        assert program.wait() == 1
    assert b"remedy: start one" in program.raw and b"\x1b[?1049h" not in program.raw
