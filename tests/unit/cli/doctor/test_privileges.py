# SPDX-License-Identifier: Apache-2.0
"""Capability sets of made-up processes against the table; and trials that are tried on this very process."""

from __future__ import annotations

import os

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.privileges import Sets, check_capabilities, check_features, read_sets
from hotstage.cli.doctor.rungs import RungTrial, RungTrials, try_rungs, try_sideband
from hotstage.errors import PrivilegeError
from hotstage.host.capabilities import CAPABILITIES, FEATURES
from hotstage.probes.loader.base import Rung

ALL = sum(1 << capability.number for capability in CAPABILITIES)
NUMBERS = {capability.name: capability.number for capability in CAPABILITIES}
ONLY_P = RungTrials(
    "v1.1", None, (RungTrial(Rung.SESSION, "EACCES", False, 0), RungTrial(Rung.PERF, None, False, 0)), 1
)
S_WORKS = RungTrials("v1.1", None, (RungTrial(Rung.SESSION, None, False, 0),), 1)
NONE = RungTrials("v1.1", None, (RungTrial(Rung.SESSION, "EPERM", True, 0),), None)


def mask(*names: str) -> int:
    return sum(1 << NUMBERS[name] for name in names)


def process(host, effective: int, bounding: int = ALL, rungs: RungTrials = S_WORKS):
    status = f"Name:\tx\nCapEff:\t{effective:016x}\nCapBnd:\t{bounding:016x}\nCapAmb:\t{0:016x}\n"
    return host.write({"proc/self/status": status}).given(try_rungs, rungs)


def failed(findings):
    return {finding.name for finding in findings if finding.status is Status.FAIL}


@pytest.mark.parametrize(
    ("effective", "missing"),
    [
        (("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"), set()),
        (("CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"), set()),
        (("CAP_BPF", "CAP_PERFMON"), {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}),
        ((), {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}),
    ],
)
def test_what_is_always_needed_fails_when_it_is_missing(host, effective, missing):
    findings = list(check_capabilities(process(host, mask(*effective))))
    assert failed(findings) == missing
    assert all(finding.is_permission for finding in findings if finding.status is Status.FAIL)


def test_the_three_sets_are_read(host):
    process(host, 5, 7)
    assert read_sets(host) == Sets(5, 7, 0)


def test_a_capability_that_root_lacks_too_asks_for_the_bounding_set(host, by_name):
    found = by_name(check_capabilities(process(host, 0, bounding=mask("CAP_PERFMON"))))
    assert "CapabilityBoundingSet=CAP_BPF" in (found["CAP_BPF"].remedy or "")
    assert found["CAP_PERFMON"].remedy == "run as root, or AmbientCapabilities=CAP_PERFMON in the unit"


@pytest.mark.parametrize(("rungs", "status"), [(S_WORKS, Status.ABSENT), (NONE, Status.UNKNOWN)])
def test_admin_is_missed_only_where_the_kernel_needs_it(host, by_name, rungs, status):
    found = by_name(check_capabilities(process(host, mask("CAP_BPF", "CAP_PERFMON"), rungs=rungs)))
    assert found["CAP_SYS_ADMIN"].status is status


def test_what_nothing_uses_is_never_missed(host, by_name):
    found = by_name(check_capabilities(process(host, 0)))
    assert found["CAP_SYSLOG"].status is Status.ABSENT
    assert "nothing here uses it" in found["CAP_SYSLOG"].detail


def test_a_process_that_does_not_tell_its_sets_is_unknown(host):
    (finding,) = check_capabilities(host)
    assert finding.status is Status.UNKNOWN


def test_every_feature_is_tried_and_says_what_it_takes(host, by_name):
    process(host, 0, rungs=NONE).given(try_sideband, PrivilegeError("no", remedy="CAP_PERFMON"))
    (host.root / "proc/self/map_files").mkdir(parents=True)
    found = by_name(check_features(host))
    assert set(found) == {feature.name for feature in FEATURES}
    assert found["count calls"].data["works"] is False
    assert found["count calls"].remedy == "CAP_BPF, CAP_PERFMON"
    assert found["notice new libraries"].status is Status.WARN
    assert found["deleted libraries"].data["works"] is False


def test_rung_p_is_not_missed_where_a_better_one_works(host, by_name):
    trials = (*S_WORKS.trials, RungTrial(Rung.PERF, "EACCES (Permission denied)", True, 0))
    process(host, mask("CAP_BPF", "CAP_PERFMON"), rungs=RungTrials("v1.1", None, trials, 1))
    host.given(try_sideband, None)
    (host.root / "proc").mkdir(exist_ok=True)
    assert by_name(check_features(host))["count calls on rung P"].status is Status.ABSENT


def test_what_cannot_be_tried_is_said_so_and_judged_by_the_sets(host, by_name):
    process(host, mask("CAP_BPF", "CAP_PERFMON")).given(try_sideband, None)
    found = by_name(check_features(host))["processes of other users"]
    assert found.data["works"] is None
    assert found.status is Status.WARN
    assert found.detail == "not tried: no other process runs now; it takes CAP_SYS_PTRACE"
    assert found.remedy == "CAP_SYS_PTRACE"


def others(host, count: int, closed: int) -> None:
    """Processes whose root can be entered, and some whose root cannot (a link that leads nowhere is no
    permission, so the folder itself is closed)."""
    for pid in range(1000, 1000 + count):
        host.write({f"proc/{pid}/cmdline": "server\0", f"proc/{pid}/mem": ""})
        (host.root / f"proc/{pid}/root").mkdir()
        if pid < 1000 + closed:
            (host.root / f"proc/{pid}/root").chmod(0)


@pytest.mark.parametrize(
    ("count", "closed", "works"),
    [
        (10, 0, True),
        (10, 1, True),
        (10, 9, False),
        (3, 1, True),
        (3, 2, False),
        (1, 1, False),
        (60, 7, False),
    ],
)
def test_one_closed_process_or_one_in_ten_is_the_hosts_own_matter(
    host, by_name, monkeypatch, count, closed, works
):
    """As it is where root is: what a sandbox's first process says to everybody."""
    process(host, mask("CAP_SYS_PTRACE")).given(try_sideband, None)
    others(host, count, closed)
    monkeypatch.setattr(os, "scandir", _closed_to_all)
    found = by_name(check_features(host))["processes of other users"]
    assert found.data["works"] is works
    if not works:
        assert found.status is Status.WARN
        assert "no capability is missing" in found.remedy


SCANDIR = os.scandir


def _closed_to_all(folder):
    if folder.name == "root" and not folder.stat().st_mode & 0o777:
        raise PermissionError(13, "Permission denied")
    return SCANDIR(folder)
