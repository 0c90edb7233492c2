# SPDX-License-Identifier: Apache-2.0
"""A kernel booted under qemu, and what it told."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BOOT_SECONDS = 1500
MEMORY_MIB = 3072


@dataclass
class Guest:
    """What a booted kernel told."""

    said: str
    kernel: str = ""
    rungs: dict[str, str | None] = field(default_factory=dict)
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    exit: int | None = None

    @classmethod
    def of(cls, said: str) -> Guest:
        guest = cls(said)
        for line in said.splitlines():
            if not line.startswith("told "):
                continue
            what: dict[str, Any] = json.loads(line.removeprefix("told "))
            if "rungs" in what:
                guest.kernel, guest.rungs = what["kernel"], what["rungs"]
            elif "test" in what:
                guest.outcomes[what["test"]] = (what["outcome"], what["why"])
            elif "exit" in what:
                guest.exit = what["exit"]
            else:
                guest.facts |= what
        return guest

    @property
    def series(self) -> str:
        return ".".join(self.kernel.split(".")[:2])

    @property
    def failed(self) -> dict[str, str]:
        return {name: why for name, (outcome, why) in self.outcomes.items() if outcome == "failed"}


def boot(kernel: Path, initramfs: Path, said: Path, devices: Sequence[str] = ()) -> Guest:
    """Run until the guest powers off; `said` gets its second serial line."""
    qemu = shutil.which("qemu-system-x86_64")
    assert qemu, "qemu is not installed: `make test-kernels` installs it"
    command = [
        qemu, "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB), "-vga", "none",
        "-display", "none", "-no-reboot", *(word for each in devices for word in ("-device", each)),
        "-nic", "none", "-serial", "null", "-serial", f"file:{said}", "-kernel", str(kernel),
        "-initrd", str(initramfs), "-append", "console=ttyS0 quiet panic=-1",
    ]  # fmt: skip
    subprocess.run(command, timeout=BOOT_SECONDS, check=True, stdin=subprocess.DEVNULL)
    return Guest.of(said.read_text(errors="replace"))
