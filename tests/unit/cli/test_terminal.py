# SPDX-License-Identifier: Apache-2.0
"""Tables and lines for people, of names that strangers chose; the terminal is a real one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from datetime import UTC, datetime

import pytest

from hotstage.cli import terminal

HOSTILE = ["[/open]", "[/red]", "[bold]x[/]", "[link=file:///etc]y", ":boom:", "\\[red]", "[@click=app.bell]"]
CONTROLS = ["\x1b]0;pwned\x07", "\x9b31m", "a\rb", "a\nb", "a\tb", "\u202egnp", "\ud800", "\x00"]


def shown_on_a_terminal(monkeypatch, *actions) -> str:
    """What a pseudo-terminal is sent while `actions` run with standard output on it."""
    near, far = os.openpty()
    with os.fdopen(far, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        patched.setenv("COLUMNS", "200")
        patched.setenv("TERM", "xterm")
        for action in actions:
            action()
    shown = b""
    with os.fdopen(near, "rb", buffering=0) as terminal_side, contextlib.suppress(OSError):
        while part := terminal_side.read(1 << 16):  # until EIO: the other side is closed
            shown += part
    return shown.decode()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_reads_like_markup_is_shown_as_it_is(monkeypatch, name):
    def table():
        terminal.print_table(("request", name), [(name, "i-0")], empty="none")

    assert shown_on_a_terminal(monkeypatch, table).count(name) == 2


@pytest.mark.parametrize("name", CONTROLS)
def test_no_control_character_reaches_a_terminal(monkeypatch, name):
    shown = shown_on_a_terminal(
        monkeypatch,
        lambda: terminal.print_table((f"x{name}", "last"), [(f"x{name}", f"{name}y")], empty="none"),
        lambda: terminal.say(name.replace("\n", "")),
    )
    assert shown.count("\n") == shown.count("\r\n") == 3
    without_style = re.sub("\x1b\\[[01]m", "", shown).replace("\r\n", "")
    assert without_style.isprintable()


@pytest.mark.parametrize("name", CONTROLS)
def test_a_name_forges_no_column_and_no_line_in_a_pipe(capsys, name):
    terminal.print_table(("request", "last"), [(name, "end")], empty="none")
    header, row = capsys.readouterr().out.splitlines()
    assert header == "request\tlast"
    assert row.isprintable() is False and row.count("\t") == 1
    assert row.replace("\t", "").isprintable()


@pytest.mark.parametrize("name", [*HOSTILE, *CONTROLS])
def test_json_keeps_every_value_and_controls_nothing(capsys, name):
    terminal.print_json({name: [name, "ü 漢"]})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {name: [name, "ü 漢"]}
    assert shown.replace("\n", "").isprintable()
    assert "ü 漢" in shown


def test_lines_stay_lines_and_each_is_plain(capsys):
    terminal.say("one\n\x1b[31mtwo")
    assert capsys.readouterr().out == "one\n?[31mtwo\n"


def test_a_time_of_another_day_has_its_date():
    today = datetime.now(UTC)
    assert terminal.clock_time(f"{today:%Y-%m-%d}T18:04:15.123Z") == "18:04:15Z"
    assert terminal.clock_time("2024-02-29T18:04:15.123Z") == "2024-02-29 18:04:15Z"
    assert terminal.clock_time(None) == terminal.DASH


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 ms"),
        (5e-7, "0.5 µs"),
        (0.0000374, "37.4 µs"),
        (0.00009994, "99.9 µs"),
        (0.00009996, "0.1 ms"),
        (0.0123, "12.3 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1 s"),
        (59.96, "60 s"),
        (99.94, "99.9 s"),
        (99.96, "1 min 40 s"),
        (1234.5, "20 min 34 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (3725.0, "1 h 2 min"),
        (86_340.0, "23 h 59 min"),
        (86_399.0, "1 d 0 h"),
        (1e6, "11 d 14 h"),
        (-400.0, "-6 min 40 s"),
        (float("nan"), terminal.DASH),
        (None, terminal.DASH),
    ],
)
def test_a_duration_has_three_digits_and_a_unit_that_fits(value, shown):
    assert terminal.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.00123, "0.00123"),
        (1.5e-7, "0.00000015"),
        (999.4, "999"),
        (999.6, "1000"),
        (1234.5, "1234"),
        (-4000.0, "-4000"),
        (1e15, "1000000000000000"),
        (0.0, "0"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_never_has_an_exponent(value, shown):
    assert terminal.cell(value) == shown
