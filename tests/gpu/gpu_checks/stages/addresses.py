# SPDX-License-Identifier: Apache-2.0
"""Stage `addresses`: does a process obtain an entry point of the driver that is not probed?"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_checks.libcuda import Libcuda
from gpu_checks.report import Section
from gpu_checks.stages.coverage import mapped_libcuda
from gpu_checks.surroundings import Surroundings, compile_helper
from gpu_checks.tallies import CALL_OF
from gpu_checks.target import Target
from hotstage.probes.trial import audit
from hotstage.probes.trial.process import Subject, TrialError
from hotstage.probes.trial.trials import VERSION_FUNCTION

ASK_NS = 30_000_000_000
_OF_A_FAMILY = re.compile(
    r"cu(?:Launch|GraphLaunch|Mem(?:Alloc|Free|cpy|set|Create|Release|Map|Unmap|HostAlloc|Address(?:Reserve|Free))"
    r"|StreamSynchronize|EventSynchronize|CtxSynchronize)"
)
"""Names that do the work hotstage counts, catalogued or not."""


def addresses(at: Surroundings, section: Section) -> None:
    with Target(
        at.driver_python, "driver_calls", environment=at.program_environment, log=at.programs_log
    ) as target:
        target.tell("start")
        libcuda = Libcuda.read(mapped_libcuda(target.pid))
        asked(libcuda, section)  # the path leads through the process
    obtained(at, libcuda, section)


def probed_offsets(libcuda: Libcuda) -> set[int]:
    functions = libcuda.elf.functions
    return {functions[symbol].offset for symbol in CALL_OF if symbol in functions}


def is_probed(libcuda: Libcuda, found: list[str]) -> bool:
    return any(libcuda.elf.functions[name].offset in probed_offsets(libcuda) for name in found)


def replayed(libcuda: Libcuda) -> tuple[int, list[audit.Handed]]:
    """The driver's version, and what its library hands out in a confined process. Raises TrialError."""
    with libcuda.path.open("rb") as file:
        deadline_ns = time.monotonic_ns() + ASK_NS
        with Subject(file.fileno(), deadline_ns, time.monotonic_ns) as subject:
            subject.wait_loaded()
            _, version, _ = subject.call(VERSION_FUNCTION, 1)
            return version, audit.replay(subject, libcuda.elf, version) or []


def asked(libcuda: Libcuda, section: Section) -> None:
    """As the agent does: catalogued names, many versions, both kinds of default stream."""
    try:
        version, handed = replayed(libcuda)
    except TrialError as error:
        section.not_run("what the driver hands out", f"its library answers no questions here: {error}")
        return
    found = audit.summary(handed, version)
    now = [asdict(each) for each in handed if each.version == version]
    old = sorted(
        {
            f"{each.name} {each.version} → {each.symbol}"
            for each in handed
            if each.symbol and not each.is_probed
        }
    )
    section.check(
        "every address is an exported symbol's",
        not found.internal and found.answered > 0,
        f"internal: {list(found.internal)}",
    )
    section.check(
        f"at version {version} every address is probed",
        not found.unprobed,
        "; ".join(found.unprobed) or f"{len(now)} obtained",
    )
    section.figure("driver_version", version, "", "as cuDriverGetVersion has it")
    section.figure("addresses_asked", found.asked, "", "names × versions × kinds of default stream")
    section.figure("addresses_obtained", found.answered, "", "of these, those that the driver has")
    section.table("not_probed_at_any_version", old)
    section.table("answers_now", now)
    uncounted = sorted(
        name for name in libcuda.elf.functions if _OF_A_FAMILY.match(name) and name not in CALL_OF
    )
    section.table("exports_of_these_families_that_are_not_catalogued", uncounted)
    section.figure("family_exports_not_catalogued", len(uncounted), "", "32-bit legacy names included")


def obtained(at: Surroundings, libcuda: Libcuda, section: Section) -> None:
    """Which entry points a real process takes, through cuGetProcAddress and dlsym."""
    shim = at.scratch / "libasked_addresses.so"
    reason = compile_helper("asked_addresses.c", shim)
    if reason is not None:
        section.not_run("what processes obtain", reason)
        return
    log = at.scratch / "asked.txt"
    environment = {**at.program_environment, "LD_PRELOAD": str(shim), "HOTSTAGE_ASKED_ADDRESSES": str(log)}
    if at.torch_python is None:
        section.not_run(
            "what PyTorch obtains", "no interpreter here has PyTorch: a program by ctypes stands for it"
        )
        with Target(at.driver_python, "driver_calls", environment=environment, log=at.programs_log) as target:
            target.tell("start")
            target.tell("open", within_seconds=60)
            target.tell("load", threads=1, launches=10, copies=3)
    else:
        with Target(at.torch_python, "torch_calls", environment=environment, log=at.programs_log) as target:
            target.tell("start", within_seconds=90)
            for phase in ("matmuls", "copies", "graphs"):
                target.tell(phase, times=5, within_seconds=60)
    look_at_obtained(log, libcuda, section)


def look_at_obtained(log: Path, libcuda: Libcuda, section: Section) -> None:
    """Every request of the process: internal ones, and work that is not probed."""
    requests: Counter[tuple[str, str, int, int, int]] = Counter()
    foreign = 0
    for line in log.read_text().splitlines() if log.exists() else ():
        how, name, *numbers, file = line.split(" ", 5)
        if "libcuda.so" in Path(file).name:
            version, flags, address = (int(number) for number in numbers)
            requests[how, name, version, flags, address] += 1
        else:
            foreign += 1
    rows: list[dict[str, Any]] = []
    for request, count in sorted(requests.items()):
        how, name, version, flags, address = request
        found = libcuda.names_at(address)
        rows.append(
            {
                **{"how": how, "name": name, "version": version, "flags": flags, "times": count},
                "symbols": found,
                "probed": is_probed(libcuda, found),
            }
        )
    internal = sorted({row["name"] for row in rows if not row["symbols"]})
    gaps = sorted(
        {f"{row['name']} → {each}" for row in rows for each in row["symbols"]
         if not row["probed"] and _OF_A_FAMILY.match(each)}
    )  # fmt: skip
    section.check(
        "a process obtains exported entry points only", bool(rows) and not internal, f"internal: {internal}"
    )
    section.figure("requests", sum(requests.values()), "", "look-ups in libcuda by one process")
    section.figure("requests_distinct", len(rows), "", "of these, different ones")
    section.figure("requests_elsewhere", foreign, "", "look-ups of cu… names in other libraries")
    section.table("obtained_of_these_families_and_not_probed", gaps)
    section.figure(
        "obtained_not_probed", len(gaps), "", "family entry points that were obtained; obtained is not called"
    )
    section.table("obtained", [row for row in rows if row["probed"] or _OF_A_FAMILY.match(row["name"])])
