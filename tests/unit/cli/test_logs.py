# SPDX-License-Identifier: Apache-2.0
"""Where log lines go, as a process of its own sees it: its standard error is what decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SPEAK = """
import logging, sys
from hotstage.cli.logs import start_logging
from hotstage.config.settings import LogConfig
start_logging(LogConfig(format=sys.argv[1], level="warning"), "agent")
logging.getLogger("hotstage.test").info("not told")
logging.getLogger("hotstage.test").warning("attach failed", extra={"pid": 7, "name_of": "a\\nb"})
"""


def said(form: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SPEAK, form],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stderr


@pytest.mark.parametrize("form", ["text", "auto"])
def test_text_is_one_line_with_its_fields(form):
    line = said(form).removesuffix("\n")
    assert line.endswith(' warning agent: attach failed pid=7 name_of="a\\nb"')
    assert "\n" not in line


def test_json_is_one_object_a_line():
    entry = json.loads(said("json"))
    assert (entry["level"], entry["process"], entry["message"]) == ("warning", "agent", "attach failed")
    assert (entry["pid"], entry["name_of"]) == (7, "a\nb")


def test_a_journal_that_belongs_to_another_descriptor_is_not_ours():
    assert "attach failed" in said("auto", JOURNAL_STREAM="1:2")


def test_an_aborted_process_says_where_it_stood():
    code = SPEAK + "\nimport os, signal\nos.kill(os.getpid(), signal.SIGABRT)\n"
    done = subprocess.run([sys.executable, "-c", code, "text"], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert "Fatal Python error: Aborted" in done.stderr


HOSTILE = "a\x1b]0;pwn\x07\x7fb\nc\x9b2Jd\u202ee\udcff"


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_in_a_line_can_control_a_terminal_or_pass_for_another_line(form):
    code = SPEAK.replace('"attach failed"', ascii(HOSTILE)).replace('"a\\nb"', ascii(HOSTILE))
    assert code != SPEAK
    done = subprocess.run([sys.executable, "-c", code, form], capture_output=True, check=True)
    line = done.stderr.decode().removesuffix("\n")
    assert line.isprintable()
    assert "pwn" in line


def test_a_traceback_keeps_its_lines_and_loses_its_control_characters():
    code = (
        SPEAK + "\ntry:\n    raise ValueError('x\\x1b[2J')\nexcept ValueError:\n    logging.exception('e')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "text"], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert lines[-1] == "ValueError: x\\u001b[2J"
    assert all(line.isprintable() for line in lines)
