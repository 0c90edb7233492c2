# SPDX-License-Identifier: Apache-2.0
"""PyTorch's allocator on libraries with its exports and USDT notes: blocks, semaphores, sums, every rung."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bpf.targets import wait_until

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.engine import ProbeEngine
from hotstage.probes.fragmentation import Basis, Fragmentation
from hotstage.probes.maps.torch import TorchMaps
from hotstage.simhost.build import lay_out
from hotstage.stages.stage import NO_STAGE, Stage

pytestmark = pytest.mark.kernel

SOURCE = Path(__file__).parent / "target/torch_allocator.c"
MIB = 1 << 20
BASE = 0x7F00_0000_0000
PROGRAM = """
import ctypes, json, sys
from ctypes import c_byte, c_int, c_size_t, c_void_p
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
torch = ctypes.CDLL(sys.argv[2])
torch.give_out.argtypes = [c_void_p, c_byte, c_size_t, c_size_t, c_int, c_int]
torch.take_back.argtypes = [c_void_p, c_byte, c_size_t, c_int]
torch.fail.argtypes = [c_byte, c_size_t]
torch.give_out_on_host.argtypes = [c_void_p, c_size_t]
torch.reserve.argtypes = [c_size_t]
cuda = ctypes.CDLL(sys.argv[3]) if sys.argv[3:] else None

def segment(size):
    address, context = ctypes.c_uint64(), c_void_p()
    assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not cuda.cuCtxSetCurrent(context) and not cuda.cuMemAlloc_v2(ctypes.byref(address), c_size_t(size))
    return address.value

def release(address):
    return cuda.cuMemFree_v2(ctypes.c_uint64(address))
print("{}", flush=True)
for line in sys.stdin:
    answer, stage = None, None
    for name, *arguments in json.loads(line):
        if name == "marks":
            import hotstage_marks as marks
        elif name == "stage":
            stage = marks.stage(arguments[0])
            stage.__enter__()
        else:
            answer = (globals().get(name) or getattr(torch, name))(*arguments)
    if stage:
        stage.__exit__(None, None, None)
    print(json.dumps(answer), flush=True)
"""


def build(folder: Path, *flags: str) -> tuple[Path, Path]:
    libc10, cuda = folder / "libc10.so", folder / "libc10_cuda.so"
    command = ["gcc", "-O2", "-Wall", "-shared", "-fPIC"]
    subprocess.run([*command, "-DLIBC10", "-o", libc10, SOURCE], check=True)
    subprocess.run([*command, *flags, "-o", cuda, SOURCE], check=True)
    return libc10, cuda


class Program:
    """A program with both libraries; `do` a list of calls and get what the last one returned."""

    def __init__(self, libraries: Sequence[Path]) -> None:
        command = [sys.executable, "-c", PROGRAM, *map(str, libraries)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self._answer()

    def do(self, *calls: list[Any]) -> Any:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(calls) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def _answer(self) -> Any:
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], 20)[0], "the program answered within 20 s"
        return json.loads(self.process.stdout.readline())


def is_foreign(pid: int) -> bool:
    """Whether this test did not start it: another PyTorch on the host is nobody's business here."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) != os.getpid()
    except OSError:
        return True


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    things: list[Any] = []
    yield things
    for each in reversed(things):
        each.close()


@pytest.fixture
def watch(opened: list[Any]) -> Callable[..., ProbeEngine]:
    def begin(**settings: Any) -> ProbeEngine:
        config = {"torch_memory": True, "xid": False, **settings}
        engine = ProbeEngine(ProbesConfig(**config), SystemClock(), is_own=is_foreign)
        opened.append(engine)
        engine.start()
        return engine

    return begin


@pytest.fixture
def run(opened: list[Any], tmp_path: Path) -> Callable[..., Program]:
    def begin(*flags: str, cuda: bool = False) -> Program:
        driver = [lay_out(tmp_path / "cuda").libcuda] if cuda else []
        opened.append(Program([*build(tmp_path, *flags), *driver]))
        return opened[-1]

    return begin


