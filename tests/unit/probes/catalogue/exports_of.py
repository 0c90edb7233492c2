# SPDX-License-Identifier: Apache-2.0
"""Which names each library has exported since when: facts, written down once from the dynamic symbols of real
libraries and from the functions that headers declare, for the names that do work.
"""

from __future__ import annotations

import re
from pathlib import Path

EXPORTS = Path(__file__).parent / "exports"

_MEMORY = r"(?:Alloc|Free|cpy|Cpy|emset|Prefetch)"
_WAITS = r"Synchronize|WaitEvent|WaitValue|Event(?:Record|Create|Destroy|ElapsedTime)|(?:Event|Stream)Query"
_GRAPHS = r"[cC]apture|Instantiate|Graph(?:Exec)?(?:Destroy|Update|Upload)"
_ELSEWHERE = (
    r"Multicast|(?:Import|Export)(?:Pointer|ToShareable|FromShareable)|ExternalMemory|IpcGetMem|MappedPointer"
)
_OF_GRAPHS = r"GraphMem(?:Attribute|Trim)|GraphAddMem(?:Alloc|Free)|GraphAddNode"
_CONTEXTS = r"Ctx(?:Create|Destroy|Release|Reset|Retain|Detach|Push|Pop|SetCurrent)|Stream(?:Create|Destroy)"

WORK = {
    "libcuda": re.compile(
        rf"Launch|AddCallback|{_MEMORY}|{_WAITS}|{_GRAPHS}|{_CONTEXTS}|(?:Module|Library)(?:Load|Unload)"
        rf"|{_ELSEWHERE}|{_OF_GRAPHS}|LogicalEndpoint"
        r"|Mem(?:Create|Release|Map|Unmap)|AddressReserve|Pool(?:Create|Destroy|Trim|GetAttribute)|HostRegister|HostUnregister"
        r"|Array(?:Create|Destroy)|Array3DCreate|MemSetAccess|MemImport|IpcOpenMem|IpcCloseMem"
        r"|GetUuid_v2|GetFunction$|LibraryGetKernel$"
    ),
    "libcudart": re.compile(
        rf"Launch|AddCallback|[mM]alloc|{_MEMORY}|{_WAITS}|{_GRAPHS}|Stream(?:Create|Destroy)|DeviceReset|IpcOpenMem|IpcCloseMem"
        rf"|{_ELSEWHERE}|{_OF_GRAPHS}"
        r"|Pool(?:Create|Destroy|Trim)|Host(?:Register|Unregister)|SetDevice$"
        r"|GetDeviceProperties|GetKernel$|GetFuncBySymbol|RegisterFunction"
    ),
    "libnccl": re.compile(
        r"Reduce|Gather|Scatter|cast|AlltoAll|Send|Recv|Signal|Group|Comm|Mem(?:Alloc|Free)"
    ),
    "libcudnn": re.compile(
        r"Forward|Backward|Execute|CTCLoss|PopulateCudaGraph|UpdateCudaGraph|SetStream|cudnnCreate$"
    ),
}
"""Names that launch, take, move, fill, wait, capture or speak to other GPUs."""


def exports_of(kind: str) -> dict[str, tuple[str, ...]]:
    """Name → the versions that have it, oldest first, of every name that does work."""
    lines = (EXPORTS / f"{kind}.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {name: tuple(versions) for name, *versions in rows}


def versions_of(kind: str) -> tuple[str, ...]:
    """The versions looked at, oldest first."""
    first = (EXPORTS / f"{kind}.txt").read_text(encoding="utf-8").splitlines()[0]
    return tuple(first.rpartition(":")[2].split())
