# SPDX-License-Identifier: Apache-2.0
"""Every tracepoint that tells of a GPU or of its users, one by one, and what is here; the table is
`probes/driver/table.py`.

Present is what tracefs lists, or what takes a program; a present one is attached to for real for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotstage.cli.doctor.finding import Area, Finding, Status
from hotstage.cli.doctor.host import Host
from hotstage.cli.doctor.kernel_files import KernelFiles, read_kernel_files
from hotstage.cli.doctor.trivial_program import AttachTrial, try_tracepoints
from hotstage.probes.driver.table import FALLBACK, QUEUE_SUBMIT, TABLE, Event, Use

TRACEPOINTS = Area.TRACEPOINTS


@dataclass(frozen=True, slots=True)
class Seen:
    """One row of the table on this host; `is_present` None: this user cannot tell."""

    tracepoint: Event
    is_present: bool | None
    is_readable: bool
    attach: AttachTrial


_USES = {
    Use.COUNTED: "counted",
    Use.PROGRAM: "used",
    Use.ON_REQUEST: "used where [probes] gpu_ioctls is on",
    Use.ELSEWHERE: "used",
    Use.NONE: "not used",
}


def look_at_tracepoints(host: Host) -> tuple[Seen, ...]:
    """A trial for `Host.once`: tracefs first, and each event that may be there attached to."""
    files = host.once(read_kernel_files)
    possible = [row for row in TABLE if files.events is None or row.event in files.events]
    trials = try_tracepoints(row.bare_name for row in possible) if possible else {}
    return tuple(_seen(row, files, trials.get(row.bare_name, AttachTrial(False, "ENOENT"))) for row in TABLE)


def _seen(row: Event, files: KernelFiles, trial: AttachTrial) -> Seen:
    is_listed = None if files.events is None else row.event in files.events
    return Seen(row, trial.is_present if is_listed is None else is_listed, row.event in files.readable, trial)


def check_tracepoints(host: Host) -> Iterator[Finding]:
    yield _tracefs(host.once(read_kernel_files))
    seen = host.once(look_at_tracepoints)
    yield _queue_submit(seen)
    for one in seen:
        yield _finding(one)


def _tracefs(files: KernelFiles) -> Finding:
    data = {"mount": files.tracefs, "events": None if files.events is None else len(files.events)}
    mount = "mount -t tracefs tracefs /sys/kernel/tracing"
    if files.events is None:
        return Finding(
            TRACEPOINTS, "tracefs", Status.UNKNOWN,
            "not mounted, or not to be read: what follows was told by trying",
            f"{mount}; its files take CAP_DAC_READ_SEARCH", data=data,
        )  # fmt: skip
    if files.is_private:
        return Finding(
            TRACEPOINTS, "tracefs", Status.OK,
            f"{len(files.events)} events, by a mount for this look only; nobody has it mounted, bcc needs it",
            data=data,
        )  # fmt: skip
    return Finding(
        TRACEPOINTS, "tracefs", Status.OK, f"{len(files.events)} events at /{files.tracefs}", data=data
    )


def _queue_submit(seen: tuple[Seen, ...]) -> Finding:
    """Which event stands for `queue_submit` on this host."""
    chain = [one for one in seen if one.tracepoint.logical == QUEUE_SUBMIT]
    first = next((one for one in chain if one.is_present), None)
    unknown = [one.tracepoint.event for one in chain if one.is_present is None]
    data = {
        "chain": [one.tracepoint.event for one in chain],
        "present": first.tracepoint.event if first else None,
        "in_use": first.tracepoint.event if first else "launch calls",
    }
    if first is not None:
        detail = f"{first.tracepoint.event} stands for it: {first.tracepoint.gives}"
    elif unknown:
        detail = f"not known ({', '.join(unknown)} could not be tried); {FALLBACK} stand for it"
    else:
        detail = (
            f"none of {', '.join(one.tracepoint.event for one in chain)}; {FALLBACK} stand for it: NVIDIA"
            " submits from user space"
        )
    return Finding(TRACEPOINTS, QUEUE_SUBMIT, Status.OK if first else Status.ABSENT, detail, data=data)


def _finding(one: Seen) -> Finding:
    row = one.tracepoint
    data = {
        "present": one.is_present,
        "readable": one.is_readable,
        "attached": one.attach.error is None,
        "attach_error": one.attach.error,
        "used": row.is_used,
        "logical": row.logical,
        "gives": row.gives,
    }
    features = (row.logical,)
    if one.is_present is None:
        detail = f"cannot be told ({one.attach.error}); would give {row.gives}"
        return Finding(
            TRACEPOINTS,
            row.event,
            Status.UNKNOWN,
            detail,
            "CAP_BPF and CAP_PERFMON",
            features=features,
            data=data,
        )
    if not one.is_present:
        is_missed = row.is_used and row.is_of_every_kernel
        status = Status.WARN if is_missed else Status.ABSENT
        odd = "; every ordinary kernel has it" if row.is_of_every_kernel else ""
        return Finding(
            TRACEPOINTS,
            row.event,
            status,
            f"absent: would give {row.gives}{odd}",
            "a kernel with CONFIG_TRACEPOINTS that has it" if is_missed else None,
            features=features,
            data=data,
        )
    use = _USES[row.use]
    if one.attach.error is not None:
        status = Status.WARN if row.is_used else Status.OK
        detail = f"present, {use}, but not for this user ({one.attach.error}): gives {row.gives}"
        return Finding(
            TRACEPOINTS, row.event, status, detail, "CAP_BPF and CAP_PERFMON", features=features, data=data
        )
    return Finding(
        TRACEPOINTS, row.event, Status.OK, f"present, attachable, {use}: gives {row.gives}",
        features=features, data=data,
    )  # fmt: skip