def wait_for(engine: ProbeEngine, pid: int, *also: str) -> None:
    wanted = {"libc10", "libc10_cuda", *also}

    def are_there() -> bool:
        found = [process for process in engine.coverage().processes if process.pid == pid]
        return {lib.kind for each in found for lib in each.libraries if lib.since_ns is not None} >= wanted

    wait_until(are_there, f"{wanted} are attached", 20)


def maps_of(engine: ProbeEngine) -> TorchMaps:
    assert engine.ledger.torch is not None
    return engine.ledger.torch.maps


def blocks(engine: ProbeEngine, pid: int) -> dict[int, tuple[int, int, int, int]]:
    """Address → (bytes, requested, device, stage)."""
    rows = maps_of(engine).blocks()
    rows = rows[rows["tgid"] == pid]
    return {
        int(row["address"]): tuple(int(row[name]) for name in ("bytes", "requested_bytes", "device", "stage"))
        for row in rows
    }


def device(engine: ProbeEngine, pid: int, ordinal: int = 0) -> np.void:
    rows = maps_of(engine).devices()
    (row,) = rows[(rows["tgid"] == pid) & (rows["ordinal"] == ordinal)]
    return row


@pytest.mark.parametrize(
    ("loader", "rung"),
    [
        ("libbpf", "S"),
        pytest.param("libbpf", "M", marks=pytest.mark.long),
        ("libbpf", "P"),
        pytest.param("bcc", "M", marks=pytest.mark.long),
    ],
)
def test_blocks_are_those_of_the_program(loader: str, rung: str, watch, run) -> None:
    engine = watch(loader=loader, rung=rung)
    program = run()
    wait_for(engine, program.pid)
    assert program.do(["semaphores"]) == 2 << 8 | 1  # each site has raised its own
    expected: dict[int, tuple[int, int, int, int]] = {}
    for number in range(97):
        address, requested = BASE + number * 4096, 1000 + number * 3
        size, ordinal = (requested + 511) // 512 * 512, number % 2
        program.do(["give_out", address, ordinal, size, requested, number % 3 == 0, 0])
        expected[address] = (size, requested, ordinal, NO_STAGE)
        if number % 4 == 3:
            address = BASE + (number - 2) * 4096
            size, _, ordinal, _ = expected.pop(address)
            program.do(["take_back", address, ordinal, size, 0])
    assert blocks(engine, program.pid) == expected
    for ordinal in (0, 1):
        row = device(engine, program.pid, ordinal)
        mine = [size for size, _, where, _ in expected.values() if where == ordinal]
        assert (row["block_bytes"], row["block_count"]) == (sum(mine), len(mine))
        assert row["allocated_total"] - row["freed_total"] == len(mine)
        assert (row["unmatched_frees"], row["reserved_bytes"]) == (0, 1 << 30)
    assert not engine.coverage().losses["lost_blocks"]
    engine.close()
    assert program.do(["semaphores"]) == 0


def test_a_block_has_the_stage_that_its_thread_was_in(watch, run) -> None:
    engine, program = watch(), run()
    program.do(["marks"])
    wait_for(engine, program.pid, "marks")
    program.do(["stage", "vision_encode"], ["give_out", BASE, 0, 512, 500, 0, 0])
    program.do(["give_out", BASE + 512, 0, 512, 501, 1, 0])
    assert blocks(engine, program.pid) == {
        BASE: (512, 500, 0, Stage.vision_encode),
        BASE + 512: (512, 501, 0, NO_STAGE),
    }


