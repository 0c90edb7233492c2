# SPDX-License-Identifier: Apache-2.0
"""Mapped file → open library: which kinds there are, and how one is opened once and for all.

A library is opened, checked, parsed and attached through one descriptor, so that nobody can swap it in
between. Its name proves nothing: only a regular file with the mapped inode is taken. It never attaches.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from hotstage.config.settings import ProbesConfig
from hotstage.errors import AttachError
from hotstage.probes.catalogue.onnxruntime import BASE_FUNCTION, ONNX_RUNTIME
from hotstage.probes.catalogue.torch_allocator import TORCH_REQUESTS
from hotstage.probes.catalogue.torch_nvtx import TORCH_NVTX
from hotstage.probes.discovery.api_table import ApiTable, read_api_table
from hotstage.probes.discovery.elf import ElfError, ElfFile, read_elf
from hotstage.probes.discovery.elf_locals import local_functions
from hotstage.probes.discovery.processes import Mapping, printable
from hotstage.probes.discovery.usdt import UsdtSite, read_sites
from hotstage.probes.loader.base import OpenLibrary

SIZE_LIMIT = 4 << 30
"""The largest real one (a cuDNN engine library) has about 600 MB."""

KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("libcuda", re.compile(r"/libcuda\.so(\.|$)[^/]*$")),
    ("libcudart", re.compile(r"/libcudart\.so[^/]*$")),
    ("libnccl", re.compile(r"/libnccl\.so[^/]*$")),
    ("libcudnn", re.compile(r"/libcudnn\.so\.[0-9]+[^/]*$")),
    *(
        (kind, re.compile(rf"/{kind}(-[0-9a-f]+)?\.so[^/]*$"))  # wheels put a hash into the names of theirs
        for kind in ("libavcodec", "libavformat", "libswscale", "libavfilter")
    ),
    ("libonnxruntime", re.compile(r"/libonnxruntime(-[0-9a-f]{6,})?\.so[^/]*$")),
    ("onnxruntime_python", re.compile(r"/onnxruntime_pybind11_state[^/]*\.so$")),
    ("torch_nvtx", re.compile(r"/libtorch_python\.so$")),
    ("libc10", re.compile(r"/libc10\.so$")),
    ("libc10_cuda", re.compile(r"/libc10_cuda\.so$")),
    ("marks", re.compile(r"/libhotstage_marks[^/]*\.so[^/]*$")),
)
"""Kind and how its resolved file name looks in `maps`; the first that fits."""
BEYOND_REACH = {
    "onnxruntime_python": (
        "Python's binding has ONNX Runtime in its own file, calls it past its table of functions, and exports"
        " none: its sessions and runs are not counted, the CUDA calls that they make are"
    )
}
"""Kinds that are told of and never probed, and why."""
OPTIONAL_KINDS = frozenset({"torch_nvtx", "libc10", "libc10_cuda"})
_PROBES = frozenset(call.name for call in TORCH_REQUESTS.calls)
_GONE = frozenset({errno.ENOENT, errno.ESRCH})


class LibraryGoneError(AttachError):
    """The process or the file has vanished since its mapping was read: nothing that anybody could mend."""


@dataclass(frozen=True, slots=True)
class ParsedLibrary:
    """An open library, what it exports, the catalogue's USDT probes in it; `unlinked` when no directory
    names the file any more. Functions of a table stand among the exports, by their rows' names; those of it
    that must not be probed in `refused`, with the reason.
    """

    library: OpenLibrary
    elf: ElfFile
    unlinked: bool
    sites: tuple[UsdtSite, ...] = ()
    api_table: ApiTable | None = None
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, int]:
        """(st_dev, inode): the kernel probes inodes, so this is what must not be attached twice."""
        return self.library.device, self.library.inode


def library_kind(path: str) -> str | None:
    """The kind of library that a mapped path is by its name; None for all others."""
    named = path.replace("/memfd:", "/", 1)  # a library that has only memory behind it
    return next((kind for kind, pattern in KINDS if pattern.search(named)), None)


def optional_kinds(config: ProbesConfig) -> frozenset[str]:
    """Kinds of libraries that are probed only where the configuration asks for it, and it does."""
    kinds = {"torch_nvtx"} if config.nvtx_torch else set()
    return frozenset(kinds | ({"libc10", "libc10_cuda"} if config.torch_memory else set()))


def is_library(path: str, *, optional: Collection[str] = ()) -> bool:
    """Whether it is looked into; PyTorch's own only where they are among the `optional` kinds."""
    kind = library_kind(path)
    return kind is not None and (kind not in OPTIONAL_KINDS or kind in optional)


