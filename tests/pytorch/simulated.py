# SPDX-License-Identifier: Apache-2.0
"""A libcudart for unmodified PyTorch without a GPU: `cudart.c`, a stub for each other export; and `cublas.c`.

The names come from the libcudart that came with PyTorch, at the time of the tests; nothing of it is kept.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotstage.probes.discovery.elf import read_elf
from hotstage.simhost.build import StubPaths, lay_out
from hotstage.simhost.gpus import GpuModel
from hotstage.simhost.page import PAGE_FILE, shared_page

SOURCE, PRODUCTS = (Path(__file__).parent / name for name in ("cudart.c", "cublas.c"))
SONAME = "libcudart.so.13"


@contextmanager
def simulated_cuda(
    folder: Path, torch_python: Path, *, with_products: bool = False, factor: float = 1.0
) -> Iterator[dict[str, str]]:
    """Environment for a program with PyTorch: two GPUs of 80 GiB behind a libcudart of ours.

    `with_products`: matrix products are launches of ours, too. `factor`: work takes as many times as long.
    """
    folder.mkdir(parents=True)
    stubs = lay_out(folder)
    runtime = build_runtime(folder, stubs, real_runtime(torch_python))
    preloaded = [runtime, build_products(folder, runtime)] if with_products else [runtime]
    with shared_page(folder / PAGE_FILE) as page:
        GpuModel(page)
        for device in page.devices:
            device.factor = factor
        yield {"LD_PRELOAD": ":".join(map(str, preloaded)), "LD_LIBRARY_PATH": str(folder)}


def real_runtime(torch_python: Path) -> Path:
    """The libcudart that PyTorch would load."""
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([torch_python, "-c", program], check=True, capture_output=True, text=True)
    (found,) = Path(packages.stdout.strip()).glob(f"nvidia/*/lib/{SONAME}")
    return found


def build_runtime(folder: Path, stubs: StubPaths, real: Path) -> Path:
    """Compile `cudart.c` with the rest of the real one's exports, under the real one's version."""
    ours = set(re.findall(r"^\w[\w ]*?\**(\w*cuda\w+)\(", SOURCE.read_text(), re.MULTILINE))
    rest = exports(real) - ours
    generated, versions, built = folder / "rest.S", folder / "versions.map", folder / SONAME
    generated.write_text(
        "\t.text\n"
        + "".join(f"\t.globl {name}\n\t.type {name}, @function\n{name}:\n" for name in sorted(rest))
        + '\tpush %rbp\n\txor %eax, %eax\n\tpop %rbp\n\tret\n\t.section .note.GNU-stack,"",@progbits\n'
    )
    versions.write_text(f"{SONAME} {{\nglobal:\n\tcuda*;\n\t__cuda*;\n\tsimulated_*;\nlocal:\n\t*;\n}};\n")
    command = [
        *("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fcf-protection=none"),
        *("-o", built, SOURCE, generated, f"-L{stubs.folder}", "-l:libcuda.so.1"),
        *(f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={versions}", "-Wl,-rpath,$ORIGIN"),
    ]
    subprocess.run(command, check=True)
    return built


def build_products(folder: Path, runtime: Path) -> Path:
    """Compile `cublas.c`."""
    built = folder / "libproducts.so"
    flags = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fcf-protection=none")
    subprocess.run(["gcc", *flags, "-o", built, PRODUCTS, runtime], check=True)
    return built


def exports(library: Path) -> set[str]:
    """Functions that a library exports."""
    fd = os.open(library, os.O_RDONLY)
    try:
        return {name for name in read_elf(fd).functions if "cuda" in name}
    finally:
        os.close(fd)
