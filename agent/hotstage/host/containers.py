# SPDX-License-Identifier: Apache-2.0
"""`/proc/PID/cgroup` → which container or pod a process runs in, as the usual engines write it. Pure text.

It asks no engine and knows no process. Names come from strangers: only ids of a fixed form are taken.
"""

from __future__ import annotations

import re

_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")
_POD = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})(?:\.slice)?(?:/|$)"
)
_LXC = re.compile(r"/lxc(?:\.payload)?[./]([A-Za-z0-9_.-]{1,64})")
_SHOWN = 12


def container_of(cgroup: str) -> str | None:
    """`4f3a0c9d1b2e`, `4f3a0c9d1b2e in pod 1b4e28ba-…`, `lxc NAME`; None for a process of the host."""
    container = pod = None
    for line in cgroup.splitlines():
        path = line.rpartition(":")[2]
        for match in _CONTAINER.finditer(path):
            container = match[1]  # the innermost one: containers may run in containers
        pod = (_POD.search(path) or [None, pod])[1]
        if container is None and (lxc := _LXC.search(path)):
            return f"lxc {lxc[1]}"
    if container is None:
        return None
    shown = container[:_SHOWN]
    return f"{shown} in pod {pod.replace('_', '-')}" if pod else shown
