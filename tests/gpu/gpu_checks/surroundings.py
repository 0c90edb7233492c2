# SPDX-License-Identifier: Apache-2.0
"""Where a run takes place: interpreters, libraries, compiled helpers, environments; and facts of the host."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hotstage import __version__

GPU_FOLDER = Path(__file__).parents[1]
REPOSITORY = GPU_FOLDER.parents[1]
PROBE_SECONDS = 60.0
_DISTRIBUTIONS = ("numpy", "msgspec", "nvidia-ml-py", "prometheus-client", "click")
_FIND_TORCH = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"


@dataclass(frozen=True)
class Surroundings:
    """What the stages need to know. `torch_python` is None where no interpreter has PyTorch."""

    out: Path
    scratch: Path
    is_dry_run: bool
    torch_python: str | None
    agent_environment: Mapping[str, str]
    program_environment: Mapping[str, str]
    cupti: Path | None
    programs_log: IO[bytes]
    agent_log: IO[bytes]

    @property
    def driver_python(self) -> str:
        """For programs that need nothing but ctypes."""
        return sys.executable


def find_torch_python(named: str | None) -> str | None:
    """The interpreter that has PyTorch: the named one, ours, or one on the path."""
    candidates = [named] if named else [sys.executable, "python3", "python"]
    for candidate in candidates:
        path = shutil.which(candidate) if candidate else None
        if (
            path
            and subprocess.run([path, "-c", _FIND_TORCH], check=False, timeout=PROBE_SECONDS).returncode == 0
        ):
            return path
    return None


def find_cupti(torch_python: str | None) -> Path | None:
    """libcupti of PyTorch's own wheels before that of a CUDA toolkit: one process should hold one copy."""
    places: list[Path] = []
    if torch_python:
        code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        done = subprocess.run([torch_python, "-c", code], capture_output=True, text=True, check=False)
        site = Path(done.stdout.strip())
        places += [*site.glob("nvidia/cu*/lib"), site / "nvidia/cuda_cupti/lib"]
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    places += [cuda / "targets/x86_64-linux/lib", cuda / "extras/CUPTI/lib64", cuda / "lib64"]
    for place in places:
        found = sorted(place.glob("libcupti.so.[0-9]*"))
        if found:
            return found[0]
    return None


def cupti_includes(cupti: Path | None) -> list[str]:
    """`-I` folders for cupti.h: the library's own before the toolkit's; empty where it is not installed."""
    if cupti is None:
        return []
    places = [
        cupti.parent.parent / "include",
        Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include",
    ]
    present = [place for place in places if place.is_dir()]
    return (
        [f"-I{place}" for place in present] if any((place / "cupti.h").exists() for place in present) else []
    )


def compile_helper(source: str, output: Path, *arguments: str) -> str | None:
    """Compile `native/SOURCE`; the reason when it cannot be done, None when it was."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return "no C compiler"
    kind = ["-shared", "-fPIC", "-fvisibility=hidden"] if output.suffix == ".so" else []
    command = [
        compiler,
        "-O2",
        "-Wall",
        *kind,
        *arguments,
        "-o",
        str(output),
        str(GPU_FOLDER / "native" / source),
    ]
    done = subprocess.run(
        [*command, "-ldl"], capture_output=True, text=True, check=False, timeout=PROBE_SECONDS
    )
    return None if done.returncode == 0 else f"{source} does not compile: {done.stderr.strip()[-1200:]}"


def host_facts(torch_python: str | None, driver: Mapping[str, Any]) -> dict[str, Any]:
    """The `host` member of the report; None for what is unknown."""
    return {
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "virtual_machine": _is_virtual(),
        "system": _system(),
        **driver,
        "versions": {
            "hotstage": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in _DISTRIBUTIONS},
            **_torch_versions(torch_python),
        },
    }


def _torch_versions(python: str | None) -> dict[str, str | None]:
    if python is None:
        return {"torch": None}
    code = (
        "import importlib.metadata as m, json, platform\n"
        "found = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "wanted = ('torch', 'triton', 'nvidia-cuda-runtime', 'nvidia-cuda-cupti', 'nvidia-cudnn-cu13')\n"
        "print(json.dumps({**{n: found.get(n) for n in wanted}, 'torch_python': platform.python_version()}))"
    )
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=False, timeout=PROBE_SECONDS
    )
    found: dict[str, str | None] = json.loads(done.stdout) if done.returncode == 0 else {"torch": None}
    return found


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    found = re.search(
        r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE
    )
    return found[1] if found else None


def _is_virtual() -> bool | None:
    found = re.search(r"^flags\s*:.*$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    return "hypervisor" in found[0].split() if found else None


def _system() -> str | None:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return None
    return release.get("PRETTY_NAME")