def test_what_was_given_out_before_the_attach_is_known_by_its_sum_alone(watch, run) -> None:
    program = run()
    program.do(["give_out", BASE, 0, 3 * MIB, 3 * MIB, 0, 0])
    engine = watch()
    wait_for(engine, program.pid)
    program.do(["give_out", BASE + 4 * MIB, 0, MIB, MIB, 0, 0])
    row = device(engine, program.pid)
    assert (row["base_bytes"], row["allocated_bytes"], row["block_bytes"]) == (3 * MIB, 4 * MIB, MIB)
    program.do(["take_back", BASE, 0, 3 * MIB, 0])
    row = device(engine, program.pid)
    assert (row["allocated_bytes"], row["block_bytes"], row["unmatched_frees"]) == (MIB, MIB, 1)


def test_where_nothing_is_reported_the_probes_keep_what_was_asked_for(watch, run) -> None:
    engine, program = watch(), run()
    wait_for(engine, program.pid)
    program.do(["give_out", BASE, 0, 512, 400, 0, 1], ["give_out", BASE + 512, 0, 512, 401, 1, 1])
    program.do(["take_back", BASE, 0, 512, 1])
    assert blocks(engine, program.pid) == {BASE + 512: (0, 401, 255, NO_STAGE)}


def test_failed_allocations_say_what_was_wanted_and_what_there_was(watch, run) -> None:
    engine, program = watch(), run()
    wait_for(engine, program.pid)
    program.do(["give_out", BASE, 1, MIB, MIB, 0, 0], ["fail", 1, 20 << 30], ["fail", 1, 21 << 30])
    program.do(["give_out_on_host", BASE, MIB])
    row = device(engine, program.pid, 1)
    assert row["out_of_memory_total"] == 2
    assert row["out_of_memory_requested_bytes"] == 21 << 30
    assert (row["out_of_memory_allocated_bytes"], row["out_of_memory_reserved_bytes"]) == (MIB, 1 << 30)
    assert row["out_of_memory_ns"] > 0
    assert list(blocks(engine, program.pid)) == [BASE]


def test_a_process_keeps_a_quarter_of_the_blocks_and_the_rest_is_counted(watch, run) -> None:
    engine, program = watch(torch_blocks=64), run()
    wait_for(engine, program.pid)
    program.do(*(["give_out", BASE + 512 * number, 0, 512, 512, 0, 0] for number in range(20)))
    assert len(blocks(engine, program.pid)) == 16
    # what was asked for it finds no block, and no room either
    assert engine.coverage().losses["lost_blocks"] == 4 + 4
    program.do(*(["take_back", BASE + 512 * number, 0, 512, 0] for number in range(20)))
    row = device(engine, program.pid)
    assert (row["block_count"], row["block_bytes"], row["unmatched_frees"]) == (0, 0, 4)
    program.do(*(["give_out", BASE + 512 * number, 0, 512, 512, 0, 0] for number in range(16)))
    assert len(blocks(engine, program.pid)) == 16  # the share was given back


def fragmentation(engine: ProbeEngine, pid: int) -> Fragmentation:
    assert engine.ledger.torch is not None
    return engine.ledger.torch.fragmentation()[pid, 0]


