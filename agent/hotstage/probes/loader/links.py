# SPDX-License-Identifier: Apache-2.0
"""Attaching programs to an opened library and letting go again, for every rung and both compilers.

A library is attached through /proc/self/fd/N, so nobody can swap it in between. It chooses no symbol.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hotstage.errors import AttachError
from hotstage.probes import bpf
from hotstage.probes.loader.base import (
    Attachment,
    AttachPoint,
    Link,
    LoadedPrograms,
    OpenLibrary,
    PointKind,
    RefusedPoint,
    Rung,
)
from hotstage.probes.loader.keeping import KeptDescriptor
from hotstage.probes.loader.programs import PROGRAMS, Side

_DETACH_THREADS = 32
_TOLD_AGAIN_SECONDS = 3600.0
_PER_POINT_ERRORS = frozenset({errno.EINVAL, errno.ENOEXEC, errno.EOPNOTSUPP})

log = logging.getLogger(__name__)
_told_apart: dict[str, float] = {}
"""Why links could not be kept apart → when that was told last, monotonic seconds."""


def attach(
    loaded: LoadedPrograms, target: OpenLibrary, points: Sequence[AttachPoint], *, pid: int = 0
) -> Attachment:
    """Attach the points of one library: one link for each kind and side (rung P: for each point and side).

    `pid` as in `Loader.attach`: ValueError where the rung knows no links of one process.

    A point that the kernel refuses is found by halving and listed; the others hold. Raises AttachError when
    nothing of the library can be attached; then nothing is.
    """
    if pid and loaded.rung is not Rung.SESSION:
        raise ValueError(f"rung {loaded.rung} has no links of one process")
    began = time.perf_counter()
    path = f"/proc/self/fd/{target.fd}"
    links: list[Link] = []
    refused: list[RefusedPoint] = []
    try:
        for kind in PointKind:
            wanted = [point for point in points if point.kind is kind]
            if not wanted:
                continue
            link, rejected = _attach_kind(loaded, path, kind, wanted, pid)
            links += [link] if link is not None else []
            refused += rejected
    except OSError as error:
        detach(links)
        raise AttachError(
            f"cannot attach to {target.path}: {error.strerror}",
            path=target.path,
            remedy=_remedy(error, loaded.rung),
        ) from error
    if loaded.rung is not Rung.PERF:  # whose links the kernel lets go one by one, whoever closes them
        for link in links:
            _keep_apart(link)
    return Attachment(tuple(links), tuple(refused), time.perf_counter() - began)


def attach_side(
    loaded: LoadedPrograms, target: OpenLibrary, side: Side, points: Sequence[AttachPoint]
) -> Link:
    """One side of any program at these points, all or none. Raises OSError."""
    fds = _attach_side(loaded, f"/proc/self/fd/{target.fd}", side, list(points))
    return Link(fds, points[0].kind, tuple(points))


def detach(links: Iterable[Link]) -> float:
    """Close links, all at once since the kernel waits for each: seconds taken. Closing twice does nothing."""
    began = time.perf_counter()
    todo = [link for link in links if link.in_kernel]
    if todo:
        with ThreadPoolExecutor(min(_DETACH_THREADS, len(todo)), "detach") as pool:
            list(pool.map(_close, todo))
    return time.perf_counter() - began


def try_links(loaded: LoadedPrograms) -> None:
    """Link a timed and a launch point of a scratch file of our own and let go: the rung works, or OSError.

    An anonymous file in memory has an inode like any other, and no process maps it.
    """
    fd = os.memfd_create("hotstage-trial", os.MFD_CLOEXEC)
    try:
        os.write(fd, b"\x55" + b"\x90" * 63)  # push %rbp; nops
        path = f"/proc/self/fd/{fd}"
        for offset, kind in enumerate((PointKind.TIMED, PointKind.LAUNCH)):
            point = AttachPoint(1, kind, offset, kind, True, offset)
            _close(_attach_all(loaded, path, kind, [point]))
    finally:
        os.close(fd)


def _close(link: Link) -> None:
    # The entry side was attached last and goes first: calls in flight still find their return probe.
    while link.kept:
        link.kept.pop().close()
    while link.fds:
        os.close(link.fds.pop())


def _keep_apart(link: Link) -> None:
    """Give each descriptor a table of its own; what is refused one stays, and is only slower to go."""
    try:
        while link.fds:
            link.kept.append(KeptDescriptor(link.fds[0]))
            del link.fds[0]
    except OSError as error:
        _tell_together(error.strerror or str(error))


def _tell_together(reason: str) -> None:
    """Each reason once an hour: with many libraries every attach would say it."""
    now = time.monotonic()
    if now - _told_apart.get(reason, -_TOLD_AGAIN_SECONDS) < _TOLD_AGAIN_SECONDS:
        return
    _told_apart[reason] = now
    log.info(
        "links beyond a limit share one table of descriptors: all is counted, but should the agent be killed,"
        " the kernel lets them go one after the other, some 55 ms each",
        extra={
            "reason": reason,
            "remedy": "none needed; fewer libraries, by an entry in probes.deny, need fewer links",
        },
    )


def _attach_kind(
    loaded: LoadedPrograms, path: str, kind: PointKind, points: list[AttachPoint], pid: int
) -> tuple[Link | None, list[RefusedPoint]]:
    refused: list[RefusedPoint] = []
    try:
        return _attach_all(loaded, path, kind, points, pid), refused
    except OSError as error:
        if error.errno not in _PER_POINT_ERRORS:
            raise
    good = _acceptable(loaded, path, kind, points, refused)
    return (_attach_all(loaded, path, kind, good, pid) if good else None), refused


def _acceptable(
    loaded: LoadedPrograms,
    path: str,
    kind: PointKind,
    points: list[AttachPoint],
    refused: list[RefusedPoint],
) -> list[AttachPoint]:
    """The points that the kernel takes, found by halving; the rest goes to `refused`."""
    try:
        _close(_attach_all(loaded, path, kind, points))
        return points
    except OSError as error:
        if error.errno not in _PER_POINT_ERRORS:
            raise
        if len(points) == 1:
            refused.append(RefusedPoint(points[0], error.strerror or str(error)))
            return []
    middle = len(points) // 2
    return [
        *_acceptable(loaded, path, kind, points[:middle], refused),
        *_acceptable(loaded, path, kind, points[middle:], refused),
    ]


def _attach_all(
    loaded: LoadedPrograms, path: str, kind: PointKind, points: list[AttachPoint], pid: int = 0
) -> Link:
    link = Link([], kind, tuple(points))
    try:
        for side in PROGRAMS[loaded.rung][kind]:
            link.fds += _attach_side(loaded, path, side, points, pid)
    except OSError:
        _close(link)
        raise
    return link


def _attach_side(
    loaded: LoadedPrograms, path: str, side: Side, points: list[AttachPoint], pid: int = 0
) -> list[int]:
    program = loaded.programs[side.program]
    if loaded.rung is not Rung.PERF:
        attach_type = bpf.ATTACH_UPROBE_SESSION if side.is_session else bpf.ATTACH_UPROBE_MULTI
        places = [(point.offset, point.cookie, point.semaphore_offset) for point in points]
        return [bpf.link_multi(program, attach_type, path, places, on_return=side.on_return, pid=pid)]
    fds: list[int] = []
    try:
        for point in points:
            fds.append(
                bpf.link_perf_event(
                    program,
                    path,
                    point.offset,
                    point.cookie,
                    semaphore_offset=point.semaphore_offset,
                    on_return=side.on_return,
                )
            )
    except OSError:
        for fd in fds:
            os.close(fd)
        raise
    return fds


def _remedy(error: OSError, rung: Rung) -> str | None:
    if error.errno not in (errno.EPERM, errno.EACCES):
        return None
    if rung is Rung.PERF:
        return "perf-event uprobe links need CAP_SYS_ADMIN"
    return "run as root, or with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
