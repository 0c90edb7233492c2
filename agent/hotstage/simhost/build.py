# SPDX-License-Identifier: Apache-2.0
"""Compiles the stub libraries once per content, and lays a run's copies out under their real names.

Nothing vendor-made is compiled, linked or copied: the sources are this folder's `stubs/`. A wheel brings them
compiled, in `libraries/`, so that a demo needs no compiler.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hotstage.errors import PreflightError

STUBS = Path(__file__).parent / "stubs"
PREPARED = Path(__file__).parent / "libraries"
"""Where a wheel has them; a source checkout has no such folder."""
DRIVER = "550.00"
COMPILER = "gcc"
FLAGS = (
    *("-O2", "-g", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"),
    # The entry points are assembly without endbr64; -Bsymbolic keeps calls inside the library.
    *(("-fcf-protection=none",) if platform.machine() == "x86_64" else ()),
    *("-Wl,-Bsymbolic", "-Wl,--no-undefined", "-Wl,--build-id=sha1"),
)
_DIGEST_FILE = "digest"


@dataclass(frozen=True, slots=True)
class StubLibrary:
    """One library: file name, the link that programs ask for, sources, further linker arguments.

    Paths in `link` are relative to the sources: the digest must be the same wherever they lie.
    """

    file: str
    soname: str
    sources: tuple[str, ...]
    link: tuple[str, ...] = ()


LIBRARIES = (
    StubLibrary(
        file=f"libcuda.so.{DRIVER}",
        soname="libcuda.so.1",
        sources=(
            "cuda_entry.c",
            "cuda_truth.c",
            "cuda.c",
            "cuda_context.c",
            "cuda_streams.c",
            "cuda_launch.c",
            "cuda_memory.c",
            "cuda_virtual.c",
            "cuda_unsupported.c",
            "page.c",
        ),
        link=("-lpthread", "-ldl"),
    ),
    StubLibrary(
        file=f"libnvidia-ml.so.{DRIVER}",
        soname="libnvidia-ml.so.1",
        sources=("nvml.c", "nvml_readings.c", "nvml_events.c", "page.c"),
        link=("-ldl",),
    ),
    StubLibrary(
        file="libcudart.so.12.4.00",
        soname="libcudart.so.12",
        sources=("cudart.c",),
        link=("-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN", "-Wl,--version-script=cudart.map"),
    ),
    StubLibrary(
        file="libnccl.so.2.32.3",
        soname="libnccl.so.2",
        sources=("nccl.c",),
        link=("-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN", "-Wl,--version-script=nccl.map"),
    ),
    StubLibrary(
        file="libsimserver.so",
        soname="libsimserver.so",
        sources=("server.c", "server_memory.c"),
        link=("-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"),
    ),
)


@dataclass(frozen=True, slots=True)
class StubPaths:
    """Where a run's libraries are."""

    folder: Path
    libcuda: Path
    libcudart: Path
    libnccl: Path
    libnvidia_ml: Path
    server: Path


def lay_out(folder: Path, cache: Path | None = None) -> StubPaths:
    """Copy the compiled libraries into `folder` (made if missing), compiling them first where needed.

    The copies are this run's own files: a watcher that finds them by inode finds nobody else's.
    Raises PreflightError if there is no compiler or it refuses the sources.
    """
    built = build(cache or default_cache())
    folder.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES:
        shutil.copy(built / library.file, folder / library.file)
        _link_soname(folder, library)
    return StubPaths(
        folder=folder,
        libcuda=folder / "libcuda.so.1",
        libcudart=folder / "libcudart.so.12",
        libnccl=folder / "libnccl.so.2",
        libnvidia_ml=folder / "libnvidia-ml.so.1",
        server=folder / "libsimserver.so",
    )


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/hotstage/simhost`."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "hotstage" / "simhost"


def build(cache: Path, prepared: Path = PREPARED) -> Path:
    """The folder of compiled libraries for these sources and flags; two builders at once do no harm.

    What a wheel brought in `prepared` is taken while it was made from these very sources.
    """
    if _digest_of(prepared) == _digest():
        return prepared
    target = cache / _digest()
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fresh = Path(scratch) / "libraries"
        _compile_all(fresh)
        try:
            fresh.rename(target)
        except OSError:
            if not target.is_dir():  # else another builder was first: the same content
                raise
    return target


def prepare(folder: Path) -> None:
    """Compile them for a wheel: real file names only, since a wheel has no links, and their digest beside.

    Raises PreflightError as `build` does.
    """
    _compile_all(folder)
    for library in LIBRARIES:
        if library.soname != library.file:
            (folder / library.soname).unlink()
    (folder / _DIGEST_FILE).write_text(_digest() + "\n", encoding="ascii")


def _digest_of(prepared: Path) -> str | None:
    try:
        return (prepared / _DIGEST_FILE).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None


def _compile_all(folder: Path) -> None:
    folder.mkdir(parents=True)
    for library in LIBRARIES:
        _compile(library, folder)
        _link_soname(folder, library)


def _digest() -> str:
    content = hashlib.sha256(repr((COMPILER, FLAGS, LIBRARIES)).encode())
    for source in sorted(STUBS.iterdir()):
        content.update(source.name.encode() + b"\0" + source.read_bytes())
    return content.hexdigest()[:16]


def _compile(library: StubLibrary, folder: Path) -> None:
    command = [
        COMPILER,
        *FLAGS,
        f"-ffile-prefix-map={STUBS}=stubs",  # the place of this build is nobody's business
        *library.sources,
        f"-Wl,-soname,{library.soname}",
        f"-L{folder.resolve()}",
        *library.link,
        *("-o", str(folder.resolve() / library.file)),
    ]
    remedy = "install a C compiler: apt-get install gcc libc6-dev"
    try:
        done = subprocess.run(command, cwd=STUBS, capture_output=True, text=True, check=False, timeout=120)
    except FileNotFoundError:
        raise PreflightError(
            f"no {COMPILER} to compile the simulated CUDA libraries", remedy=remedy
        ) from None
    if done.returncode != 0:
        raise PreflightError(f"{COMPILER} refused {library.file}:\n{done.stderr[-2000:]}", remedy=remedy)


def _link_soname(folder: Path, library: StubLibrary) -> None:
    if library.soname == library.file:
        return
    link = folder / library.soname
    link.unlink(missing_ok=True)
    link.symlink_to(library.file)