def test_fragmentation_is_that_of_the_segments_that_blocks_were_cut_from(watch, run) -> None:
    engine, program = watch(), run(cuda=True)
    wait_for(engine, program.pid, "libcuda")
    program.do(["segment", 64 * MIB])  # not PyTorch's: no block ever begins there
    first = program.do(["segment", 20 * MIB])
    program.do(["reserve", 20 * MIB], ["give_out", first, 0, 2 * MIB, 2 * MIB - 100, 0, 0])
    second = program.do(["segment", 2 * MIB])
    program.do(["reserve", 22 * MIB], ["give_out", second, 0, MIB, MIB - 1, 1, 0])
    program.do(["give_out", first + 5 * MIB, 0, 4 * MIB, 4 * MIB, 1, 0])
    assert fragmentation(engine, program.pid) == Fragmentation(
        basis=Basis.TORCH,
        reserved_bytes=22 * MIB,
        allocated_bytes=7 * MIB,
        requested_bytes=7 * MIB - 101,
        largest_free_bytes=11 * MIB,
        free_blocks=3,  # 3 and 11 MiB of the first, 1 MiB of the second
        inactive_split_bytes=15 * MIB,
    )
    program.do(["take_back", second, 0, MIB, 0])  # a whole segment free: nothing binds it
    found = fragmentation(engine, program.pid)
    assert (found.free_blocks, found.inactive_split_bytes, found.free_bytes) == (3, 14 * MIB, 16 * MIB)
    assert found.external_ratio() == 5 / 16
    program.do(["release", second])  # given back to the driver: PyTorch's own sum is still the one before
    found = fragmentation(engine, program.pid)
    assert (found.basis, found.reserved_bytes, found.free_blocks) == (Basis.TORCH, 20 * MIB, 2)
    segments = maps_of(engine).segments()
    assert [int(row["address"]) for row in segments if row["tgid"] == program.pid] == [first]


def test_what_began_before_the_attach_gives_slack_and_the_reason(watch, run) -> None:
    program = run(cuda=True)
    first = program.do(["segment", 20 * MIB])
    program.do(["reserve", 20 * MIB])
    engine = watch()
    wait_for(engine, program.pid, "libcuda")
    program.do(["give_out", first, 0, 2 * MIB, 2 * MIB, 0, 0])  # the first block, but of a segment unseen
    found = fragmentation(engine, program.pid)
    assert (found.basis, found.slack_ratio) == (Basis.POOL, 0.9)
    assert found.reason == "the allocator was at work before it was followed"
    assert found.largest_free_bytes is None


def test_a_block_that_is_not_known_leaves_slack(watch, run) -> None:
    engine, program = watch(torch_blocks=8), run(cuda=True)
    wait_for(engine, program.pid, "libcuda")
    first = program.do(["segment", 20 * MIB])
    program.do(["reserve", 20 * MIB])
    program.do(*(["give_out", first + MIB * number, 0, MIB, MIB, 0, 0] for number in range(3)))
    found = fragmentation(engine, program.pid)
    assert (found.basis, found.reason) == (Basis.POOL, "not all of its blocks are known")
    assert found.slack_ratio == 17 / 20


def test_a_site_that_must_not_be_probed_is_named_and_its_semaphore_stays_down(watch, run) -> None:
    engine, program = watch(), run("-DFIVE_BYTE_NOP")
    wait_until(lambda: program.pid in engine.pids(), "the program is found", 20)
    wait_until(lambda: any(m.symbol == "pytorch:malloc" for m in engine.coverage().missed), "it is named", 20)
    reasons = {missed.reason for missed in engine.coverage().missed if missed.symbol.startswith("pytorch:")}
    assert reasons == {"there is no one-byte nop at its place"}
    assert program.do(["semaphores"]) == 0


def test_what_a_process_held_goes_with_it(watch, run) -> None:
    engine, program = watch(process_linger_seconds=0.1), run()
    wait_for(engine, program.pid)
    program.do(["give_out", BASE, 0, 512, 512, 0, 0])
    assert blocks(engine, program.pid)
    program.close()

    def is_gone() -> bool:
        engine.read_slow()
        return not blocks(engine, program.pid) and program.pid not in maps_of(engine).devices()["tgid"]

    wait_until(is_gone, "its blocks and sums are removed", 10)


def test_switched_off_no_library_of_it_is_opened(watch, run) -> None:
    engine, program = watch(torch_memory=False), run()
    program.do(["marks"])  # a library that is followed always: the program is known
    wait_until(lambda: program.pid in engine.pids(), "the program is found", 20)
    (process,) = (each for each in engine.coverage().processes if each.pid == program.pid)
    assert {library.kind for library in process.libraries} == {"marks"}
    assert program.do(["semaphores"]) == 0
    assert engine.ledger.torch is None
