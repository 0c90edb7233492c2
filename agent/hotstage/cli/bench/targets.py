# SPDX-License-Identifier: Apache-2.0
"""The programs that are measured, compiled from this folder into a temporary directory."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from hotstage import __version__
from hotstage.errors import PreflightError
from hotstage.probes.catalogue.placement import CODE_BYTES, place
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.loader.base import AttachPoint, OpenLibrary, PointKind, Rung

_SOURCES = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Target:
    """A compiled library, opened for attaching; `points` says where a symbol of it is probed."""

    library: OpenLibrary
    offsets: dict[str, int]

    def point(self, symbol: str, call_id: int, kind: PointKind) -> AttachPoint:
        """The place to probe a symbol, by the agent's own placement rule."""
        start = self.offsets[symbol]
        placement = place(os.pread(self.library.fd, CODE_BYTES, start))
        return AttachPoint(call_id, symbol, start + placement.skip, kind, placement.is_emulated, start)


@contextmanager
def compiled(*sources: str, include: Path = _SOURCES) -> Iterator[Path]:
    """Compile `name.S` into `libname.so` and `name.c` into `name`, with headers of `include`; the directory
    that holds them.

    Raises PreflightError without a C compiler or when it fails.
    """
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        raise PreflightError("the benchmark compiles its targets: no C compiler", remedy="install gcc")
    with TemporaryDirectory(prefix="hotstage-bench-") as directory:
        for source in sources:
            stem, suffix = source.split(".")
            how = ["-shared", "-nostdlib"] if suffix == "S" else ["-O2", "-pthread"]
            output = Path(directory) / (f"lib{stem}.so" if suffix == "S" else stem)
            command = [compiler, *how, f"-I{include}", "-o", str(output), str(_SOURCES / source)]
            done = subprocess.run([*command, "-ldl"], capture_output=True, text=True, check=False)
            if done.returncode:
                raise PreflightError(f"{source} does not compile:\n{done.stderr.strip()}")
        yield Path(directory)


@contextmanager
def opened(path: Path, kind: str) -> Iterator[Target]:
    """Open a library for attaching."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        library = OpenLibrary(fd, str(path), status.st_dev, status.st_ino, status.st_size, None, kind)
        yield Target(library, {name: symbol.offset for name, symbol in read_elf(fd).functions.items()})
    finally:
        os.close(fd)


def simulated_libcuda(folder: Path) -> Path:
    """The simulated GPU host's libcuda, laid out in `folder` by a process of its own: rooms stay apart.

    Raises PreflightError when it cannot be built.
    """
    code = (
        "import sys, pathlib, hotstage.simhost.build as build; "
        "print(build.lay_out(pathlib.Path(sys.argv[1])).libcuda)"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PreflightError(f"the simulated libcuda cannot be built: {done.stderr.strip().splitlines()[-1]}")
    return Path(done.stdout.strip())


def host_facts(loader: str, rung: Rung) -> dict[str, object]:
    """The `host` member of every report."""
    return {
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "loader": loader,
        "rung": str(rung),
        "versions": {
            "hotstage": __version__,
            "python": platform.python_version(),
            "numpy": version("numpy"),
        },
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "CPU part"):
            return value.strip()
    return platform.machine()
