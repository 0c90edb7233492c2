# SPDX-License-Identifier: Apache-2.0
"""A library is known by its name, believed by its inode, and opened once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hotstage.errors import AttachError
from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.discovery.libraries import (
    KINDS,
    LibraryGoneError,
    close_library,
    library_kind,
    open_library,
)
from hotstage.probes.discovery.processes import Mapping

sys.path.insert(0, str(Path(__file__).parent))
from elf_files import make_elf


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/usr/lib/libcuda.so.550.163.01", "libcuda"),
        ("/usr/lib/libcuda.so.1", "libcuda"),
        ("/usr/lib/libcuda.so", "libcuda"),
        ("/venv/nvidia/cuda_runtime/lib/libcudart.so.12", "libcudart"),
        ("/venv/nvidia/nccl/lib/libnccl.so.2", "libnccl"),
        ("/venv/nvidia/cudnn/lib/libcudnn.so.9", "libcudnn"),
        ("/venv/nvidia/cudnn/lib/libcudnn_graph.so.9", None),
        ("/venv/av.libs/libavcodec-5e6b81c2.so.62.28.102", "libavcodec"),
        ("/usr/lib/x86_64-linux-gnu/libavformat.so.59", "libavformat"),
        ("/venv/av.libs/libswscale-88e9f973.so.9.5.102", "libswscale"),
        ("/usr/lib/libavcodec_extra.so.59", None),
        ("/venv/onnxruntime/capi/libonnxruntime.so.1.32.0", "libonnxruntime"),
        ("/opt/tritonserver/backends/onnxruntime/libonnxruntime.so", "libonnxruntime"),
        ("/venv/sherpa_onnx.libs/libonnxruntime-1d9e7f3a.so.1", "libonnxruntime"),
        ("/venv/onnxruntime/capi/libonnxruntime_providers_cuda.so", None),
        ("/venv/onnxruntime_genai/libonnxruntime-genai.so", None),
        (
            "/venv/onnxruntime/capi/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so",
            "onnxruntime_python",
        ),
        ("/opt/libhotstage_marks.so.1", "marks"),
        ("/venv/hotstage_marks/libhotstage_marks.so", "marks"),
        ("/venv/hotstage_marks/_native.abi3.so", None),
        ("/memfd:libcuda.so.1", "libcuda"),
        ("/usr/lib/libcudadebugger.so.1", None),
        ("/usr/lib/notlibcuda.so.1", None),
        ("/usr/lib/libcuda.so.d/other", None),
    ],
)
def test_kinds_are_told_by_the_resolved_name(path: str, kind: str | None) -> None:
    assert library_kind(path) == kind


def test_every_library_of_the_catalogue_can_be_discovered() -> None:
    assert {library.kind for library in LIBRARIES} <= {kind for kind, _ in KINDS}


class FakeProcess:
    """`/proc/PID` with a root and `map_files` of its own."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.file = root / "proc" / "42" / "root" / "lib" / "libcuda.so.1"
        self.file.parent.mkdir(parents=True)
        self.file.write_bytes(make_elf(["cuInit"])[0])
        (self.proc / "42" / "map_files").mkdir()

    def mapping(self, *, is_deleted: bool = False) -> Mapping:
        inode = self.file.stat().st_ino
        return Mapping(0x1000, 0x2000, 0, (0, 0), inode, "/lib/libcuda.so.1", is_deleted)


@pytest.fixture
def process(tmp_path: Path) -> FakeProcess:
    return FakeProcess(tmp_path)


def test_a_library_is_opened_below_the_root_of_its_process(process: FakeProcess) -> None:
    parsed = open_library(process.proc, 42, process.mapping())
    status = process.file.stat()
    assert parsed.key == (status.st_dev, status.st_ino)
    assert parsed.library.kind == "libcuda"
    assert parsed.library.path == "/lib/libcuda.so.1"
    assert parsed.library.size == status.st_size
    assert not parsed.unlinked
    assert "cuInit" in parsed.elf.functions
    close_library(parsed)


def test_a_replaced_file_is_opened_through_map_files(process: FakeProcess) -> None:
    mapping = process.mapping()
    kept = process.file.with_name("kept")
    process.file.rename(kept)
    process.file.write_bytes(b"somebody else's")
    (process.proc / "42" / "map_files" / "1000-2000").symlink_to(kept)
    parsed = open_library(process.proc, 42, mapping)
    assert parsed.library.inode == mapping.inode
    close_library(parsed)


def test_a_replaced_file_that_is_nowhere_is_refused_with_both_reasons(process: FakeProcess) -> None:
    mapping = process.mapping()
    process.file.rename(process.file.with_name("kept"))
    process.file.write_bytes(b"somebody else's")
    with pytest.raises(AttachError, match=r"another file stands there now; map_files: No such file") as error:
        open_library(process.proc, 42, mapping)
    assert not isinstance(error.value, LibraryGoneError)


def test_a_file_or_a_process_that_has_vanished_is_told_apart(process: FakeProcess) -> None:
    mapping = process.mapping()
    process.file.unlink()
    with pytest.raises(LibraryGoneError, match="path: No such file or directory; map_files: No such file"):
        open_library(process.proc, 42, mapping)
    with pytest.raises(LibraryGoneError):
        open_library(process.proc, 43, mapping)


def test_a_symbolic_link_in_place_of_the_library_is_not_followed(process: FakeProcess) -> None:
    mapping = process.mapping()
    target = process.file.with_name("kept")
    process.file.rename(target)
    process.file.symlink_to(target)
    with pytest.raises(AttachError, match="cannot be opened"):
        open_library(process.proc, 42, mapping)


def test_a_fifo_neither_hangs_nor_is_taken(process: FakeProcess) -> None:
    process.file.unlink()
    os.mkfifo(process.file)
    with pytest.raises(AttachError, match="not a regular file"):
        open_library(process.proc, 42, process.mapping())


def test_a_forged_library_is_refused_and_leaves_no_descriptor(process: FakeProcess) -> None:
    process.file.write_bytes(b"\x7fELF" + bytes(200))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(AttachError, match="not a 64-bit little-endian ELF file"):
        open_library(process.proc, 42, process.mapping())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_nobody_foresaw_of_a_file_leaves_no_descriptor(
    process: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(fd: int) -> None:
        raise OverflowError("a number that nobody thought of")

    monkeypatch.setattr("hotstage.probes.discovery.libraries.read_elf", stumble)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OverflowError):
        open_library(process.proc, 42, process.mapping())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_absurd_size_is_refused(process: FakeProcess) -> None:
    os.truncate(process.file, 5 << 30)
    with pytest.raises(AttachError, match="5368709120 bytes"):
        open_library(process.proc, 42, process.mapping())
