# SPDX-License-Identifier: Apache-2.0
"""What processes hold of the maps of which each has a share, and what they are said to hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tests.bpf.conftest import Probes, Workload

from hotstage.probes.maps import layout
from hotstage.probes.maps.communicators import PENDING_DTYPE, PENDING_KEY_DTYPE
from hotstage.probes.maps.ledger import MEMORY_POOL_DTYPE, PRIMARY_CONTEXT_DTYPE
from hotstage.probes.maps.reader import HashReader
from hotstage.probes.maps.shares import Share

ENTRIES, SHARE = 44, 11
PRIMARIES, PRIMARY_SHARE = 28, 7
FLOOD = 31
"""What a process asks for, of each; NCCL's target has room for 32."""
TGID_DTYPE, ORDINAL_DTYPE = np.dtype([("tgid", "<u4")]), np.dtype([("ordinal", "<u4")])


@dataclass(frozen=True)
class Kind:
    """One of the maps, and what takes an entry of it in `target/memory.c`: a verb and a number."""

    share: Share
    map: str
    key: np.dtype[np.void]
    value: np.dtype[np.void]
    verb: str
    words: tuple[int, ...]
    loss: str
    limit: int = SHARE

    def take(self, target: Workload, first: int, count: int) -> None:
        for number in range(first, first + count):
            target.do(self.verb, number, *self.words)

    def __str__(self) -> str:
        return self.map


CONTEXTS = Kind(
    Share.CONTEXTS, "contexts", layout.CONTEXT_KEY_DTYPE, ORDINAL_DTYPE, "context", (0,), "lost_contexts"
)
DEVICES = Kind(
    Share.DEVICES,
    "device_uuids",
    layout.DEVICE_KEY_DTYPE,
    layout.DEVICE_UUID_DTYPE,
    "uuid",
    (),
    "lost_contexts",
)
PRIMARY_CONTEXTS = Kind(
    Share.PRIMARIES,
    "primary_contexts",
    layout.DEVICE_KEY_DTYPE,
    PRIMARY_CONTEXT_DTYPE,
    "primary",
    (),
    "lost_contexts",
    PRIMARY_SHARE,
)
POOLS = Kind(
    Share.POOLS,
    "memory_pools",
    layout.FUNCTION_KEY_DTYPE,
    MEMORY_POOL_DTYPE,
    "pool",
    (5,),
    "lost_allocations",
)
OF_MEMORY = (CONTEXTS, DEVICES, PRIMARY_CONTEXTS, POOLS)


def forget(probes: Probes, *pids: int) -> None:
    """As the engine does once processes have gone."""
    probes.maps.forget_processes(pids)
    probes.maps.ledger.forget(pids)


def entries(probes: Probes, kind: Kind) -> np.ndarray:
    """Whose the entries are, (N,)."""
    keys, _ = HashReader(probes.loader.map_fd(kind.map), kind.key, kind.value).read()
    return keys["tgid"].copy()


def pending(probes: Probes) -> np.ndarray:
    """Whose communicators are to come, (N,)."""
    fd = probes.loader.map_fd("pending_communicators")
    return HashReader(fd, PENDING_KEY_DTYPE, PENDING_DTYPE).read()[1]["tgid"].copy()


def counts(probes: Probes, share: Share) -> dict[int, int]:
    """pid → what the process is said to hold."""
    fd = probes.loader.map_fd("process_shares")
    keys, values = HashReader(fd, TGID_DTYPE, layout.PROCESS_SHARE_DTYPE).read()
    return dict(zip(keys["tgid"].tolist(), values["held"][:, share].tolist(), strict=True))


def held(probes: Probes, kind: Kind, *targets: Workload) -> list[int]:
    """Entries of each process, which are as many as it is said to hold."""
    owners, said = entries(probes, kind), counts(probes, kind.share)
    found = [int((owners == target.pid).sum()) for target in targets]
    assert [said.get(target.pid, 0) for target in targets] == found
    return found


def to_come(probes: Probes, *targets: Workload) -> list[int]:
    """The same of communicators to come."""
    owners, said = pending(probes), counts(probes, Share.PENDING)
    found = [int((owners == target.pid).sum()) for target in targets]
    assert [said.get(target.pid, 0) for target in targets] == found
    return found
