# SPDX-License-Identifier: Apache-2.0
"""Checks run side by side; one that hangs or breaks costs its own finding."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.run import Check, run_checks
from hotstage.errors import PreflightError


def check(name, run):
    return Check(Area.KERNEL, name, f"/{name}", run)


def fine(name):
    return check(name, lambda host: [Finding(Area.KERNEL, name, Status.OK, "")])


def test_the_tables_order_holds_whoever_ends_first(host):
    first_may_end = threading.Event()

    def slow(host):
        assert first_may_end.wait(5.0)
        return [Finding(Area.KERNEL, "slow", Status.OK, "")]

    done = []
    outcomes = run_checks(
        [check("slow", slow), fine("quick")],
        host,
        deadline_seconds=5.0,
        on_done=lambda ended: (done.append(ended.name), first_may_end.set()),
    )
    assert done == ["quick", "slow"]
    assert [outcome.findings[0].name for outcome in outcomes] == ["slow", "quick"]


def test_a_check_that_hangs_is_unknown_and_the_others_are_told_in_time(host):
    released = threading.Event()
    began = time.monotonic()
    outcomes = run_checks(
        [check("stuck", lambda host: released.wait(30.0)), fine("b")], host, deadline_seconds=0.2
    )
    assert time.monotonic() - began < 2.0
    released.set()
    assert outcomes[0].seconds is None
    assert outcomes[0].findings[0].detail == "no answer within 0.2 s from /stuck"
    assert [outcome.findings[0].status for outcome in outcomes] == [Status.UNKNOWN, Status.OK]


def test_cheap_checks_come_first_and_wait_for_nobody(host):
    began = []

    def note(name):
        return lambda host: began.append(name) or []

    checks = [
        replace(check("dear", note("dear")), is_dear=True),
        check("stuck", lambda host: began.append("stuck") or time.sleep(0.5) or []),
        check("cheap", note("cheap")),
    ]
    outcomes = run_checks(checks, host, deadline_seconds=5.0)
    assert began == ["stuck", "cheap", "dear"]
    assert [outcome.check.name for outcome in outcomes] == ["dear", "stuck", "cheap"]


def test_a_check_that_breaks_is_unknown_with_its_reason(host):
    def broken(host):
        raise ValueError("odd")

    def refused(host):
        raise PreflightError("no libbpf", remedy="install it")

    outcomes = run_checks(
        [check("broken", broken), check("refused", refused), fine("c")], host, deadline_seconds=5.0
    )
    first, second, third = (outcome.findings[0] for outcome in outcomes)
    assert first.detail == "the check itself failed: ValueError: odd"
    assert (second.status, second.detail, second.remedy) == (Status.UNKNOWN, "no libbpf", "install it")
    assert third.status is Status.OK


def test_what_several_checks_try_is_tried_once(host):
    calls = []

    def trial(host):
        calls.append(1)
        time.sleep(0.05)
        return len(calls)

    asking = [
        check(str(number), lambda host: [Finding(Area.KERNEL, "x", Status.OK, str(host.once(trial)))])
        for number in range(5)
    ]
    outcomes = run_checks(asking, host, deadline_seconds=5.0)
    assert calls == [1]
    assert {outcome.findings[0].detail for outcome in outcomes} == {"1"}


def test_a_trial_that_fails_fails_for_all_who_ask(host):
    calls = []

    def trial(host):
        calls.append(1)
        raise PreflightError("no")

    def asking(host):
        return [Finding(Area.KERNEL, "x", Status.OK, str(host.once(trial)))]

    outcomes = run_checks([check("a", asking), check("b", asking)], host, deadline_seconds=5.0)
    assert calls == [1]
    assert [outcome.findings[0].detail for outcome in outcomes] == ["no", "no"]
