# SPDX-License-Identifier: Apache-2.0
"""Before a library is attached for everybody: it is loaded once in a confined process, probed there alone and
called, and its look-up function is replayed. What is refuted is not used for this library.

Called by look-up threads, beside each other. A trial never fails a library: whatever goes wrong is a reason
in its report, and it has a deadline that leaves the attach in time.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from hotstage.clock import Clock
from hotstage.probes.catalogue.placement import CODE_BYTES, place
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.loader.base import AttachPoint, Rung
from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.trial import audit, harmless
from hotstage.probes.trial.allowance import ROOT, Allowance
from hotstage.probes.trial.canary import Canary, RefutedError
from hotstage.probes.trial.harmless import VERSION_FUNCTION
from hotstage.probes.trial.process import Subject, TrialError
from hotstage.probes.trial.report import AddressAudit, PlacementVerdict, TrialReport

DEADLINE_NS = 300_000_000
"""For all of one trial: a new library is attached within half a second."""
START_NS = 200_000_000
"""While the agent starts, trials may begin for so long: what comes later is attached untried."""
_OWN_LINGER_NS = 1_000_000_000
"""News of a process that has ended may still be on its way."""
KEPT_LIMIT = 64
"""Verified builds that are remembered: another copy of one is not tried again."""

log = logging.getLogger(__name__)


class Trials(Protocol):
    """What the engine needs: `LibraryTrials`, or `NoTrials` where they are switched off."""

    def try_out(
        self, parsed: ParsedLibrary, points: tuple[AttachPoint, ...], pid: int | None = None
    ) -> tuple[tuple[AttachPoint, ...], TrialReport | None]:
        """The points to attach and what the trial found; None where there is nothing to try.

        `pid`: who has it; None is nobody whose trials are limited.
        """
        ...

    def owns(self, pid: int) -> bool:
        """Whether this is a process that loads a library for a trial: it is no server."""
        ...

    def started(self) -> None:
        """Everything that was there at the start is attached: trials have their whole time now."""
        ...

    def close(self) -> None: ...


class NoTrials:
    """The off switch."""

    def try_out(
        self, parsed: ParsedLibrary, points: tuple[AttachPoint, ...], pid: int | None = None
    ) -> tuple[tuple[AttachPoint, ...], TrialReport | None]:
        return points, None

    def owns(self, pid: int) -> bool:
        return False

    def started(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(slots=True)
class _Findings:
    """Of one trial so far. `refuted` and `verified` are rules of `placement`."""

    verified: set[int]
    refuted: set[int]
    reason: str | None = None
    calls: int = 0
    audit: AddressAudit | None = None
    driver_version: int | None = None
    functions: list[str] = field(default_factory=list)


class LibraryTrials:
    """Tries each build once, of every kind that has a harmless function."""

    def __init__(
        self,
        rung: Rung,
        clock: Clock,
        objects: Path = OBJECTS,
        *,
        user_of: Callable[[int], int | None] = lambda pid: 0,
        has_room: Callable[[int | None], bool] = lambda user: True,
    ) -> None:
        """`user_of`: pid → whose it is; `has_room`: whether this user may have one more library attached."""
        self._now_ns = clock.monotonic_ns
        self._user_of = user_of
        self._has_room = has_room
        self._allowance = Allowance(clock.monotonic_ns)
        self._canary = Canary(objects, rung)
        self._lock = threading.Lock()
        self._own_until_ns: dict[int, int] = {}
        self._verified: OrderedDict[tuple[str, int], TrialReport] = OrderedDict()
        self._start_ends_ns: int | None = self._now_ns() + START_NS

    def try_out(
        self, parsed: ParsedLibrary, points: tuple[AttachPoint, ...], pid: int | None = None
    ) -> tuple[tuple[AttachPoint, ...], TrialReport | None]:
        """As `Trials.try_out`."""
        library = parsed.library
        if (untried := harmless.why_not(library.kind)) is not None:
            return points, _report(_Findings(set(), set(), untried), {harmless.AT_SYMBOL}, 0.0)
        build = (library.build_id or "", library.size)
        user = ROOT if pid is None else self._user_of(pid)
        with self._lock:
            known = self._verified.get(build)
        if known is not None:
            return points, known
        began_ns = self._now_ns()
        rules = harmless.rules_of(parsed, points)
        findings = self._find(parsed, set(rules.values()), user)
        took_ns = self._now_ns() - began_ns
        report = _report(findings, set(rules.values()), took_ns / 1e9)
        self._allowance.spend(user, took_ns, has_failed=report.reason is not None)
        self._remember(build, report)
        if report.placement is PlacementVerdict.REFUTED:
            extra = {"path": library.path, "reason": report.reason}
            if harmless.AT_SYMBOL in findings.refuted:
                log.warning("this library is not probed", extra=extra)
                return (), report
            log.warning("probes of this library stand at the symbols, which is slow", extra=extra)
        return _at_the_symbol(points, rules, findings.refuted), report

    def owns(self, pid: int) -> bool:
        """As `Trials.owns`."""
        with self._lock:
            return self._own_until_ns.get(pid, 0) > self._now_ns()

    def started(self) -> None:
        """As `Trials.started`."""
        self._start_ends_ns = None

    def close(self) -> None:
        """Let the programs go; trials that run end by their deadlines."""
        self._canary.close()

    def _find(self, parsed: ParsedLibrary, rules: set[int], user: int | None) -> _Findings:
        findings, now_ns = _Findings(set(), set()), self._now_ns()
        functions = harmless.functions_by_rule(parsed)
        is_driver = parsed.library.kind == harmless.DRIVER
        can_look_up = is_driver and any(name in parsed.elf.functions for name in audit.LOOK_UPS)
        if not can_look_up and not functions:
            findings.reason = harmless.NOTHING_HARMLESS
            return findings
        if self._start_ends_ns is not None and now_ns > self._start_ends_ns:
            findings.reason = "there was no time for it at the start"
        elif not self._has_room(user):
            findings.reason = "its user has as many libraries as one may have"
        elif not self._allowance.is_left(user):
            findings.reason = "earlier trials of its user's libraries took too long"
        if findings.reason is not None:
            return findings
        try:
            with Subject(parsed.library.fd, now_ns + DEADLINE_NS, self._now_ns) as subject:
                self._ask(
                    subject, parsed, {rule: functions[rule] for rule in rules & set(functions)}, findings
                )
        except (TrialError, OSError) as error:
            findings.reason = findings.reason or str(error)
        return findings

    def _ask(
        self, subject: Subject, parsed: ParsedLibrary, functions: dict[int, str], findings: _Findings
    ) -> None:
        self._own(subject.pid, DEADLINE_NS)
        try:
            subject.wait_loaded()
            if parsed.library.kind == harmless.DRIVER:
                _audit(subject, parsed, findings)
            for rule, symbol in functions.items():
                self._probe(subject, parsed, rule, symbol, findings)
        finally:
            subject.end()
            self._own(subject.pid, 0)

    def _own(self, pid: int, for_ns: int) -> None:
        now_ns = self._now_ns()
        with self._lock:
            own = {each: until_ns for each, until_ns in self._own_until_ns.items() if until_ns > now_ns}
            self._own_until_ns = own | {pid: now_ns + for_ns + _OWN_LINGER_NS}

    def _probe(
        self, subject: Subject, parsed: ParsedLibrary, rule: int, symbol: str, findings: _Findings
    ) -> None:
        start, fd = parsed.elf.functions[symbol].offset, parsed.library.fd
        is_moved = rule != harmless.AT_SYMBOL
        offset = start + (place(os.pread(fd, CODE_BYTES, start)).skip if is_moved else 0)
        findings.functions.append(symbol)
        try:
            findings.calls += self._canary.try_function(subject, fd, symbol, offset)
            findings.verified.add(rule)
        except RefutedError as error:
            findings.refuted.add(rule)
            findings.reason = str(error)
        except TrialError as error:
            findings.reason = findings.reason or str(error)

    def _remember(self, build: tuple[str, int], report: TrialReport) -> None:
        """A build that was found right; a forged build-id wins nothing but that it is not tried itself."""
        if report.placement is not PlacementVerdict.VERIFIED or not build[0]:
            return
        with self._lock:
            self._verified[build] = report
            while len(self._verified) > KEPT_LIMIT:
                self._verified.popitem(last=False)


def _audit(subject: Subject, parsed: ParsedLibrary, findings: _Findings) -> None:
    if VERSION_FUNCTION in parsed.elf.functions:
        results, version, _ = subject.call(VERSION_FUNCTION, 1)
        findings.driver_version = version if results == [0] and 0 < version < 1 << 20 else None
    handed = audit.replay(subject, parsed.elf, findings.driver_version)
    if handed is not None:
        findings.audit = audit.summary(handed, findings.driver_version)


def _report(findings: _Findings, rules: set[int], seconds: float) -> TrialReport:
    if not rules:
        verdict = PlacementVerdict.UNUSED
    elif findings.refuted:
        verdict = PlacementVerdict.REFUTED
    elif rules <= findings.verified:
        verdict = PlacementVerdict.VERIFIED
    else:
        verdict = PlacementVerdict.UNVERIFIED
    is_settled = verdict in (PlacementVerdict.VERIFIED, PlacementVerdict.UNUSED)
    reason = findings.reason or "no harmless function begins like those that are probed"
    return TrialReport(
        placement=verdict,
        reason=None if is_settled else reason,
        calls=findings.calls,
        audit=findings.audit,
        driver_version=findings.driver_version,
        seconds=seconds,
        functions=tuple(findings.functions),
    )


def _at_the_symbol(
    points: tuple[AttachPoint, ...], rules: Mapping[int, int], refuted: set[int]
) -> tuple[AttachPoint, ...]:
    """Points by a refuted pattern go back to their symbols, where each hit is single-stepped."""
    return tuple(
        replace(point, offset=point.symbol_offset, is_emulated=False)
        if rules.get(point.symbol_offset) in refuted
        else point
        for point in points
    )
