# SPDX-License-Identifier: Apache-2.0
"""A libcuda.so.1 made by gcc, whose functions begin like the real one's and do what a test wants of them.

`BODIES` are C functions; what a test changes is text put in their place.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.loader.base import AttachPoint, OpenLibrary

_MACRO = r"""
        .macro  function name
        .text
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        cmpl    $0x321cba00, flag(%rip)
        je      1f
        jmp     body_\name
1:      mov     $4, %eax
        ret
        .size   \name, . - \name
        .endm
"""
_DATA = r"""
        .data
flag:   .long   1
        .section .note.GNU-stack,"",@progbits
"""

SYMBOLS = (
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuStreamSynchronize",
    "cuDriverGetVersion",
    "cuGetProcAddress_v2",
)

BODIES = r"""
#include <string.h>
#define HIDDEN __attribute__((visibility("hidden")))
typedef unsigned long word;
int cuLaunchKernel(), cuMemAlloc_v2(), cuStreamSynchronize(), cuDriverGetVersion(), cuGetProcAddress_v2();
/* Whether the jump that a probe would stand on is as it was built. */
static inline int is_probed(void) { return ((volatile unsigned char *)cuDriverGetVersion)[10] == 0xcc; }
static int internal(void) { return 0; }
HIDDEN int body_cuLaunchKernel(void) { return 0; }
HIDDEN int body_cuMemAlloc_v2(void) { return 0; }
HIDDEN int body_cuStreamSynchronize(void) { return 0; }
HIDDEN int body_cuDriverGetVersion(int *version) { @VERSION@ *version = 12040; return 0; }
HIDDEN int body_cuGetProcAddress_v2(const char *name, void **found, int version, word flags, int *status)
{
        *found = 0;
        if (!strcmp(name, "cuLaunchKernel")) *found = (void *)cuLaunchKernel;
        if (!strcmp(name, "cuMemAlloc")) *found = version < 3020 ? (void *)internal : (void *)cuMemAlloc_v2;
        @LOOK_UP@
        return 0;
}
@MORE@
"""

DIES_UNDER_A_PROBE = 'if (is_probed()) __asm__("ud2");'
LIES_UNDER_A_PROBE = "if (is_probed()) return 7;"
INTERNAL_STREAM_WAIT = '(void)flags; if (!strcmp(name, "cuStreamSynchronize")) *found = (void *)internal;'


def build_driver(
    folder: Path,
    *,
    version: str = "",
    look_up: str = "",
    more: str = "",
    others: Sequence[str] = (),
    entries: Sequence[str] = (),
) -> Path:
    """Compile it into `folder`; the texts go into cuDriverGetVersion, into the look-up and behind all.

    `others` are further functions, which return 0; `entries` are such whose bodies are in `more`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    assembly, bodies, built = folder / "entries.S", folder / "bodies.c", folder / "libcuda.so.1"
    functions = "".join(f"        function {name}\n" for name in (*SYMBOLS, *others, *entries))
    assembly.write_text(_MACRO + functions + _DATA)
    more += "".join(f"HIDDEN int body_{name}(void) {{ return 0; }}\n" for name in others)
    text = BODIES.replace("@VERSION@", version).replace("@LOOK_UP@", look_up).replace("@MORE@", more)
    bodies.write_text(text)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-fcf-protection=none", "-Wl,--build-id"]
    subprocess.run(
        [*command, "-Wl,-soname,libcuda.so.1", "-o", built, assembly, bodies], check=True, timeout=60
    )
    return built


def every_symbol() -> list[str]:
    """All of libcuda that the catalogue has, for `others`."""
    catalogued = next(spec for spec in LIBRARIES if spec.kind == "libcuda")
    return [name for name in catalogued.by_symbol() if name not in SYMBOLS]


def copy_of(library: Path, folder: Path, number: int) -> Path:
    """The same library in a file of its own, as another build: its build-id carries the number."""
    folder.mkdir(parents=True, exist_ok=True)
    with library.open("rb") as file:
        build_id = bytes.fromhex(read_elf(file.fileno()).build_id)
    made = folder / library.name
    made.write_bytes(library.read_bytes().replace(build_id, number.to_bytes(4, "big") + build_id[4:]))
    made.chmod(0o755)
    return made


def parse_driver(path: Path, kind: str = "libcuda") -> tuple[ParsedLibrary, tuple[AttachPoint, ...]]:
    """The library opened as discovery would, and its plan; the caller closes `library.fd`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    status, elf = os.fstat(fd), read_elf(fd)
    library = OpenLibrary(fd, str(path), status.st_dev, status.st_ino, status.st_size, elf.build_id, kind)
    parsed = ParsedLibrary(library, elf, unlinked=False)
    return parsed, plan(parsed, LIBRARIES)[0]