def open_library(proc_root: Path, pid: int, mapping: Mapping) -> ParsedLibrary:
    """Open and parse what `pid` has mapped; the caller owns the descriptor.

    Raises LibraryGoneError, or AttachError with the reason: replaced, no regular file, too large, not an ELF
    library.
    """
    kind = library_kind(mapping.path)
    shown = printable(mapping.path)
    if kind is None:
        raise AttachError("not a library that is known by its name", path=shown)
    fd = open_mapped(proc_root / str(pid), mapping, shown)
    try:
        status = os.fstat(fd)
        elf = read_elf(fd)
        if kind == "torch_nvtx":
            names = [call.name for call in TORCH_NVTX.calls]
            elf = replace(elf, functions=local_functions(fd, elf, names))
        table, refused = None, dict[str, str]()
        if kind == ONNX_RUNTIME.kind:
            table, functions, refused = read_api_table(fd, elf, ONNX_RUNTIME.calls)
            # What hands the table out is no row of it, and is what a trial calls
            base = {name: each for name, each in elf.functions.items() if name == BASE_FUNCTION}
            elf = replace(elf, functions={**base, **functions})
        sites = read_sites(fd, elf, _PROBES) if kind == TORCH_REQUESTS.kind else ()
    except (ElfError, OSError) as error:
        os.close(fd)
        raise AttachError(f"refused: {error}", path=shown) from error
    except BaseException:  # nobody foresaw it: the file is let go all the same
        os.close(fd)
        raise
    library = OpenLibrary(
        fd=fd,
        path=shown,
        device=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
        build_id=elf.build_id,
        kind=kind,
    )
    return ParsedLibrary(library, elf, status.st_nlink == 0, sites, table, refused)


def close_library(parsed: ParsedLibrary) -> None:
    os.close(parsed.library.fd)


def open_mapped(process: Path, mapping: Mapping, shown: str) -> int:
    """By the path in the process's own root; by `map_files` where the path no longer leads to the mapped
    inode.
    """
    reasons: list[str] = []
    is_gone = True
    ways: tuple[tuple[str, Callable[[], int]], ...] = (
        ("path", lambda: _open_path(process / "root" / mapping.path.lstrip("/"), os.O_NOFOLLOW)),
        ("map_files", lambda: _open_path(process / "map_files" / mapping.map_files_name, 0)),
    )
    for name, opening in ways[1:] if mapping.is_deleted else ways:
        try:
            fd = opening()
        except OSError as error:
            reasons.append(f"{name}: {error.strerror}")
            is_gone &= error.errno in _GONE
            continue
        try:
            return _reopen_checked(fd, mapping.inode)
        except (ElfError, OSError) as error:
            reasons.append(f"{name}: {error.strerror if isinstance(error, OSError) else error}")
            is_gone = False
        finally:
            os.close(fd)
    failure = LibraryGoneError if is_gone else AttachError
    raise failure(
        f"cannot be opened ({'; '.join(reasons)})",
        path=shown,
        remedy="CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; CAP_CHECKPOINT_RESTORE for deleted libraries",
    )


def _open_path(path: Path, flags: int) -> int:
    # O_PATH runs no driver's open(): whatever a stranger has put there by now, looking at it has no effect
    return os.open(path, os.O_PATH | os.O_CLOEXEC | flags)


def _reopen_checked(path_fd: int, inode: int) -> int:
    status = os.fstat(path_fd)
    if not stat.S_ISREG(status.st_mode):
        raise ElfError("not a regular file")
    if status.st_ino != inode:
        raise ElfError("another file stands there now")
    if not 64 <= status.st_size <= SIZE_LIMIT:
        raise ElfError(f"{status.st_size} bytes")
    return os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
