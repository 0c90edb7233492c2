# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels with their GPU drivers, booted under qemu with a virtio GPU: what their events tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kernels import image
from tests.kernels.archive import RELEASES, Archive
from tests.kernels.machine import Guest, boot
from tests.kernels.modules import DRIVERS, LATE, in_order

pytestmark = [pytest.mark.other_kernels, pytest.mark.timeout(1800)]

CHECKS = "tests/kernels/driver_checks.py"


@pytest.fixture(scope="session", params=list(RELEASES))
def guest(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Guest:
    kernel = Archive().fetch(request.param, "amd64")
    folder: Path = tmp_path_factory.mktemp("drivers")
    early = in_order(kernel.modules, DRIVERS)
    late = [module for module in in_order(kernel.modules, (*DRIVERS, *LATE)) if module not in early]
    image.make(folder / "initramfs.cpio", folder, [CHECKS], early, late=late, has_bcc=True)
    found = boot(kernel.image, folder / "initramfs.cpio", folder / "serial.txt", ["virtio-gpu-pci"])
    (folder / "initramfs.cpio").unlink()
    return found


def test_each_drivers_tracepoint_fires_or_is_absent_with_a_reason(guest: Guest) -> None:
    assert not guest.failed, "\n\n".join(f"{name}\n{why}" for name, why in guest.failed.items())
    assert guest.exit == 0, guest.said[-3000:]
    assert all(outcome == "passed" for outcome, _ in guest.outcomes.values()), guest.outcomes
    assert len(guest.outcomes) >= 10
