# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels, booted under qemu: the rungs that each must have, and the kernel tests on each."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.kernels import image
from tests.kernels.archive import Archive

pytestmark = [pytest.mark.other_kernels, pytest.mark.timeout(1800)]

TESTS = (
    "tests/bpf/test_counts.py",
    "tests/bpf/test_in_flight.py",
    "tests/bpf/test_requests.py",
    "tests/bpf/test_request_waits.py",
    "tests/bpf/test_inference.py",
)
RUNGS = {"6.1": {"P"}, "6.12": {"M", "P"}}
BOOT_SECONDS = 1500
MEMORY_MIB = 3072


@dataclass
class Guest:
    """What a booted kernel told."""

    said: str
    kernel: str = ""
    rungs: dict[str, str | None] = field(default_factory=dict)
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    exit: int | None = None

    @classmethod
    def of(cls, said: str) -> Guest:
        guest = cls(said)
        for line in said.splitlines():
            if not line.startswith("told "):
                continue
            what: dict[str, Any] = json.loads(line.removeprefix("told "))
            if "rungs" in what:
                guest.kernel, guest.rungs = what["kernel"], what["rungs"]
            elif "test" in what:
                guest.outcomes[what["test"]] = (what["outcome"], what["why"])
            else:
                guest.exit = what["exit"]
        return guest


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
    qemu = shutil.which("qemu-system-x86_64")
    assert qemu, "qemu is not installed: `make test-kernels` installs it"
    command = [
        qemu, "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB),
        "-display", "none", "-no-reboot",
        "-nic", "none", "-serial", "null", "-serial", f"file:{said}", "-kernel", str(kernel.image),
        "-initrd", str(initramfs), "-append", "console=ttyS0 quiet panic=-1",
    ]  # fmt: skip
    subprocess.run(command, timeout=BOOT_SECONDS, check=True, stdin=subprocess.DEVNULL)
    return Guest.of(said.read_text(errors="replace"))


def test_each_kernel_has_its_rungs_and_says_why_not_the_others(guest: Guest) -> None:
    series = ".".join(guest.kernel.split(".")[:2])
    assert {name for name, refusal in guest.rungs.items() if refusal is None} == RUNGS[series], guest.said
    assert all(refusal for name, refusal in guest.rungs.items() if name not in RUNGS[series])


def test_counts_state_and_marks_are_exact_on_every_rung(guest: Guest) -> None:
    failed = {name: why for name, (outcome, why) in guest.outcomes.items() if outcome == "failed"}
    assert not failed, "\n\n".join(f"{name}\n{why}" for name, why in failed.items())
    assert guest.exit == 0, guest.said[-3000:]
    for rung in RUNGS[".".join(guest.kernel.split(".")[:2])]:
        ran = [
            name
            for name, (outcome, _) in guest.outcomes.items()
            if f"rung {rung}" in name and outcome == "passed"
        ]
        assert len(ran) >= 10, f"rung {rung}: {ran}"
