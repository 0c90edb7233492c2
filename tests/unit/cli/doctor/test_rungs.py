# SPDX-License-Identifier: Apache-2.0
"""What doctor makes of the trials of rungs: which is in use, which is missed, what would help."""

from __future__ import annotations

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.rungs import (
    RungTrial,
    RungTrials,
    check_placement,
    check_rungs,
    check_sideband,
    try_rungs,
    try_sideband,
)
from hotstage.config.settings import Config, ProbesConfig
from hotstage.errors import PreflightError, PrivilegeError
from hotstage.probes.loader.base import Rung

EPERM, EACCES, EINVAL = "EPERM (no)", "EACCES (no)", "EINVAL (no)"


def trials(**errors: str | None) -> RungTrials:
    """By rung's letter: None works; `EPERM` is a right, and on rung P `EACCES` too."""
    rows = []
    for letter, error in errors.items():
        is_permission = error == EPERM or (error == EACCES and letter == "P")
        rows.append(RungTrial(Rung(letter), error, is_permission, 0.1))
    return RungTrials("v1.1", None, tuple(rows), 1)


def test_the_best_rung_is_in_use_and_each_is_told(host, by_name):
    found = by_name(check_rungs(host.given(try_rungs, trials(S=EACCES, M=None, P=None))))
    assert found["rung"].data == {"rung": "M", "configured": "auto"}
    assert found["rung"].detail.startswith("M: a uprobe.multi pair")
    assert (found["rung S"].status, found["rung S"].remedy) == (Status.ABSENT, "Linux 6.13 or newer with BTF")
    assert found["rung P"].detail.startswith("works, tried in 100 ms")


def test_an_old_kernel_runs_on_links_that_are_slow_to_let_go(host, by_name):
    found = by_name(check_rungs(host.given(try_rungs, trials(S=EACCES, M=EINVAL, P=None))))
    assert (found["rung"].status, found["rung"].remedy) == (Status.WARN, "Linux 6.6 or newer")
    assert found["rung M"].status is Status.WARN


def test_an_old_kernel_without_admin_needs_the_right(host, by_name):
    found = by_name(check_rungs(host.given(try_rungs, trials(S=EPERM, M=EPERM, P=EPERM))))
    assert (found["rung"].status, found["rung"].is_permission) == (Status.FAIL, True)
    assert "CAP_SYS_ADMIN" in (found["rung"].remedy or "")
    assert "CAP_BPF" in (found["rung M"].remedy or "")


def test_a_kernel_that_takes_nothing_is_no_matter_of_rights(host, by_name):
    found = by_name(check_rungs(host.given(try_rungs, trials(S=EINVAL, M=EINVAL, P=EINVAL))))
    assert (found["rung"].status, found["rung"].is_permission) == (Status.FAIL, False)


def test_a_configured_rung_that_is_refused_is_in_the_way(host, by_name):
    host.config = Config(probes=ProbesConfig(rung="S"))
    found = by_name(check_rungs(host.given(try_rungs, trials(S=EACCES, M=None, P=None))))
    assert found["rung"].status is Status.FAIL
    assert found["rung"].remedy == 'rung = "auto" in [probes]'


def test_a_configured_rung_that_works_is_the_one_in_use(host, by_name):
    host.config = Config(probes=ProbesConfig(rung="M"))
    found = by_name(check_rungs(host.given(try_rungs, trials(S=None, M=None, P=None))))
    assert found["rung"].detail.startswith("M:")


def test_without_libbpf_nothing_is_tried(host, by_name):
    missing = RungTrials(None, PreflightError("libbpf.so.1 does not open"), (), None)
    found = by_name(check_rungs(host.given(try_rungs, missing)))
    assert set(found) == {"libbpf"}
    assert found["libbpf"].status is Status.FAIL
    assert "apt install libbpf1" in (found["libbpf"].remedy or "")


def test_missing_objects_are_no_kernels_fault(host, by_name):
    missing = RungTrials("v1.1", PreflightError("x.o is missing", remedy="make bpf"), (), None)
    found = by_name(check_rungs(host.given(try_rungs, missing)))
    assert (found["rung"].status, found["rung"].remedy) == (Status.FAIL, "make bpf")


@pytest.mark.parametrize(
    ("error", "level", "status", "remedy"),
    [
        (None, "4", Status.OK, None),
        (PrivilegeError("refused", remedy="CAP_PERFMON"), "2", Status.FAIL, "CAP_PERFMON"),
        (
            PrivilegeError("refused", remedy="CAP_PERFMON"), "4", Status.FAIL,
            "CAP_PERFMON; or sysctl -w kernel.perf_event_paranoid=2 (now 4)",
        ),
        (OSError(38, "Function not implemented"), "2", Status.FAIL, "a kernel with CONFIG_PERF_EVENTS"),
    ],
)  # fmt: skip
def test_records_of_new_mappings_are_tried(host, error, level, status, remedy):
    host.write({"proc/sys/kernel/perf_event_paranoid": level}).given(try_sideband, error)
    (finding,) = check_sideband(host)
    assert (finding.status, finding.remedy) == (status, remedy)
    assert finding.is_permission is isinstance(error, PrivilegeError)


def test_cheap_placement_is_known_for_x86_and_has_a_switch(host):
    (finding,) = check_placement(host)
    assert finding.status is Status.OK
    host.config = Config(probes=ProbesConfig(fast_placement=False))
    (finding,) = check_placement(host)
    assert finding.status is Status.WARN
    host.machine = "aarch64"
    (finding,) = check_placement(host)
    assert finding.status is Status.ABSENT
