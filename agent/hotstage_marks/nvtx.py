# SPDX-License-Identifier: Apache-2.0
"""Run an untouched program so that its NVTX ranges become stages. Standard library only.

    python -m hotstage_marks.nvtx python server.py
    python -m hotstage_marks.nvtx --print                    # the variable, for a unit or container
    python -m hotstage_marks.nvtx --explain vllm "my range"  # what the rules say of a name

NVTX loads one injection library. Where another is wanted already (Nsight Systems, CUPTI, a driver-wide one),
it stays, and standard error says so; the command runs in any case. No other library is ever chained.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

VARIABLE = "NVTX_INJECTION64_PATH"
RULES_VARIABLE = "HOTSTAGE_NVTX_RULES"
LIBRARY = Path(__file__).with_name("libhotstage_nvtx.so")
SHIPPED_RULES = Path(__file__).with_name("nvtx_rules.txt")
NOTHING_INJECTED = "./."
"""NVTX's own word for: no injection, whatever else is there."""

_ACTIONS = {1: "stage", 2: "request"}


class Answer(NamedTuple):
    """What the rules say of a name: nothing (`action` is None), a stage, or that the range is a request."""

    action: Optional[str]  # noqa: UP045 - read by Python 3.9
    stage: Optional[str]  # noqa: UP045
    modality: Optional[str]  # noqa: UP045
    has_request_id: bool


def reason_to_yield(environment: Mapping[str, str], root: Path = Path("/")) -> Optional[str]:  # noqa: UP045
    """Why this library must not be injected, in words; None where nothing else is."""
    wanted = environment.get(VARIABLE)
    if wanted == NOTHING_INJECTED:
        return f"{VARIABLE}={wanted} asks for no injection"
    if wanted and not _is_ours(wanted):
        return f"{VARIABLE} names another injection already: {wanted}"
    for path in _driver_wide(environment):
        if (root / path.lstrip("/")).exists():
            return f"the driver injects a library of its own ({path}), which the variable would displace"
    if not LIBRARY.exists():
        return f"{LIBRARY} was not built: install hotstage-marks with a C compiler at hand, or from its wheel"
    return None


def injected(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the variable set."""
    return {**environment, VARIABLE: str(LIBRARY)}


def explain(domain: str, name: str) -> Answer:
    """What the rules in force (the user's file, then the shipped ones) say of a name; "" is no domain.

    Raises OSError where the library was not built.
    """
    library = ctypes.CDLL(str(LIBRARY))
    library.hotstage_nvtx_explain.restype = ctypes.c_uint32
    library.hotstage_nvtx_stage.restype = library.hotstage_nvtx_modality.restype = ctypes.c_char_p
    word = library.hotstage_nvtx_explain(domain.encode(), name.encode())
    action = _ACTIONS.get(word & 0xFF)
    is_stage = action == "stage"
    return Answer(
        action,
        library.hotstage_nvtx_stage(word).decode() if is_stage else None,
        library.hotstage_nvtx_modality(word).decode() if is_stage else None,
        bool(word >> 24),
    )


def stage_word(name: str) -> Optional[int]:  # noqa: UP045
    """stage | modality << 8 of a range of that name in no domain, as a probe point is told; None: no stage.

    Raises OSError where the library was not built.
    """
    word = ctypes.CDLL(str(LIBRARY)).hotstage_nvtx_explain(b"", name.encode("utf-8", "replace")) & 0xFFFFFFFF
    return word >> 8 & 0xFFFF if _ACTIONS.get(word & 0xFF) == "stage" else None


def main(arguments: Sequence[str]) -> int:
    """The command's exit status is that of the program, which takes this process over; 2 is wrong usage."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    if arguments[0] == "--explain":
        return _explain(arguments[1:])
    reason = reason_to_yield(os.environ)
    if reason:
        print(f"hotstage-marks: NVTX ranges do not become stages: {reason}", file=sys.stderr)
    if arguments[0] == "--print":
        if not reason:
            print(f"{VARIABLE}={LIBRARY}")
        return 1 if reason else 0
    environment = dict(os.environ) if reason else injected(os.environ)
    try:
        os.execvpe(arguments[0], list(arguments), environment)  # noqa: S606 - the user's own command
    except OSError as error:
        print(f"hotstage-marks: {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 127


def _explain(names: Sequence[str]) -> int:
    if len(names) != 2:
        print('usage: python -m hotstage_marks.nvtx --explain DOMAIN NAME ("" is no domain)', file=sys.stderr)
        return 2
    answer = explain(*names)
    request = ", of the request that the name ends in" if answer.has_request_id else ""
    if answer.action == "stage":
        print(f"stage {answer.stage}, modality {answer.modality}{request}")
    else:
        print("a request, whose id the name ends in" if answer.action else "no stage")
    return 0


def _is_ours(path: str) -> bool:
    try:
        return Path(path).samefile(LIBRARY)
    except OSError:
        return False


def _driver_wide(environment: Mapping[str, str]) -> list[str]:
    """Where NVTX 3.3 and later look for an injection by the CUDA driver, when the variable is not set."""
    paths = ["/run/nvidia/nvtx/nvtx-cuda.yaml"]
    if os.geteuid() == 0:
        return [*paths, "/run/nvidia/nvtx/user.0/nvtx-cuda.yaml"]
    runtime = environment.get("XDG_RUNTIME_DIR")
    return [*paths, f"{runtime}/nvidia/nvtx/nvtx-cuda.yaml"] if runtime else paths


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
