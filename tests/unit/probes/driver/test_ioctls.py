# SPDX-License-Identifier: Apache-2.0
"""Files of GPU devices by path, ioctls by number."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.probes.driver.gpu_files import find_gpu_files
from hotstage.probes.driver.ioctls import DEVICES, OTHER_NUMBER, class_of, device_of


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/dev/nvidia0", "nvidia"),
        ("/dev/nvidia12", "nvidia"),
        ("/dev/nvidiactl", "nvidia-control"),
        ("/dev/nvidia-uvm", "nvidia-uvm"),
        ("/dev/nvidia-caps/nvidia-cap1", "nvidia-other"),
        ("/dev/dri/renderD128", "dri"),
        ("/dev/kfd", "kfd"),
    ],
)
def test_a_gpu_device_is_known_by_its_path(path: str, kind: str) -> None:
    number = device_of(path)
    assert number is not None
    assert DEVICES[number][0] == kind


@pytest.mark.parametrize("path", ["/dev/null", "/tmp/dev/nvidia0", "socket:[5]", "/dev/driver"])
def test_other_files_are_none(path: str) -> None:
    assert device_of(path) is None


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0x462A, "control"),
        (0x462B, "allocate"),
        (0x4629, "free"),
        (0x464E, "map"),
        (0x46FE, "other"),
        (0x6444, "driver"),
        (0x64C3, "wait"),
        (0x4B16, "allocate"),
        (34, "free"),
        (51, "migrate"),
        (OTHER_NUMBER, "other"),
    ],
)
def test_the_class_follows_from_type_and_number(number: int, kind: str) -> None:
    assert class_of(number) == kind


def test_descriptors_are_found_by_what_they_point_to(tmp_path: Path) -> None:
    folder = tmp_path / "77" / "fd"
    folder.mkdir(parents=True)
    for fd, path in ((0, "/dev/null"), (5, "/dev/nvidiactl"), (9, "/dev/nvidia0")):
        (folder / str(fd)).symlink_to(path)
    (tmp_path / "78").mkdir()
    found = find_gpu_files([77, 78, 79], tmp_path, DEVICES)
    assert found == {(77, 5): device_of("/dev/nvidiactl"), (77, 9): device_of("/dev/nvidia0")}
