# SPDX-License-Identifier: Apache-2.0
"""Where in a function a probe is cheap: exact byte patterns, each proven on real libraries, else the symbol.

An instruction that the kernel emulates costs a tenth of one that it single-steps. 98 % of libcuda's exports
begin with a compare, which is stepped; the jump behind it is emulated, and no argument, neither rsp nor the
return address has changed there. Nothing beyond these patterns is decoded: a probe inside an instruction
would crash the target.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CODE_BYTES = 24
"""Bytes of a function that the patterns need."""

_FIVE_BYTE_NOP = b"\x0f\x1f\x44\x00\x00"

# (pattern, offset of the instruction to probe); beside each, where it was proven
_RULES: tuple[tuple[re.Pattern[bytes], int], ...] = (
    # cmpl $imm32, disp32(%rip); je rel8: libcuda 535, 550, 555
    (re.compile(rb"\x81\x3d.{8}\x74.", re.DOTALL), 10),
    # mov disp32(%rip), %rax; push: libc10 reportMemoryUsageToProfiler
    (re.compile(rb"\x48\x8b\x05.{4}(?:\x41[\x50-\x57]|[\x50-\x57])", re.DOTALL), 7),
    # mov disp32(%rip), %rax; test %rax, %rax; je rel8: nvtxRangePushA and Pop
    (re.compile(rb"\x48\x8b\x05.{4}\x48\x85\xc0\x74.", re.DOTALL), 10),
)

# What arch/x86/kernel/uprobes.c emulates as a first instruction: push, nops, jmp and call rel, jcc.
_EMULATED = re.compile(
    rb"\x41?[\x50-\x57]|\x66?\x90|\x0f\x1f|[\xe8\xe9\xeb]|[\x70-\x7f]|\x0f[\x80-\x8f]",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Placement:
    """How far behind the symbol the probe goes, and whether the instruction there is emulated."""

    skip: int
    is_emulated: bool


def place(code: bytes, *, allow_rule: bool = True) -> Placement:
    """Choose the probed byte of a function from its first `CODE_BYTES` bytes (fewer at the end of a segment).

    Without `allow_rule` (another library, or the off switch) the probe stays on the symbol. A five-byte nop
    inside a function is never chosen: Linux 6.18 turns it into a call that overwrites the red zone. One at
    the begin is refused by `hazard_of`.
    """
    rule = rule_of(code) if allow_rule else None
    return Placement(0, is_emulated(code)) if rule is None else Placement(_RULES[rule][1], True)


def rule_of(code: bytes) -> int | None:
    """Which of the patterns moves the probe in a function that begins like this; None: it stays."""
    if is_emulated(code):
        return None
    return next((index for index, (pattern, _) in enumerate(_RULES) if pattern.match(code)), None)


def hazard_of(code: bytes) -> str | None:
    """Why a function that begins like this must not be probed; None when it may.

    Linux 6.18 turns a probed five-byte nop into a call to a page that fork does not copy: a child of a
    watched process would crash there.
    """
    if code.startswith(_FIVE_BYTE_NOP):
        return "begins with a five-byte nop: probed, it crashes forked children on Linux 6.18 and later"
    return None


def is_emulated(code: bytes) -> bool:
    """Whether the kernel emulates the first instruction (x86-64) rather than single-stepping it."""
    return _EMULATED.match(code) is not None
