# SPDX-License-Identifier: Apache-2.0
"""Only what root alone can have written is read; each file is refused by itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotstage.errors import ConfigError
from hotstage.probes.custom.files import FILE_BYTES_MAX, FILES_MAX, CustomFile, read_files

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root's own files are made here")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Below /tmp, which everybody may write, but sticky; pytest's own folders need not be root's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def refusals(folder: Path) -> dict[str, str]:
    return {
        each[0].name: f"{each[1].message}; {each[1].remedy}"
        for each in read_files(folder)
        if not isinstance(each, CustomFile)
    }


def test_no_directory_is_no_file(tmp_path: Path) -> None:
    assert list(read_files(tmp_path / "none")) == []


@needs_root
def test_files_come_by_name_with_a_digest(folder: Path) -> None:
    for name in ("b.bpf.c", "a.bpf.c", "notes.txt"):
        (folder / name).write_text(name)
    found = list(read_files(folder))
    assert [each.name for each in found if isinstance(each, CustomFile)] == ["a", "b"]
    first = found[0]
    assert isinstance(first, CustomFile)
    assert (first.text, len(first.digest)) == ("a.bpf.c", 64)


@needs_root
@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_refused_with_the_command_that_helps(folder: Path, mode: int) -> None:
    (folder / "a.bpf.c").write_text("x")
    (folder / "a.bpf.c").chmod(mode)
    (folder / "b.bpf.c").write_text("x")
    assert f"chmod go-w {folder}/a.bpf.c" in refusals(folder)["a.bpf.c"]
    assert set(refusals(folder)) == {"a.bpf.c"}


@needs_root
def test_a_file_of_somebody_else_is_refused(folder: Path) -> None:
    (folder / "a.bpf.c").write_text("x")
    os.chown(folder / "a.bpf.c", 65534, 0)
    assert "others than root may write it" in refusals(folder)["a.bpf.c"]


@needs_root
def test_links_pipes_floods_and_noise_are_refused(folder: Path) -> None:
    (folder / "real").write_text("x")
    (folder / "link.bpf.c").symlink_to(folder / "real")
    os.mkfifo(folder / "pipe.bpf.c", 0o600)
    (folder / "large.bpf.c").write_text("x" * (FILE_BYTES_MAX + 1))
    (folder / "noise.bpf.c").write_bytes(b"\xff\xfe")
    (folder / "Name.bpf.c").write_text("x")
    assert set(refusals(folder)) == {f"{name}.bpf.c" for name in ("link", "pipe", "large", "noise", "Name")}


@needs_root
def test_no_more_files_are_taken_than_there_is_room_for(folder: Path) -> None:
    for number in range(FILES_MAX + 2):
        (folder / f"p{number:02}.bpf.c").write_text("x")
    assert len(refusals(folder)) == 2


@needs_root
@pytest.mark.parametrize("change", ["mode", "owner"])
def test_a_directory_that_others_may_write_is_refused_as_a_whole(folder: Path, change: str) -> None:
    inner = folder / "probes.d"
    inner.mkdir()
    if change == "mode":
        folder.chmod(0o777)
    else:
        os.chown(inner, 65534, 0)
    with pytest.raises(ConfigError, match="others than root may write there") as error:
        list(read_files(inner))
    assert "chown root:root" in (error.value.remedy or "")
