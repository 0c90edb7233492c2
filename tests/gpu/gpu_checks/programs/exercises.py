# SPDX-License-Identifier: Apache-2.0
"""One valid use of each catalogued driver call, by symbol; what it needs around it is made and undone.

Device memory is plain: small `cuMemAlloc` blocks, and 2 MiB of `cuMemCreate`. Managed memory is never made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpu_checks.programs.driver import CudaError, LaunchConfig, Pointer, Session, Size, Word

BYTES = 1 << 16
_CHUNK = 2 << 20  # the granularity of cuMemCreate on every GPU so far
_PINNED, _ON_DEVICE = 1, 1  # CUmemAllocationType, CUmemLocationType, cuda.h
TOO_MUCH = 1 << 50
OUT_OF_MEMORY, INVALID_VALUE = 2, 1

Exercise = Callable[[Session, str], None]

NEVER_CALLED = {"cuMemAllocManaged": "managed memory is never used on a host that is only visited"}


@contextmanager
def block(session: Session) -> Iterator[Pointer]:
    """A small block of device memory."""
    address = session.out("cuMemAlloc_v2", Size(BYTES))
    try:
        yield address
    finally:
        session.driver.call("cuMemFree_v2", address)


@contextmanager
def host_block(session: Session) -> Iterator[Pointer]:
    """A small block of page-locked host memory."""
    address = session.out("cuMemHostAlloc", Size(BYTES), ctypes.c_uint(0))
    try:
        yield address
    finally:
        session.driver.call("cuMemFreeHost", address)


def launch(session: Session, symbol: str) -> None:
    session.launch(session.stream, symbol)


def launch_ex(session: Session, symbol: str) -> None:
    config = LaunchConfig(1, 1, 1, 1, 1, 1, 0, session.stream, None, 0)
    session.driver.call(symbol, ctypes.byref(config), session.kernel, None, None)


def launch_cooperative(session: Session, symbol: str) -> None:
    one, nothing = ctypes.c_uint(1), ctypes.c_uint(0)
    session.driver.call(symbol, session.kernel, one, one, one, one, one, one, nothing, session.stream, None)


def graph_launch(session: Session, symbol: str) -> None:
    executable = session.out("cuGraphInstantiateWithFlags", session.capture(), Word(0))
    session.driver.call(symbol, executable, session.stream)
    session.driver.call("cuStreamSynchronize", session.stream)
    session.driver.call("cuGraphExecDestroy", executable)


def instantiate(session: Session, symbol: str) -> None:
    executable = session.out(symbol, session.capture(), Word(0))
    session.driver.call("cuGraphExecDestroy", executable)


def instantiate_with_params(session: Session, symbol: str) -> None:
    parameters = (Word * 4)()  # CUDA_GRAPH_INSTANTIATE_PARAMS: flags, upload stream, error node, result
    executable = session.out(symbol, session.capture(), ctypes.byref(parameters))
    session.driver.call("cuGraphExecDestroy", executable)


def allocate(session: Session, symbol: str) -> None:
    session.driver.call("cuMemFree_v2", session.out(symbol, Size(BYTES)))


def allocate_pitch(session: Session, symbol: str) -> None:
    pitch = Size()
    address = session.out(symbol, ctypes.byref(pitch), Size(1024), Size(16), ctypes.c_uint(4))
    session.driver.call("cuMemFree_v2", address)


def allocate_async(session: Session, symbol: str) -> None:
    session.driver.call("cuMemFreeAsync", session.out(symbol, Size(BYTES), session.stream), session.stream)


def allocate_from_pool(session: Session, symbol: str) -> None:
    pool = Pointer()
    if session.driver.has("cuDeviceGetDefaultMemPool"):
        pool = session.out("cuDeviceGetDefaultMemPool", session.device)
    address = session.out(symbol, Size(BYTES), pool, session.stream)
    session.driver.call("cuMemFreeAsync", address, session.stream)


def free(session: Session, symbol: str) -> None:
    session.driver.call(symbol, session.out("cuMemAlloc_v2", Size(BYTES)))


def free_async(session: Session, symbol: str) -> None:
    address = session.out("cuMemAllocAsync", Size(BYTES), session.stream)
    session.driver.call(symbol, address, session.stream)


def host_allocate(session: Session, symbol: str) -> None:
    arguments = (ctypes.c_uint(0),) if symbol == "cuMemHostAlloc" else ()
    session.driver.call("cuMemFreeHost", session.out(symbol, Size(BYTES), *arguments))


def host_free(session: Session, symbol: str) -> None:
    session.driver.call(symbol, session.out("cuMemHostAlloc", Size(BYTES), ctypes.c_uint(0)))


def virtual(session: Session, symbol: str) -> None:
    """All six calls in their order; any of them stands for its own symbol."""
    property_words = (ctypes.c_uint32 * 8)(_PINNED, 0, _ON_DEVICE, session.device)
    call = session.driver.call
    handle = session.out("cuMemCreate", Size(_CHUNK), ctypes.byref(property_words), Word(0))
    address = session.out("cuMemAddressReserve", Size(_CHUNK), Size(0), Pointer(0), Word(0))
    call("cuMemMap", address, Size(_CHUNK), Size(0), handle, Word(0))
    call("cuMemUnmap", address, Size(_CHUNK))
    call("cuMemAddressFree", address, Size(_CHUNK))
    call("cuMemRelease", handle)


def copy(session: Session, symbol: str) -> None:
    """Any copy: host to device, device to host, or within the device by the name of the symbol."""
    tail = (session.stream,) if "Async" in symbol else ()
    with block(session) as device, block(session) as other, host_block(session) as host:
        to, source = (
            (device, host) if "HtoD" in symbol else (host, device) if "DtoH" in symbol else (other, device)
        )
        session.driver.call(symbol, to, source, Size(BYTES), *tail)
        session.driver.call("cuStreamSynchronize", session.stream)


def copy_peer(session: Session, symbol: str) -> None:
    with block(session) as device, block(session) as other:
        context = session.context
        session.driver.call(symbol, other, context, device, context, Size(BYTES), session.stream)
        session.driver.call("cuStreamSynchronize", session.stream)


def fill(session: Session, symbol: str) -> None:
    is_bytes = "D8" in symbol
    value = ctypes.c_uint8(7) if is_bytes else ctypes.c_uint(7)
    tail = (session.stream,) if "Async" in symbol else ()
    with block(session) as device:
        session.driver.call(symbol, device, value, Size(BYTES if is_bytes else BYTES // 4), *tail)
        session.driver.call("cuStreamSynchronize", session.stream)


def wait_stream(session: Session, symbol: str) -> None:
    session.driver.call(symbol, session.stream)


def wait_event(session: Session, symbol: str) -> None:
    event = session.out("cuEventCreate", ctypes.c_uint(0))
    session.driver.call("cuEventRecord", event, session.stream)
    session.driver.call(symbol, event)
    session.driver.call("cuEventDestroy_v2", event)


def stream_wait_event(session: Session, symbol: str) -> None:
    event = session.out("cuEventCreate", ctypes.c_uint(0))
    session.driver.call("cuEventRecord", event, session.stream)
    session.driver.call(symbol, session.stream, event, ctypes.c_uint(0))
    session.driver.call("cuEventDestroy_v2", event)


def wait_context(session: Session, symbol: str) -> None:
    session.driver.call(symbol, *((session.context,) if symbol.endswith("_v2") else ()))


def retain(session: Session, symbol: str) -> None:
    session.out(symbol, session.device)
    session.driver.call("cuDevicePrimaryCtxRelease_v2", session.device)


def set_current(session: Session, symbol: str) -> None:
    session.driver.call(symbol, session.context)


def push_and_pop(session: Session, symbol: str) -> None:
    """Both, in their order; either stands for its own symbol."""
    session.driver.call("cuCtxPushCurrent_v2", session.context)
    session.out("cuCtxPopCurrent_v2")


def device_uuid(session: Session, symbol: str) -> None:
    session.driver.call(symbol, (ctypes.c_ubyte * 16)(), session.device)


def create_context(session: Session, symbol: str) -> None:
    before = {
        "cuCtxCreate_v2": (ctypes.c_uint(0),),
        "cuCtxCreate_v3": (Pointer(0), ctypes.c_int(0), ctypes.c_uint(0)),
        "cuCtxCreate_v4": (Pointer(0), ctypes.c_uint(0)),
    }[symbol]
    context = session.out(symbol, *before, session.device)
    if session.driver.has("cuCtxDestroy_v2"):
        session.driver.call("cuCtxDestroy_v2", context)  # which also takes it off this thread's stack
    else:
        session.out("cuCtxPopCurrent_v2")
    session.driver.call("cuCtxSetCurrent", session.context)


EXERCISES: dict[str, Exercise] = {
    "cuLaunchKernel": launch,
    "cuLaunchKernelEx": launch_ex,
    "cuLaunchCooperativeKernel": launch_cooperative,
    "cuGraphLaunch": graph_launch,
    "cuGraphInstantiateWithFlags": instantiate,
    "cuGraphInstantiateWithParams": instantiate_with_params,
    "cuMemAlloc_v2": allocate,
    "cuMemAllocPitch_v2": allocate_pitch,
    "cuMemAllocAsync": allocate_async,
    "cuMemAllocFromPoolAsync": allocate_from_pool,
    "cuMemFree_v2": free,
    "cuMemFreeAsync": free_async,
    "cuMemHostAlloc": host_allocate,
    "cuMemAllocHost_v2": host_allocate,
    "cuMemFreeHost": host_free,
    **dict.fromkeys(("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2", "cuMemcpy"), copy),
    **dict.fromkeys(("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2"), copy),
    "cuMemcpyAsync": copy,
    "cuMemcpyPeerAsync": copy_peer,
    **dict.fromkeys(("cuMemsetD8_v2", "cuMemsetD32_v2", "cuMemsetD8Async", "cuMemsetD32Async"), fill),
    "cuStreamSynchronize": wait_stream,
    "cuEventSynchronize": wait_event,
    "cuCtxSynchronize": wait_context,
    "cuCtxSynchronize_v2": wait_context,
    "cuStreamWaitEvent": stream_wait_event,
    "cuDevicePrimaryCtxRetain": retain,
    "cuCtxSetCurrent": set_current,
    **dict.fromkeys(("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"), push_and_pop),
    "cuDeviceGetUuid_v2": device_uuid,
    **dict.fromkeys(("cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemUnmap"), virtual),
    **dict.fromkeys(("cuMemAddressFree", "cuMemRelease"), virtual),
    **dict.fromkeys(("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"), create_context),
}
"""By the name of the call; its `_ptsz` and `_ptds` variants take the same arguments."""


def exercise_of(symbol: str) -> Exercise | None:
    """How to use a symbol or a variant of it; None where there is none."""
    return EXERCISES.get(symbol.removesuffix("_ptsz").removesuffix("_ptds"))


def fail_to_allocate(session: Session, times: int) -> None:
    """Ask for more memory than any GPU has."""
    for _ in range(times):
        address = Pointer()
        session.driver.call("cuMemAlloc_v2", ctypes.byref(address), Size(TOO_MUCH), expect=OUT_OF_MEMORY)


def fail_to_free(session: Session, times: int) -> None:
    """Give back what was never got: answered by an error, which harms nothing."""
    for _ in range(times):
        try:
            session.driver.call("cuMemFree_v2", Pointer(0x10))
        except CudaError:
            continue
        raise AssertionError("cuMemFree_v2 took an address that nobody had")
