# SPDX-License-Identifier: Apache-2.0
"""`hotstage doctor` among real processes: containers, deleted files, others' probes, hanging file systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.bpf.conftest import open_library, points_of
from tests.bpf.test_engine_hostile import Mount

from hotstage.probes.catalogue import CUDA_DRIVER
from hotstage.probes.loader import links
from hotstage.probes.loader.base import MapSizes
from hotstage.probes.loader.libbpf import LibbpfLoader
from hotstage.simhost import build

sys.path.insert(0, str(Path(__file__).parent))
from targets import build_library

pytestmark = pytest.mark.kernel


def look() -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "hotstage", "doctor", "--json", "--only", "libraries"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def of(path: Path, found: list[dict[str, Any]]) -> dict[str, Any]:
    (finding,) = [finding for finding in found if finding["data"].get("path") == str(path)]
    return finding


def test_users_in_and_out_of_a_container_are_told_with_one_library(tmp_path, start_target) -> None:
    library = build_library(tmp_path / "lib")
    outside, inside = start_target(), start_target("unshare", "-m", "--")
    outside.open(library)
    inside.open(library)
    finding = of(library, look())
    assert finding["status"] == "ok"
    assert {user["pid"]: user["own_mounts"] for user in finding["data"]["users"]} == {
        outside.pid: False,
        inside.pid: True,
    }
    assert (finding["data"]["symbols"], finding["data"]["emulated"]) == (4, 4)
    assert finding["data"]["is_probed"] is False
    told = f"4 of {len(CUDA_DRIVER.calls)} calls by 4 symbols, 4 of them on an emulated instruction"
    assert told in finding["detail"]


def test_a_deleted_library_is_opened_and_said_to_be_deleted(tmp_path, start_target) -> None:
    library = build_library(tmp_path / "lib")
    target = start_target()
    target.open(library)
    library.unlink()
    finding = of(library, look())
    assert finding["data"]["is_deleted"] is True
    assert finding["data"]["symbols"] == 4
    assert "its file is deleted" in finding["detail"]


def test_probes_of_somebody_else_are_seen_and_their_holder_named(tmp_path, start_target, objects) -> None:
    library = build_library(tmp_path / "lib")
    start_target().open(library)
    with ExitStack() as stack:
        loader = LibbpfLoader()
        stack.callback(loader.close)
        loader.load(MapSizes())
        opened = open_library(library, "libcuda", stack)
        stack.callback(links.detach, loader.attach(opened, points_of(opened)).links)
        finding = of(library, look())
    assert finding["status"] == "warn"
    assert finding["data"]["is_probed"] is True
    assert f"{os.getpid()} " in finding["detail"]
    assert of(library, look())["data"]["is_probed"] is False


def test_the_simulated_hosts_libraries_are_found_and_cheap_to_probe(tmp_path, start_target) -> None:
    stubs = build.lay_out(tmp_path / "lib")
    target = start_target()
    target.open(stubs.libcudart)
    found = look()
    cuda = of(stubs.libcuda.resolve(), found)
    assert cuda["data"]["version"] == build.DRIVER
    assert cuda["data"]["emulated"] == cuda["data"]["symbols"] > 40
    assert len(cuda["data"]["build_id"]) == 40
    runtime = of(stubs.libcudart.resolve(), found)
    assert (runtime["status"], runtime["name"]) == ("ok", "libcudart")
    static = [finding for finding in found if finding["name"] == "static runtime"]
    assert all(target.pid not in finding["data"]["pids"] for finding in static)


@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="this kernel has no FUSE")
def test_a_frozen_file_system_is_given_up_and_the_others_are_told(tmp_path, start_target) -> None:
    mount = Mount(tmp_path / "mount", build_library(tmp_path / "served", salt="served"))
    try:
        victim, good = start_target(), start_target()
        victim.open(mount.library)
        library = build_library(tmp_path / "good")
        good.open(library)
        mount.freeze()
        began = time.monotonic()
        found = look()
        assert time.monotonic() - began < 4.0
        assert of(library, found)["status"] == "ok"
        assert of(mount.library, found)["data"]["problem"] == "no answer within 1 s"
        (reach,) = [finding for finding in found if finding["name"] == "processes"]
        assert (reach["status"], len(reach["data"]["hanging"])) == ("warn", 1)
    finally:
        mount.end()
