# SPDX-License-Identifier: Apache-2.0
"""A library that lies, talks nonsense, dies or never answers costs a reason, within the deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.driver_library import build_driver

from hotstage.probes.trial.process import Subject, SubjectCrashedError, TrialError

CONSTRUCTOR = (
    "#include <unistd.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void begin(void) {{ {} }}"
)
Start = Callable[..., Subject]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    subjects: list[Subject] = []

    def start(*, seconds: float = 10.0, on_load: str = "", **texts: str) -> Subject:
        if on_load:
            texts["more"] = CONSTRUCTOR.format(on_load)
        fd = os.open(build_driver(tmp_path, **texts), os.O_RDONLY | os.O_CLOEXEC)
        try:
            deadline_ns = time.monotonic_ns() + int(seconds * 1e9)
            subjects.append(Subject(fd, deadline_ns, time.monotonic_ns))
        finally:
            os.close(fd)
        return subjects[-1]

    yield start
    for subject in subjects:
        subject.end()


def test_a_good_library_answers(start: Start) -> None:
    subject = start()
    subject.wait_loaded()
    results, value, pointer = subject.call("cuDriverGetVersion", 3)
    assert (results, value) == ([0], 12040)
    assert pointer > 0
    rows = subject.addresses("cuGetProcAddress_v2", ["cuNone", "cuMemAlloc"], [3020])
    assert [row[:3] for row in rows] == [(1, 3020, 1), (1, 3020, 2)]
    assert rows[0][3] == rows[1][3] > 0


@pytest.mark.parametrize(
    ("on_load", "reason"),
    [
        ('write(1, "gibberish\\n", 10); for (;;) ;', "it answered nonsense"),
        ('write(1, "[1]\\n", 4); for (;;) ;', "it answered nonsense"),
        (
            'write(1, "{\\"refused\\":\\"\\\\u001b[2J\\"}\\n", 25); _exit(0);',
            r"cannot be loaded here: \?\[2J",
        ),
        (
            'for (;;) write(1, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 64);',
            "without end",
        ),
        ("_exit(3);", "it ended with status 3"),
        ('__asm__("ud2");', "it ended by SIGILL"),
    ],
    ids=["no JSON", "no object", "controls", "flood", "exit", "crash"],
)
def test_whatever_a_library_does_when_it_is_loaded_is_a_reason(
    start: Start, on_load: str, reason: str
) -> None:
    with pytest.raises(TrialError, match=reason):
        start(on_load=on_load).wait_loaded()


def test_one_that_never_answers_is_given_up_at_the_deadline(start: Start) -> None:
    subject = start(seconds=0.3, on_load="for (;;) ;")
    began = time.monotonic()
    with pytest.raises(TrialError, match="did not answer in time"):
        subject.wait_loaded()
    assert time.monotonic() - began < 2.0


def test_a_crash_in_a_call_is_told_from_other_failures(start: Start) -> None:
    subject = start(version='__asm__("ud2");')
    subject.wait_loaded()
    with pytest.raises(SubjectCrashedError, match="SIGILL"):
        subject.call("cuDriverGetVersion", 1)
    with pytest.raises(TrialError):
        subject.call("cuDriverGetVersion", 1)


def test_a_file_that_is_no_library_is_a_reason(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no library")
    deadline_ns = time.monotonic_ns() + 10**10
    with (
        text.open("rb") as file,
        Subject(file.fileno(), deadline_ns, time.monotonic_ns) as subject,
        pytest.raises(TrialError, match="cannot be loaded here"),
    ):
        subject.wait_loaded()
