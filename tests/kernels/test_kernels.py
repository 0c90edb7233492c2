# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels, booted under qemu: the rungs that each must have, and the kernel tests on each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kernels import image
from tests.kernels.archive import Archive
from tests.kernels.machine import Guest, boot

pytestmark = [pytest.mark.other_kernels, pytest.mark.timeout(1800)]

TESTS = (
    "tests/bpf/test_counts.py",
    "tests/bpf/test_in_flight.py",
    "tests/bpf/test_requests.py",
    "tests/bpf/test_request_waits.py",
    "tests/bpf/test_inference.py",
)
RUNGS = {"6.1": {"P"}, "6.12": {"M", "P"}}


@pytest.fixture(scope="session")
def initramfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guest")
    image.make(folder / "initramfs.cpio", folder, TESTS)
    return folder / "initramfs.cpio"


@pytest.fixture(scope="session")
def archive() -> Archive:
    return Archive()


@pytest.fixture(scope="session", params=list(RUNGS))
def guest(request: pytest.FixtureRequest, initramfs: Path, archive: Archive, tmp_path_factory: Any) -> Guest:
    kernel = archive.fetch(request.param)
    said = tmp_path_factory.mktemp("said") / "serial.txt"
    return boot(kernel.image, initramfs, said)


def test_each_kernel_has_its_rungs_and_says_why_not_the_others(guest: Guest) -> None:
    series = guest.series
    assert {name for name, refusal in guest.rungs.items() if refusal is None} == RUNGS[series], guest.said
    assert all(refusal for name, refusal in guest.rungs.items() if name not in RUNGS[series])


def test_counts_state_and_marks_are_exact_on_every_rung(guest: Guest) -> None:
    assert not guest.failed, "\n\n".join(f"{name}\n{why}" for name, why in guest.failed.items())
    assert guest.exit == 0, guest.said[-3000:]
    for rung in RUNGS[guest.series]:
        ran = [
            name
            for name, (outcome, _) in guest.outcomes.items()
            if f"rung {rung}" in name and outcome == "passed"
        ]
        assert len(ran) >= 10, f"rung {rung}: {ran}"
