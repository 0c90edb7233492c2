# SPDX-License-Identifier: Apache-2.0
"""A real installation below a folder: it works at its place, and names that of the build nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.units import ROOT

pytestmark = [pytest.mark.kernel, pytest.mark.slow]


@pytest.fixture
def copy(installed: Path, tmp_path: Path) -> Path:
    """The installation, to be taken away; hard links, so that it costs nothing."""
    return Path(shutil.copytree(installed, tmp_path / "root", symlinks=True, copy_function=os.link))


def test_the_command_works_at_its_place(installed):
    # /opt in a namespace of its own, with the installation where its scripts say that it is.
    script = f"""
        mount -t tmpfs tmpfs /opt && mkdir /opt/hotstage
        mount --bind {installed}/opt/hotstage /opt/hotstage
        exec setpriv --reuid=61400 --regid=61400 --clear-groups --bounding-set=-all \\
            /opt/hotstage/bin/hotstage config check
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "the configuration is valid" in done.stdout


def test_it_holds_both_packages_and_the_compiled_programs(installed):
    library = next((installed / "opt/hotstage/lib").glob("python3*")) / "site-packages"
    for part in (
        "hotstage/probes/objects/hotstage.bpf.o",
        "hotstage/probes/objects/xid.bpf.o",
        "hotstage_explorer/assets/explorer.css",
        "hotstage_marks/libhotstage_marks.so",
    ):
        assert (library / part).is_file()
    assert not list(library.glob("pip*"))


def test_no_file_names_the_place_of_the_build(installed):
    found = subprocess.run(
        ["grep", "-rlF", "-e", str(installed.parent), "-e", str(ROOT), installed],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert found.stdout == ""


def test_services_may_read_all_of_it_and_write_none(installed):
    for path in (installed / "opt/hotstage").rglob("*"):
        status = path.lstat()
        assert status.st_uid == 0
        if not path.is_symlink():
            assert status.st_mode & 0o022 == 0, f"{path} can be written by others"
            assert status.st_mode & 0o004, f"{path} cannot be read by others"


def test_uninstall_and_purge_leave_nothing(copy):
    command = ["make", "-s", "-C", ROOT, "uninstall", f"DESTDIR={copy}", "PURGE=1", "PYTHON=/usr/bin/python3"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert list(copy.iterdir()) == []
