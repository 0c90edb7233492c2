# SPDX-License-Identifier: Apache-2.0
"""Ports and places are tried for real, and left as they were."""

from __future__ import annotations

import socket

import pytest

from hotstage.cli.doctor.finding import Status
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.places import file_system, try_directory, try_port


@pytest.fixture
def here():
    return Host()


def test_a_port_in_use_is_told_with_who_holds_it(here):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        finding = try_port(here, "API", "http.listen", address)
        assert finding.status is Status.WARN
        assert f"{address} is in use by" in finding.detail
    assert try_port(here, "API", "http.listen", address).status is Status.OK


@pytest.mark.parametrize("listen", ["192.0.2.1:9178", "127.0.0.1:x", "127.0.0.1:99999", "nohost.invalid:1"])
def test_an_address_that_is_not_this_hosts_is_in_the_way(here, listen):
    finding = try_port(here, "API", "http.listen", listen)
    assert finding.status is Status.FAIL
    assert "http.listen" in (finding.remedy or "")


def test_a_directory_that_can_be_made_is_not_made(here, tmp_path):
    finding = try_directory(here, "state", "store.directory", str(tmp_path / "a" / "b"))
    assert f"will be made in {tmp_path}" in finding.detail
    assert list(tmp_path.iterdir()) == []


def test_what_is_stored_already_is_measured(host, tmp_path):
    (tmp_path / "hotstage.db").write_bytes(bytes(3 << 20))
    finding = try_directory(host, "state", "store.directory", str(tmp_path))
    assert finding.data["used_bytes"] == 3 << 20
    assert finding.detail.startswith(f"{tmp_path}: 3.0 MiB used, ")


def test_a_directory_without_permission_is_a_matter_of_rights(here, public, drop_root):
    public.chmod(0o555)
    drop_root()
    finding = try_directory(here, "state", "store.directory", str(public))
    assert (finding.status, finding.is_permission) == (Status.FAIL, True)


def test_a_place_below_a_file_fails(here, tmp_path):
    (tmp_path / "file").write_text("")
    finding = try_directory(here, "state", "store.directory", str(tmp_path / "file" / "state"))
    assert (finding.status, finding.is_permission) == (Status.FAIL, False)


def mounts(host, *lines: tuple[str, str]):
    text = "\n".join(f"1 1 0:1 / {place} rw,relatime shared:1 - {kind} source rw" for place, kind in lines)
    return host.write({"proc/self/mountinfo": text})


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("ext4", Status.OK),
        ("nfs4", Status.FAIL),
        ("fuse.sshfs", Status.FAIL),
        ("tmpfs", Status.WARN),
        ("overlay", Status.WARN),
    ],
)
def test_a_database_needs_a_local_disk_that_stays(host, tmp_path, kind, status):
    mounts(host, ("/", "ext4"), (str(tmp_path), kind))
    assert try_directory(host, "state", "store.directory", str(tmp_path / "state")).status is status


def test_the_longest_mount_point_decides_and_escapes_are_read(host, tmp_path):
    mounts(host, ("/", "ext4"), ("/var", "xfs"), ("/var/lib", "btrfs"), ("/mnt/a\\040b", "nfs"))
    assert file_system(host, tmp_path / "x") == "ext4"
    assert file_system(host, tmp_path.__class__("/var/lib/hotstage")) == "btrfs"
    assert file_system(host, tmp_path.__class__("/mnt/a b/c")) == "nfs"
    assert file_system(host, tmp_path.__class__("/variety")) == "ext4"
