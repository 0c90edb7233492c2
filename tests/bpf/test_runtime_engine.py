# SPDX-License-Identifier: Apache-2.0
"""A program on a runtime without a driver, through discovery: its kernels by name, its copies, its device."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.bpf.conftest import SOURCES
from tests.bpf.targets import wait_until
from tests.bpf.test_layers_engine import Program, attached

from hotstage.clock import SystemClock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.copies import CopyCount
from hotstage.probes.engine import ProbeEngine

REGISTERED = 0x7FFF_0000_1234
"""A host function that lies in no file."""


def test_a_program_without_a_driver_is_told_as_one_with_it(tmp_path: Path) -> None:
    runtime = tmp_path / "libcudart.so.12"
    parts = [SOURCES / "layers_runtime.c", SOURCES / "layers_driver.c"]
    subprocess.run(
        ["gcc", "-O0", "-fcf-protection=none", "-shared", "-fPIC", "-o", runtime, *parts], check=True
    )
    program = Program()
    engine = ProbeEngine(ProbesConfig(xid=False, driver=False, kernel_gap=1), SystemClock())  # type: ignore[arg-type]
    try:
        engine.start()
        program.do(f"rt = ctypes.CDLL('{runtime}')")
        wait_until(lambda: attached(engine, program.pid, "libcudart") > 0, "the runtime is attached")
        first = attached(engine, program.pid, "libcudart")
        wait_until(
            lambda: attached(engine, program.pid, "libcudart") > first, "its launches are attached, too"
        )
        program.do("dim = ctypes.c_uint64(1 << 32 | 1);;pointer = ctypes.c_void_p")
        program.do("launch = lambda f: rt.cudaLaunchKernel(pointer(f), dim, 1, dim, 1, None, 0, None)")
        program.do(
            f"getattr(rt, '__cudaRegisterFunction')(None, pointer({REGISTERED}), None, b'_Z3addPf', 0)"
        )
        program.do("of_file = ctypes.cast(rt.cuStreamSynchronize, pointer).value")
        program.do(
            f"[launch({REGISTERED}) for _ in range(7)];;[launch(of_file) for _ in range(11)];;launch(3)"
        )
        program.do("rt.cudaGetDeviceProperties(ctypes.create_string_buffer(1032), 1);;rt.cudaSetDevice(1)")
        program.do("[rt.cudaMemcpy(pointer(), pointer(), ctypes.c_size_t(64), 2) for _ in range(5)]")

        def kernels() -> dict[str, tuple[int, str | None]]:
            (process,) = (each for each in engine.names.kernels(9).processes if each.pid == program.pid)
            assert (process.launches, process.samples) == (19, 19)
            return {row.kernel: (row.launches, row.name_source) for row in process.kernels}

        wait_until(lambda: len(kernels()) == 2, "the host function's symbol is found")
        assert kernels() == {"add": (7, "registration"), "cuStreamSynchronize": (11, "symbol")}
        (function,) = (each for each in engine.unmarked.functions() if each.name == "cuStreamSynchronize")
        program.do("launch(of_file)")  # from now on by the hash of its name: the same row
        (process,) = (each for each in engine.names.kernels(9).processes if each.pid == program.pid)
        assert process.kernels[0].launches == 12 and process.kernels[0].variants == 1
        assert function.pid == program.pid
        assert engine.told.device_uuids()[program.pid, 1] == "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"
        assert engine.totals().copies == {"runtime": {"dtoh": CopyCount(5, 0, 5 * 64)}}
        assert engine.unmarked.launches_by_source()[program.pid].none == 20
    finally:
        engine.close()
        program.close()
