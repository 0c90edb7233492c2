# SPDX-License-Identifier: Apache-2.0
"""Each rung tried for real: programs loaded, linked to a scratch file of our own, and let go.

No running process is probed. The trials run one after another: libbpf has one place for its messages.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hotstage.cli.doctor.finding import Area, Finding, Status, plural
from hotstage.cli.doctor.host import Host
from hotstage.errors import HotstageError, LoadError, PrivilegeError
from hotstage.probes.discovery.sideband import Sideband
from hotstage.probes.loader.base import LoadedPrograms, MapSizes, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader

PROBES = Area.PROBES
INSTALL_LIBBPF = "apt install libbpf1 (Debian, Ubuntu) or libbpf (Fedora)"

MEANING = {
    Rung.SESSION: "one uprobe.session link per library (what it costs: `hotstage bench overhead`)",
    Rung.MULTI: "a uprobe.multi pair per library: entries and returns are linked apart",
    Rung.PERF: (
        "a perf-event link per symbol and side: essential calls only, 0.1 s each to detach, CAP_SYS_ADMIN"
    ),
}
_KERNEL_OF = {
    Rung.SESSION: "Linux 6.13 or newer with BTF",
    Rung.MULTI: "Linux 6.6 or newer",
    Rung.PERF: "a kernel with CONFIG_UPROBE_EVENTS",
}
_ERRNO = re.compile(r"\[Errno (\d+)\] (.*)")
_NEEDED = "run as root, or with CAP_BPF and CAP_PERFMON (kernels before 6.6: and CAP_SYS_ADMIN)"
_SMALL = MapSizes(
    threads=64, call_stats=64, call_histograms=8, pipeline_state=64, contexts=64, events_bytes=4096,
    urgent_bytes=4096,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RungTrial:
    """One rung: `error` is the kernel's reason, None when programs were loaded and linked."""

    rung: Rung
    error: str | None
    is_permission: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class RungTrials:
    """All of them, best first. `problem`: libbpf or the objects are missing, and nothing was tried.

    `maps_bytes` is what the kernel says the maps take at the configured sizes; None when none was made.
    """

    version: str | None
    problem: HotstageError | None
    trials: tuple[RungTrial, ...]
    maps_bytes: int | None

    @property
    def best(self) -> Rung | None:
        return next((trial.rung for trial in self.trials if trial.error is None), None)


def try_first(host: Host) -> RungTrials:
    """A trial for `Host.once`: from S down to the first rung that works, at the configured map sizes. The
    verifier takes its time for each rung, and most want to know no more.
    """
    try:
        LibbpfLoader().close()
    except HotstageError as error:
        return RungTrials(None, error, (), None)
    return _try_all(list(Rung), RungTrials(libbpf_version(), None, (), None), MapSizes.of(host.config.probes))


def try_rungs(host: Host) -> RungTrials:
    """A trial for `Host.once`: S, M and P; those after the first that works with small maps."""
    first = host.once(try_first)
    if first.problem is not None:
        return first
    return _try_all(
        [rung for rung in Rung if rung not in {each.rung for each in first.trials}], first, _SMALL
    )


def first_rung(host: Host) -> RungTrials:
    """What is known of them as soon as one works."""
    return host.outcome(try_rungs) or host.once(try_first)


def _try_all(rungs: Iterable[Rung], known: RungTrials, sizes: MapSizes) -> RungTrials:
    """`known` and these; the first that works is the last where none is known to."""
    is_first = known.best is None
    trials, maps_bytes = list(known.trials), known.maps_bytes
    for rung in rungs:
        try:
            trial, measured = _try(rung, sizes)
        except HotstageError as error:
            return RungTrials(known.version, error, tuple(trials), None)
        trials.append(trial)
        if is_first and measured is not None:
            maps_bytes = measured
            break
    return RungTrials(known.version, None, tuple(trials), maps_bytes)


def _try(rung: Rung, sizes: MapSizes) -> tuple[RungTrial, int | None]:
    """Raises HotstageError when it is not the kernel that refuses (the objects are missing)."""
    began = time.perf_counter()
    loader = LibbpfLoader()
    try:
        loaded = loader.load(sizes, rung)
        return RungTrial(rung, None, False, time.perf_counter() - began), _bytes_of(loaded)
    except (LoadError, PrivilegeError):
        match = _ERRNO.search(loader.refusals.get(rung, ""))
        code, text = (int(match[1]), match[2]) if match else (0, "no reason given")
        # A kernel that does not know sessions answers EACCES as well, but it has let the user in.
        is_permission = code == errno.EPERM or (code == errno.EACCES and rung is Rung.PERF)
        reason = f"{errno.errorcode.get(code, '?')} ({text})"
        return RungTrial(rung, reason, is_permission, time.perf_counter() - began), None
    finally:
        loader.close()


def _bytes_of(loaded: LoadedPrograms) -> int:
    """`memlock` of each map's descriptor: the kernel's own account."""
    total = 0
    for fd in loaded.maps.values():
        match = re.search(r"^memlock:\s*(\d+)", Path(f"/proc/self/fdinfo/{fd}").read_text(), re.MULTILINE)
        total += int(match[1]) if match else 0
    return total


