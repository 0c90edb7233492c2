# SPDX-License-Identifier: Apache-2.0
"""Functions that do nothing, in a file of our own, to be probed and called: what a trap costs on this host.

Machine code, because a compiler is not at hand where the agent runs, and because the first instruction
decides the price. The file is anonymous memory: it has an inode like any other, and only we map it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import time
from dataclasses import dataclass

from hotstage.probes.loader.base import OpenLibrary

_PAGE = mmap.PAGESIZE
_GAP = 64


@dataclass(frozen=True, slots=True)
class _Code:
    """`loop(function, calls, argument)` calls; `deep`, right behind it, puts as many frames around it as its
    fourth argument says; `plain` begins with an instruction that the kernel emulates (x86-64), `stepped` with
    one that it steps.
    """

    loop: bytes
    deep: bytes
    plain: bytes
    stepped: bytes


_CODE = {
    "x86_64": _Code(
        # push rbx, r12, r13; mov rbx, rdi; mov r12, rsi; mov r13, rdx; 1: mov rdi, r13; xor esi, esi;
        # call rbx; dec r12; jnz 1b; pop r13, r12, rbx; ret
        loop=bytes.fromhex("5341544155 4889fb 4989f4 4989d5 4c89ef 31f6 ffd3 49ffcc 75f4 415d 415c 5b c3"),
        # push rbp; mov rbp, rsp; dec ecx; js 1f; call deep; pop rbp; ret; 1: call loop; pop rbp; ret
        deep=bytes.fromhex("55 4889e5 ffc9 7807 e8f3ffffff 5d c3 e8acffffff 5d c3"),
        plain=bytes.fromhex("55488d04375dc3"),  # push rbp; lea rax, [rdi+rsi]; pop rbp; ret
        stepped=bytes.fromhex("4889f8c3"),  # mov rax, rdi; ret
    ),
    "aarch64": _Code(
        # stp x29, x30, x19, x20, x21; mov x19..x21, x0..x2; 1: mov x0, x21; mov x1, xzr; blr x19;
        # subs x20, x20, #1; b.ne 1b; ldp; ret
        loop=b"".join(
            word.to_bytes(4, "little")
            for word in (
                *(0xA9BD7BFD, 0xA90153F3, 0xF90013F5, 0xAA0003F3, 0xAA0103F4, 0xAA0203F5),
                *(0xAA1503E0, 0xAA1F03E1, 0xD63F0260, 0xF1000694, 0x54FFFF81),
                *(0xF94013F5, 0xA94153F3, 0xA8C37BFD, 0xD65F03C0),
            )
        ),
        # stp x29, x30; mov x29, sp; subs w3, w3, #1; b.mi 1f; bl deep; ldp; ret; 1: bl loop; ldp; ret
        deep=b"".join(
            word.to_bytes(4, "little")
            for word in (
                *(0xA9BF7BFD, 0x910003FD, 0x71000463, 0x54000084, 0x97FFFFFC, 0xA8C17BFD, 0xD65F03C0),
                *(0x97FFFFE9, 0xA8C17BFD, 0xD65F03C0),
            )
        ),
        plain=bytes.fromhex("0000018bc0035fd6"),  # add x0, x0, x1; ret
        stepped=bytes.fromhex("0000018bc0035fd6"),
    ),
}


class Twins:
    """So many functions of each kind. Raises OSError where the host maps no such code, KeyError for a machine
    that none is written for.
    """

    def __init__(self, plain: int, stepped: int) -> None:
        code = _CODE[platform.machine()]
        parts = [code.loop, code.deep, *[code.plain] * plain, *[code.stepped] * stepped]
        text = b"".join(part.ljust(_GAP, b"\0") for part in parts).ljust(_PAGE, b"\0")
        self.plain = [_GAP * (2 + at) for at in range(plain)]
        self.stepped = [_GAP * (2 + plain + at) for at in range(stepped)]
        fd = os.memfd_create("hotstage-twins", os.MFD_CLOEXEC)
        try:
            os.write(fd, text)
            # Private and never writable: the kernel probes no other mapping.
            self._memory = _map_code(fd, len(text))
        except OSError:
            os.close(fd)
            raise
        status = os.fstat(fd)
        self.library = OpenLibrary(
            fd, "hotstage-twins", status.st_dev, status.st_ino, status.st_size, None, "twins"
        )
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p)
        self._loop = kind(self._memory)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_int)
        self._deep = kind(self._memory + _GAP)
        self._name = ctypes.create_string_buffer(b"hotstage twin")

    def slice_ns(self, offset: int, calls: int, word: int | None = None, depth: int = 0) -> int:
        """Time of so many calls, `depth` frames around; their argument is `word`, or a string's address."""
        argument = ctypes.addressof(self._name) if word is None else word
        function = self._memory + offset
        began = time.perf_counter_ns()
        if depth:
            self._deep(function, calls, argument, depth)
        else:
            self._loop(function, calls, argument)
        return time.perf_counter_ns() - began

    def close(self) -> None:
        """Unmap; probes must be gone."""
        _libc.munmap(ctypes.c_void_p(self._memory), ctypes.c_size_t(_PAGE))
        os.close(self.library.fd)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_FAILED = ctypes.c_void_p(-1).value


def _map_code(fd: int, size: int) -> int:
    """By hand: of memory that it may not write, Python tells no address."""
    address = _libc.mmap(
        None,
        ctypes.c_size_t(size),
        mmap.PROT_READ | mmap.PROT_EXEC,
        mmap.MAP_PRIVATE,
        fd,
        ctypes.c_long(0),
    )
    if address is None or address == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(address)
