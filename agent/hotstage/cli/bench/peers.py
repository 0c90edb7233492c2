# SPDX-License-Identifier: Apache-2.0
"""Other tracers that give the same answer, each in its own process, on a twin of its own in the same run.

One that is not installed or does not attach is left out, with its reason; the rest is measured all the same.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from hotstage.cli.bench.targets import Target
from hotstage.cli.bench.variants import Variant
from hotstage.errors import PreflightError
from hotstage.probes.loader.bindings import find_headers

_ATTACH_SECONDS = 30.0
_LAST_PROBE_SECONDS = 1.0
_PACKAGES = {"bpftrace": "bpftrace", "funclatency": "bpfcc-tools"}
_BCC_TOOL = """
import os, sys
from hotstage.probes.loader.bcc_child import prepare_mounts
prepare_mounts(sys.argv[1] or None, sys.argv[2] or None)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Headers and tracefs where bcc expects them: if they are elsewhere, in a mount namespace of its own."""


@contextmanager
def peers(target: Target, variants: Sequence[Variant]) -> Iterator[Mapping[str, str]]:
    """Attach those of `variants` that are another tool's until the block ends; yields which could not be, and
    why.
    """
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        for variant in variants:
            if variant.command is None:
                continue
            try:
                stack.enter_context(_attached(target, variant))
            except PreflightError as error:
                absent[variant.name] = str(error)
        yield absent


@contextmanager
def _attached(target: Target, variant: Variant) -> Iterator[None]:
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            _command(target, variant), stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        try:
            _wait_until_probed(variant, process, said)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_ATTACH_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _command(target: Target, variant: Variant) -> list[str]:
    place = f"{target.library.path}:{variant.twin}"
    counted = f"uprobe:{place} {{ @[pid] = count(); }}"
    timed = (
        f"uprobe:{place} {{ @s[tid] = nsecs; }} "
        f"uretprobe:{place} /@s[tid]/ {{ @h = hist(nsecs - @s[tid]); delete(@s[tid]); }}"
    )
    words = {
        "bpftrace_count": ["-e", counted],
        "bpftrace_pair": ["-e", timed],
        "funclatency": [place],
    }[variant.name]
    name = variant.command or ""
    tool = (
        shutil.which(name) or shutil.which(f"{name}-bpfcc") or shutil.which(name, path="/usr/share/bcc/tools")
    )
    if tool is None:
        raise PreflightError(f"not installed: apt-get install {_PACKAGES[name]}")
    if name != "funclatency":
        return [tool, *words]
    headers = find_headers()
    build, source = (headers.build, headers.source) if headers else (None, None)
    return [sys.executable, "-c", _BCC_TOOL, str(build or ""), str(source or ""), tool, *words]


def _wait_until_probed(variant: Variant, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    """Until the tool holds programs and perf events of its own; which of its probes is the last, it does not
    say.
    """
    deadline = time.monotonic() + _ATTACH_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said.seek(0)
            lines = said.read()[-2000:].decode(errors="replace").strip().splitlines() or ["without a word"]
            raise PreflightError(f"{variant.command} ended with {process.returncode}: {lines[-1]}")
        names = _open_files(process.pid)
        if any("bpf-prog" in name for name in names) and any("perf_event" in name for name in names):
            time.sleep(_LAST_PROBE_SECONDS)
            return
        time.sleep(0.05)
    raise PreflightError(f"{variant.command} was not attached within {_ATTACH_SECONDS:.0f} s")


def _open_files(pid: int) -> list[str]:
    """What its descriptors are of; those that close meanwhile are left out."""
    names = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.append(str(entry.readlink()))
    return names
