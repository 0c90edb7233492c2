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
        ('write(1, "{\\"refused\\":\\"a token\\"}\\n", 22); _exit(0);', "it answered nonsense$"),
        ('write(1, "{\\"refused\\":[\\"needs\\"]}\\n", 22); _exit(0);', "it answered nonsense$"),
        ('write(1, "{\\"refused\\":\\"needs\\"}\\n", 20); _exit(0);', "needs is not to be found$"),
        (
            'for (;;) write(1, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 64);',
            "without end",
        ),
        ("_exit(3);", "it ended with status 3"),
        ('__asm__("ud2");', "it ended by SIGILL"),
    ],
    ids=["no JSON", "no object", "a text", "a list", "a known word", "flood", "exit", "crash"],
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


@pytest.mark.parametrize(
    "row",
    ["0,3020,1,16", "0,3020,3,16", "0,77,1,16", "9,3020,1,16", '0,3020,1,"0x10"', "true,3020,1,16"],
    ids=["good", "flags", "version", "name", "text", "truth"],
)
def test_rows_that_nobody_asked_for_are_nonsense(start: Start, row: str) -> None:
    answers = "".join(f"{each}\\n" for each in ('{"loaded":true}', f'{{"rows":[[{row}]]}}')).replace(
        '"', '\\"'
    )
    subject = start(
        on_load=f'const char *said = "{answers}"; write(1, said, sizeof "{answers}" - 1); for (;;) ;'
    )
    subject.wait_loaded()
    if row == "0,3020,1,16":
        assert subject.addresses("cuGetProcAddress", ["cuInit"], [3020]) == [(0, 3020, 1, 16)]
        return
    with pytest.raises(TrialError, match=r"it answered nonsense$"):
        subject.addresses("cuGetProcAddress", ["cuInit"], [3020])


def test_results_that_are_no_result_of_a_function_are_nonsense(start: Start) -> None:
    said = r"{\"loaded\":true}\n{\"results\":[4294967296],\"value\":0,\"pointer\":8}\n"
    subject = start(on_load=f'const char said[] = "{said}"; write(1, said, sizeof said - 1); for (;;) ;')
    subject.wait_loaded()
    with pytest.raises(TrialError, match=r"it answered nonsense$"):
        subject.call("cuDriverGetVersion", 1)


def test_it_has_no_environment_and_no_descriptor_of_the_agent(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "a token")
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        subject = start(
            on_load=f"""
            if (getenv("SECRET")) _exit(3);
            char byte;
            if (read({inherited}, &byte, 1) == 0) _exit(4);
            """
        )
        subject.wait_loaded()
    finally:
        os.close(inherited)
