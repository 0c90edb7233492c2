# SPDX-License-Identifier: Apache-2.0
"""Processes made of files: what is found in them, what may not be seen, what is hostile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.driver_library import build_driver

import hotstage_marks
from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.libraries import check_libraries, check_marks
from hotstage.cli.doctor.library_scan import scan_libraries
from hotstage.cli.doctor.peers import ask_agent
from hotstage.errors import PeerError

LIBRARY = Path(hotstage_marks.__file__).with_name("libhotstage_marks.so")
CONTAINER = "4f3a" * 16


def add_process(host, pid: int, name: str = "python3", maps: str = "", cgroup: str = "0::/\n") -> None:
    stat = f"{pid} ({name}) S 1 {' '.join('0' for _ in range(17))} {pid}00 0\n"
    host.write({f"proc/{pid}/stat": stat, f"proc/{pid}/comm": f"{name}\n", f"proc/{pid}/maps": maps})
    host.write({f"proc/{pid}/cgroup": cgroup, f"proc/{pid}/task/{pid}/stat": stat})


def map_file(
    host, pid: int, path: str, *, deleted: bool = False, inode: int | None = None, library: Path = LIBRARY
) -> str:
    """A line of `maps`; the file is a copy of a real library, as the process sees it in its own root."""
    file = host.root / f"proc/{pid}/root" / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, file)
    gone = " (deleted)" if deleted else ""
    return f"7f0000000000-7f0000200000 r-xp 00000000 08:01 {inode or file.stat().st_ino} {path}{gone}\n"


@pytest.fixture
def alone(host):
    return without_agent(host)


def without_agent(host):
    """A host where no agent answers."""
    (host.root / "proc").mkdir(parents=True)
    return host.given(ask_agent, PeerError("no agent answers"))


def test_no_process_with_a_library_is_fine(alone, by_name):
    add_process(alone, 100, maps="55550000-55560000 r-xp 00000000 08:01 99 /usr/bin/bash\n")
    found = by_name(check_libraries(alone))
    assert found["processes"].detail.startswith("looked into 1 process in ")
    assert found["in use"].detail == "none now; hotstage attaches when a process opens one"


def test_what_a_trial_would_call_is_read_from_the_library(alone, by_name, tmp_path):
    built = build_driver(tmp_path / "built")
    add_process(alone, 100, maps=map_file(alone, 100, "/usr/lib/libcuda.so.1", library=built))
    finding = by_name(check_libraries(alone))["libcuda"]
    assert finding.data["trial"]["functions"] == ["cuDriverGetVersion"]
    assert "a trial calls cuDriverGetVersion in a process of its own first" in finding.detail


def test_one_file_is_told_once_with_all_its_users(alone, by_name):
    inside = f"0::/kubepods.slice/cri-containerd-{CONTAINER}.scope\n"
    add_process(alone, 100)
    add_process(alone, 200, "vllm", cgroup=inside)
    line = map_file(alone, 100, "/usr/lib/libcudart.so.12")
    alone.write({"proc/100/maps": line, "proc/200/maps": line})
    found = by_name(check_libraries(alone))["libcudart"]
    assert found.status is Status.WARN
    assert "in 2 processes (100 python3, 200 vllm in container 4f3a4f3a4f3a)" in found.detail
    assert found.detail.endswith("none of its calls can be probed (not exported)")
    assert [user["container"] for user in found.data["users"]] == [None, "4f3a4f3a4f3a"]
    assert found.data["version"] == "12"


def test_a_library_of_that_name_without_its_calls_is_doubted(alone, by_name):
    add_process(alone, 100)
    alone.write({"proc/100/maps": map_file(alone, 100, "/opt/libcuda.so.550.163.01")})
    found = by_name(check_libraries(alone))["libcuda"]
    assert found.status is Status.WARN
    assert "can be probed (not exported)" in found.detail and found.remedy
    assert found.data["version"] == "550.163.01"


def test_a_runtime_inside_the_program_is_said_to_be_covered(alone, by_name):
    add_process(alone, 100)
    alone.write({"proc/100/maps": map_file(alone, 100, "/opt/libcuda.so.1")})
    assert by_name(check_libraries(alone))["static runtime"].data == {"pids": [100]}


def test_a_file_that_was_replaced_is_named_with_its_remedy(alone, by_name):
    add_process(alone, 100)
    alone.write({"proc/100/maps": map_file(alone, 100, "/opt/libcuda.so.1", inode=7)})
    found = by_name(check_libraries(alone))["libcuda"]
    assert found.status is Status.WARN
    assert "another file stands there now" in found.detail
    assert "CAP_CHECKPOINT_RESTORE" in (found.remedy or "")


def test_what_one_process_cannot_show_another_may(alone, by_name):
    add_process(alone, 100)
    add_process(alone, 200)
    line = map_file(alone, 200, "/opt/libcudart.so.12")
    alone.write({"proc/100/maps": line, "proc/200/maps": line})  # 100 has no such file in its own root
    found = by_name(check_libraries(alone))["libcudart"]
    assert found.data["problem"] is None
    assert [user["pid"] for user in found.data["users"]] == [100, 200]


def test_no_regular_file_and_no_library_are_refused(alone, by_name):
    add_process(alone, 100)
    line = map_file(alone, 100, "/opt/libcuda.so.1")
    alone.write({"proc/100/maps": line})
    (alone.root / "proc/100/root/opt/libcuda.so.1").write_bytes(b"#!" * 64)
    assert "not an ELF file" in by_name(check_libraries(alone))["libcuda"].detail


def test_only_the_deleted_one_of_two_libraries_is_deleted(alone, by_name):
    add_process(alone, 100)
    there, gone = (
        map_file(alone, 100, "/a/libcuda.so.1"),
        map_file(alone, 100, "/a/libnccl.so.2", deleted=True),
    )
    alone.write({"proc/100/maps": there + gone})
    found = by_name(check_libraries(alone))
    assert found["libcuda"].data["users"][0]["is_deleted"] is False
    assert found["libnccl"].data["users"][0]["is_deleted"] is True


def test_control_characters_of_strangers_do_not_come_through(alone, by_name):
    add_process(alone, 100, "\x1b[31mred")
    alone.write({"proc/100/maps": map_file(alone, 100, "/opt/\x1b]0;x\x07/libcuda.so.1")})
    found = by_name(check_libraries(alone))["libcuda"]
    assert found.detail.isprintable()
    assert "100 ?[31mred" in found.detail


def test_mappings_past_the_limit_are_read_in_part_and_said_so(alone, by_name):
    line = "7f00-7fff r-xp 00000000 08:01 99 /" + "x" * 4000 + "\n"
    add_process(alone, 100, "hoarder", maps=line * 4300)
    found = by_name(check_libraries(alone))["processes"]
    assert found.status is Status.WARN
    assert "mappings read in part only: 100 hoarder" in found.detail


def test_processes_of_others_are_counted_not_forgotten(public_host, drop_root, by_name):
    alone = without_agent(public_host)
    add_process(alone, 100, "secret")
    (alone.root / "proc/100/maps").chmod(0)
    drop_root()
    found = by_name(check_libraries(alone))
    assert found["processes"].data["refused"] == 1
    assert found["in use"].detail.startswith("none now that this user can see")


def test_a_gpu_user_without_a_library_is_named(alone, by_name):
    alone.write({"dev/nvidiactl": "", "dev/nvidia0": ""})
    add_process(alone, 100, "static")
    add_process(alone, 200, "other")
    alone.link("proc/100/fd/3", "/dev/nvidia0").link("proc/200/fd/3", "/dev/null")
    found = by_name(check_libraries(alone))["GPU users without a library"]
    assert found.data["processes"] == ["100 static"]


def test_this_process_and_its_children_are_left_out(alone):
    add_process(alone, os.getpid())
    add_process(alone, 100)
    add_process(alone, 300)
    stat = (alone.root / "proc/300/stat").read_text().replace(" S 1 ", f" S {os.getpid()} ")
    alone.write({"proc/300/stat": stat})
    assert scan_libraries(alone).looked == 1


def test_marks_are_told_here_and_in_processes(alone, by_name):
    (finding,) = check_marks(alone)
    assert finding.status is Status.ABSENT
    fresh = type(alone)(root=alone.root, search=()).given(ask_agent, PeerError("none"))
    add_process(fresh, 100)
    fresh.write({"proc/100/maps": map_file(fresh, 100, "/venv/hotstage_marks/libhotstage_marks.so")})
    (finding,) = check_marks(fresh)
    assert (finding.status, finding.data["pids"]) == (Status.OK, [100])
