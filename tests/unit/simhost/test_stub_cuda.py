# SPDX-License-Identifier: Apache-2.0
"""The stub libcuda: devices, streams, events, graphs, errors."""

from __future__ import annotations

from hotstage.simhost.gpus import GPUS


def test_calls_before_cuinit_and_without_a_context_are_refused(driver):
    assert driver("print(allocate(1)[0]); check(cuda.cuInit(0)); print(allocate(1)[0])") == "3\n201"


def test_a_hidden_device_keeps_its_uuid_when_it_is_ordinal_zero(driver):
    uuid = GPUS[1].uuid.removeprefix("GPU-").replace("-", "")
    say = """
check(cuda.cuInit(0))
print(value(c_int, cuda.cuDeviceGetCount))
uuid = (ctypes.c_ubyte * 16)(); check(cuda.cuDeviceGetUuid_v2(uuid, 0)); print(bytes(uuid).hex())
name = ctypes.create_string_buffer(32)
check(cuda.cuDeviceGetPCIBusId(name, 32, 0)); print(name.value.decode())
"""
    assert driver(say, CUDA_VISIBLE_DEVICES=GPUS[1].uuid) == f"1\n{uuid}\n0000:B3:00.0"
    assert driver(say, CUDA_VISIBLE_DEVICES="1").endswith("B3:00.0")
    assert driver(say).startswith("2\n")


def test_a_wait_lasts_as_long_as_the_work_that_was_queued(driver):
    took = driver("""
open_context()
began = time.monotonic()
for _ in range(10): check(launch(3000))
queued = time.monotonic() - began
check(cuda.cuStreamSynchronize(None))
print(queued, time.monotonic() - began)
""")
    queued, waited = map(float, took.split())
    assert queued < 0.03 <= waited


def test_streams_do_not_slow_one_another_and_events_order_them(driver):
    took = driver("""
open_context()
streams = [c_void_p(value(c_void_p, cuda.cuStreamCreate, 1)) for _ in range(2)]
event = c_void_p(value(c_void_p, cuda.cuEventCreate, 0))
began = time.monotonic()
for stream in streams: check(launch(40000, stream))
for stream in streams: check(cuda.cuStreamSynchronize(stream))
print(time.monotonic() - began)
began = time.monotonic()
check(launch(40000, streams[0])); check(cuda.cuEventRecord(event, streams[0]))
print(cuda.cuEventQuery(event))
check(cuda.cuStreamWaitEvent(streams[1], event, 0)); check(launch(40000, streams[1]))
check(cuda.cuStreamSynchronize(streams[1]))
print(time.monotonic() - began, cuda.cuEventQuery(event))
""")
    together, early, ordered, late = map(float, took.split())
    assert 0.04 <= together < 0.08 <= ordered
    assert (early, late) == (600, 0)


def test_elapsed_time_is_the_works_own(driver):
    milliseconds = driver("""
open_context()
first, last = (c_void_p(value(c_void_p, cuda.cuEventCreate, 0)) for _ in range(2))
check(launch(10)); check(cuda.cuEventRecord(first, None))
check(launch(7000)); check(cuda.cuEventRecord(last, None))
check(cuda.cuEventSynchronize(last))
print(value(c_float, cuda.cuEventElapsedTime, first, last))
""")
    assert 7.0 <= float(milliseconds) < 7.5


def test_a_graph_replays_what_was_captured_and_capturing_runs_nothing(driver):
    took = driver("""
open_context()
stream = c_void_p(value(c_void_p, cuda.cuStreamCreate, 1))
check(cuda.cuStreamBeginCapture_v2(stream, 0))
for _ in range(4): check(launch(10000, stream))
graph = c_void_p(); check(cuda.cuStreamEndCapture(stream, byref(graph)))
began = time.monotonic(); check(cuda.cuStreamSynchronize(stream)); print(time.monotonic() - began)
executable = c_void_p(value(c_void_p, cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0)))
began = time.monotonic()
check(cuda.cuGraphLaunch(executable, stream)); check(cuda.cuStreamSynchronize(stream))
print(time.monotonic() - began)
""")
    captured, replayed = map(float, took.split())
    assert captured < 0.01
    assert replayed >= 0.04


def test_a_slow_device_takes_its_factor_longer(driver, page):
    page.devices[0].factor = 10.0
    took = driver("""
open_context()
began = time.monotonic(); check(launch(3000)); check(cuda.cuCtxSynchronize()); print(time.monotonic() - began)
""")
    assert float(took) >= 0.03


def test_no_wait_returns_while_the_device_hangs(driver, page):
    page.devices[0].hang = 1
    waited = driver("""
import threading
context = open_context()
def wait(): cuda.cuCtxSetCurrent(context); cuda.cuStreamSynchronize(None)
thread = threading.Thread(target=wait, daemon=True)
thread.start(); thread.join(0.1); print(thread.is_alive(), cuda.cuStreamQuery(None))
""")
    assert waited == "True 600"


def test_get_proc_address_answers_with_exported_entry_points(driver):
    found = driver("""
def address(name, flags=0):
    out = c_void_p(); status = c_int()
    code = cuda.cuGetProcAddress_v2(name, byref(out), 12040, c_uint64(flags), byref(status))
    return out.value, code, status.value
def exported(name): return ctypes.cast(getattr(cuda, name), c_void_p).value
print(address(b"cuMemAlloc")[0] == exported("cuMemAlloc_v2"))
print(address(b"cuLaunchKernel")[0] == exported("cuLaunchKernel"))
print(address(b"cuLaunchKernel", 2)[0] == exported("cuLaunchKernel_ptsz"))
print(address(b"cuNoSuchThing")[1:])
""")
    assert found.splitlines() == ["True", "True", "True", "(500, 1)"]


def test_bad_handles_and_empty_grids_are_errors(driver):
    codes = driver("""
open_context()
text = ctypes.c_char_p()
bad = ctypes.create_string_buffer(64)
print(cuda.cuEventSynchronize(bad), cuda.cuStreamSynchronize(bad), launch(0), cuda.cuGraphLaunch(bad, None))
check(cuda.cuGetErrorString(2, byref(text))); print(text.value.decode())
""")
    assert codes == "400 400 1 400\nout of memory"


def test_contexts_stack_and_a_new_one_is_current(driver):
    same = driver("""
first = open_context()
second = c_void_p(); check(cuda.cuCtxCreate_v2(byref(second), 0, 1))
current = lambda: value(c_void_p, cuda.cuCtxGetCurrent)
print(current() == second.value, value(c_int, cuda.cuCtxGetDevice))
popped = c_void_p(); check(cuda.cuCtxPopCurrent_v2(byref(popped)))
print(popped.value == second.value, current() == first.value)
check(cuda.cuCtxPushCurrent_v2(second)); print(value(c_int, cuda.cuCtxGetDevice))
""")
    assert same == "True 1\nTrue True\n1"