def check_rungs(host: Host) -> Iterator[Finding]:
    """The rung in use, and every rung by itself; what is known first is told first."""
    is_any = host.config.probes.rung == "auto"
    found = first_rung(host) if is_any else host.once(try_rungs)
    if found.version is None:
        problem = found.problem.message if found.problem else "it does not open"
        yield Finding(
            PROBES, "libbpf", Status.FAIL, f"{problem}: no programs can be loaded", INSTALL_LIBBPF,
            features=("count calls",),
        )  # fmt: skip
        return
    yield Finding(PROBES, "libbpf", Status.OK, found.version, data={"version": found.version})
    if found.problem is not None:
        yield Finding(
            PROBES,
            "rung",
            Status.FAIL,
            found.problem.message,
            found.problem.remedy,
            features=("count calls",),
        )
        return
    yield _in_use(host, found)
    for trial in found.trials:
        yield _one(trial, found.best)
    for trial in host.once(try_rungs).trials[len(found.trials) :]:
        yield _one(trial, found.best)


def _in_use(host: Host, found: RungTrials) -> Finding:
    configured = host.config.probes.rung
    best = found.best
    data = {"rung": best.value if best else None, "configured": configured}
    if best is None:
        is_permission = all(trial.is_permission for trial in found.trials)
        reasons = "; ".join(f"{trial.rung}: {trial.error}" for trial in found.trials)
        remedy = "Linux 5.15 or newer with CONFIG_BPF_EVENTS and CONFIG_UPROBES; `--loader bcc` may work"
        if is_permission:
            remedy = _NEEDED
        return Finding(
            PROBES, "rung", Status.FAIL, f"the kernel takes the programs on no rung: {reasons}", remedy,
            is_permission, ("count calls",), data,
        )  # fmt: skip
    if configured != "auto" and any(t.rung == configured and t.error for t in found.trials):
        return Finding(
            PROBES, "rung", Status.FAIL, f"[probes] rung = {configured} is refused here, {best} works",
            'rung = "auto" in [probes]', features=("count calls",), data=data,
        )  # fmt: skip
    chosen = best if configured == "auto" else Rung(configured)
    is_slow = chosen is Rung.PERF
    return Finding(
        PROBES, "rung", Status.WARN if is_slow else Status.OK, f"{chosen}: {MEANING[chosen]}",
        "Linux 6.6 or newer" if is_slow else None, data=data,
    )  # fmt: skip


def _one(trial: RungTrial, best: Rung | None) -> Finding:
    data = {"works": trial.error is None, "error": trial.error, "seconds": round(trial.seconds, 4)}
    name = f"rung {trial.rung}"
    if trial.error is None:
        detail = f"works, tried in {trial.seconds * 1e3:.0f} ms: {MEANING[trial.rung]}"
        return Finding(PROBES, name, Status.OK, detail, data=data)
    detail = f"refused: {trial.error}; would be {MEANING[trial.rung]}"
    is_missed = best is None or (best is Rung.PERF and trial.rung is not Rung.PERF)
    if trial.is_permission:
        remedy = "CAP_SYS_ADMIN" if best is not None else _NEEDED
    else:
        remedy = _KERNEL_OF[trial.rung]
    return Finding(PROBES, name, Status.WARN if is_missed else Status.ABSENT, detail, remedy, data=data)


def try_sideband(host: Host) -> HotstageError | OSError | None:
    """A trial for `Host.once`: open perf's side-band as discovery does; the refusal, None when it works."""
    try:
        Sideband().close()
    except (HotstageError, OSError) as error:
        return error
    return None


def check_sideband(host: Host) -> Iterator[Finding]:
    error = host.once(try_sideband)
    features = ("notice new libraries",)
    level = host.number("proc/sys/kernel/perf_event_paranoid")
    if error is None:
        detail = f"mapping records of all processes can be followed ({plural(os.cpu_count() or 1, 'CPU')})"
        yield Finding(PROBES, "new libraries", Status.OK, detail)
    elif isinstance(error, PrivilegeError):
        remedy = error.remedy or "CAP_PERFMON"
        if level is not None and level >= 3:
            remedy += f"; or sysctl -w kernel.perf_event_paranoid=2 (now {level})"
        yield Finding(PROBES, "new libraries", Status.FAIL, error.message, remedy, True, features)
    else:
        yield Finding(
            PROBES,
            "new libraries",
            Status.FAIL,
            str(error),
            "a kernel with CONFIG_PERF_EVENTS",
            False,
            features,
        )


def check_placement(host: Host) -> Iterator[Finding]:
    """Whether probes can stand on instructions that the kernel emulates."""
    is_known = host.machine in ("x86_64", "amd64")
    data = {"fast_placement": host.config.probes.fast_placement, "machine": host.machine}
    if not is_known:
        detail = f"no first instruction is known for {host.machine}: probes stand at their symbols"
        yield Finding(PROBES, "cheap placement", Status.ABSENT, detail, data=data)
    elif not host.config.probes.fast_placement:
        yield Finding(
            PROBES, "cheap placement", Status.WARN,
            "switched off: a probe on libcuda is single-stepped, at about ten times the cost",
            "fast_placement = true in [probes]", features=("count calls",), data=data,
        )  # fmt: skip
    else:
        detail = "on: libcuda's compare is stepped over to the jump behind it, which the kernel emulates"
        yield Finding(PROBES, "cheap placement", Status.OK, detail, data=data)


def libbpf_version() -> str:
    library = ctypes.CDLL("libbpf.so.1")
    library.libbpf_version_string.restype = ctypes.c_char_p
    return str(library.libbpf_version_string().decode())
