# SPDX-License-Identifier: Apache-2.0
"""Runs the checks side by side, each on a thread of its own, and waits for none past its deadline.

A check that hangs (a dead file system, a driver) costs its own findings: it becomes one that says so. Its
thread is left behind and ends with the process. It knows no check and prints nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from queue import Empty, Queue

from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.host import Host
from hotstage.errors import HotstageError

DEADLINE_SECONDS = 5.6
"""It bounds all of them together: on a quiet host they take half of it, most of it the verifier's."""

HEAD_START_SECONDS = 0.15
"""Files are read before anything is tried, scanned or compiled, so that a busy host costs the dear ones."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table: what it looks at, and the function that does. It may yield several findings."""

    area: Area
    name: str
    looks_at: str
    run: Callable[[Host], Iterable[Finding]]
    is_dear: bool = False
    """It tries, scans or starts something: its turn comes when the cheap ones have had theirs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found; `seconds` is None when it did not end."""

    check: Check
    findings: tuple[Finding, ...]
    seconds: float | None


def run_checks(
    checks: Sequence[Check],
    host: Host,
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
    on_done: Callable[[Check], None] = lambda check: None,
) -> list[Outcome]:
    """All outcomes in the table's order, at the latest after the deadline; `on_done` hears of each end."""
    done: Queue[tuple[int, Outcome]] = Queue()
    began = time.monotonic()
    outcomes: dict[int, Outcome] = {}
    found: list[list[Finding]] = [[] for _ in checks]

    def collect(count: int, seconds: float) -> None:
        """Until there are so many outcomes, or so long after the begin."""
        while len(outcomes) < count:
            left = began + seconds - time.monotonic()
            try:
                position, outcome = done.get(timeout=max(left, 0.0))
            except Empty:
                return
            outcomes[position] = outcome
            on_done(outcome.check)

    for is_dear, until_seconds in (
        (False, min(HEAD_START_SECONDS, deadline_seconds)),
        (True, deadline_seconds),
    ):
        for position, check in enumerate(checks):
            if check.is_dear is is_dear:
                arguments = (position, check, host, found[position], done)
                name = f"doctor-{check.name}"
                threading.Thread(target=_run, args=arguments, name=name, daemon=True).start()
        cheap = sum(not check.is_dear for check in checks)
        collect(len(checks) if is_dear else cheap, until_seconds)
    return [
        outcomes.get(position) or _late(check, tuple(found[position]), deadline_seconds)
        for position, check in enumerate(checks)
    ]


def _run(
    position: int, check: Check, host: Host, found: list[Finding], done: Queue[tuple[int, Outcome]]
) -> None:
    """`found` has each finding as soon as it is known: what is late loses only what it has not found."""
    began = time.monotonic()
    try:
        found.extend(check.run(host))
    except HotstageError as error:
        found.append(Finding(check.area, check.name, Status.UNKNOWN, error.message, error.remedy))
    except Exception as error:  # one check that breaks must not take the other findings with it
        detail = f"the check itself failed: {type(error).__name__}: {error}"
        found.append(Finding(check.area, check.name, Status.UNKNOWN, detail))
    done.put((position, Outcome(check, tuple(found), time.monotonic() - began)))


def _late(check: Check, found: tuple[Finding, ...], deadline_seconds: float) -> Outcome:
    """What it found in time, and that there would be more."""
    detail = f"no answer within {deadline_seconds:.2g} s from {check.looks_at}"
    remedy = f"if the host is busy, give it all of the time: hotstage doctor --only {check.area.value}"
    return Outcome(check, (*found, Finding(check.area, check.name, Status.UNKNOWN, detail, remedy)), None)
