# SPDX-License-Identifier: Apache-2.0
"""A libcuda.so.1 made by gcc, whose functions begin like the real one's and do what a test wants of them.

`BODIES` are C functions; what a test changes is text put in their place.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hotstage.probes.catalogue import LIBRARIES
from hotstage.probes.discovery.elf import read_elf
from hotstage.probes.discovery.libraries import ParsedLibrary
from hotstage.probes.discovery.targets import plan
from hotstage.probes.loader.base import AttachPoint, OpenLibrary

ENTRIES = r"""
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
        function cuLaunchKernel
        function cuMemAlloc_v2
        function cuStreamSynchronize
        function cuDriverGetVersion
        function cuGetProcAddress_v2
        .data
flag:   .long   1
        .section .note.GNU-stack,"",@progbits
"""

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


def build_driver(folder: Path, *, version: str = "", look_up: str = "", more: str = "") -> Path:
    """Compile it into `folder`; the texts go into cuDriverGetVersion, into the look-up and behind all."""
    folder.mkdir(parents=True, exist_ok=True)
    entries, bodies, built = folder / "entries.S", folder / "bodies.c", folder / "libcuda.so.1"
    entries.write_text(ENTRIES)
    text = BODIES.replace("@VERSION@", version).replace("@LOOK_UP@", look_up).replace("@MORE@", more)
    bodies.write_text(text)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-fcf-protection=none", "-Wl,--build-id"]
    subprocess.run(
        [*command, "-Wl,-soname,libcuda.so.1", "-o", built, entries, bodies], check=True, timeout=60
    )
    return built


def parse_driver(path: Path) -> tuple[ParsedLibrary, tuple[AttachPoint, ...]]:
    """The library opened as discovery would, and its plan; the caller closes `library.fd`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    status, elf = os.fstat(fd), read_elf(fd)
    library = OpenLibrary(
        fd, str(path), status.st_dev, status.st_ino, status.st_size, elf.build_id, "libcuda"
    )
    parsed = ParsedLibrary(library, elf, unlinked=False)
    return parsed, plan(parsed, LIBRARIES)[0]
