# SPDX-License-Identifier: Apache-2.0
"""The server's door to its GPU: ctypes over `stubs/server.c`, which calls libcuda by its exported names.

Every call releases the interpreter's lock, so that waiting for the device blocks one thread only.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from hotstage.simhost.page import PAGE_FILE, Page
from hotstage.simhost.service import StageWork
from hotstage.stages.stage import Modality, Stage

EAGER_LAUNCHES = 240
"""Kernels of a step of the language model without its graph, of prefill and of decode: 20 layers of 12."""
TOKEN_BYTES = 4
_PINNED_BYTES = 1 << 16


class GpuError(Exception):
    """A CUDA call failed; carries the code, 2 is out of memory."""

    def __init__(self, act: str, code: int) -> None:
        super().__init__(f"{act} failed with CUDA error {code}")
        self.code = code


class _StageWork(ctypes.Structure):
    """As `struct stage_work` of `stubs/server.c`."""

    _fields_ = (
        ("stage", ctypes.c_uint32),
        ("modality", ctypes.c_uint32),
        ("device_ns", ctypes.c_uint64),
        ("launches", ctypes.c_uint32),
        ("copies", ctypes.c_uint32),
        ("input_bytes", ctypes.c_uint64),
        ("device_bytes", ctypes.c_uint64),
    )


class _EagerWork(ctypes.Structure):
    """As `struct eager_work` of `stubs/server.c`."""

    _fields_ = (
        ("stage", ctypes.c_uint32),
        ("modality", ctypes.c_uint32),
        ("steps", ctypes.c_uint32),
        ("launches", ctypes.c_uint32),
        ("step_ns", ctypes.c_uint64),
        ("input_bytes", ctypes.c_uint64),
        ("output_bytes", ctypes.c_uint64),
    )


class Gpu:
    """The first visible GPU, or the first two: then the encoders are on the first of them.

    Loading maps libcuda and makes no CUDA call; `open` makes the first.
    """

    def __init__(self, library: Path, count: int = 1) -> None:
        self._count = count
        self._folder = library.parent
        self._library = ctypes.CDLL(str(library))
        self._library.sim_page_bytes.restype = ctypes.c_uint64
        if self._library.sim_page_bytes() != ctypes.sizeof(Page):
            raise RuntimeError("page.py and page.h differ in size")

    def open(self, *, weight_bytes: int, graph_nodes: int) -> None:
        """Contexts, kernels, weights, and the captured decode step."""
        result = self._library.gpu_open(
            ctypes.c_uint32(self._count), ctypes.c_uint64(weight_bytes), ctypes.c_uint32(graph_nodes)
        )
        self._check("gpu_open", result)

    def open_thread(self) -> None:
        """Once in each thread that uses the device."""
        self._check("gpu_thread_open", self._library.gpu_thread_open())

    def run(self, work: StageWork, factor: float) -> None:
        """Allocate, copy, launch, wait, free; returns when the device is done."""
        request = _StageWork(
            stage=work.stage,
            modality=work.modality,
            device_ns=int(work.seconds * factor * 1e9),
            launches=work.launches,
            copies=work.copies,
            input_bytes=work.input_bytes,
            device_bytes=work.device_bytes,
        )
        self._check("gpu_stage", self._library.gpu_stage(ctypes.byref(request)))

    def decode(self, modality: Modality, *, steps: int, step_seconds: float, launches: int) -> None:
        """So many steps of the current batch; returns when the last is done."""
        result = self._library.gpu_decode(
            ctypes.c_uint32(Stage.llm_decode),
            ctypes.c_uint32(modality),
            ctypes.c_uint32(steps),
            ctypes.c_uint64(int(step_seconds * 1e9)),
            ctypes.c_uint32(launches),
        )
        self._check("gpu_decode", result)

    def eager(
        self,
        stage: Stage,
        modality: Modality,
        *,
        steps: int,
        step_seconds: float,
        tokens: int,
        sequences: int,
    ) -> None:
        """Steps of the language model without its graph, each of so many tokens, one of which comes back for
        each sequence; returns when the last is done.
        """
        work = _EagerWork(
            stage=stage,
            modality=modality,
            steps=steps,
            launches=EAGER_LAUNCHES,
            step_ns=int(step_seconds * 1e9),
            input_bytes=min(TOKEN_BYTES * tokens, _PINNED_BYTES),
            output_bytes=TOKEN_BYTES * sequences,
        )
        self._check("gpu_eager", self._library.gpu_eager(ctypes.byref(work)))

    def squeeze(self, free_bytes: int, cut_bytes: int) -> None:
        """Of the last GPU, leave this much free in one piece and this much in pages that hold something."""
        result = self._library.gpu_squeeze(
            ctypes.c_int(self._count - 1), ctypes.c_uint64(free_bytes), ctypes.c_uint64(cut_bytes)
        )
        self._check("gpu_squeeze", result)

    def relieve(self) -> None:
        """Give back what `squeeze` took."""
        self._check("gpu_relieve", self._library.gpu_relieve(ctypes.c_int(self._count - 1)))

    def share_stream(self, *, is_shared: bool) -> None:
        """All threads on one stream, or each on its own again."""
        self._check("gpu_share_stream", self._library.gpu_share_stream(ctypes.c_int(is_shared)))

    def free_memory(self) -> tuple[int, int] | None:
        """(free, its largest piece) of the last GPU, bytes, as its allocator has it; None without a page."""
        try:
            page = Page.from_buffer_copy((self._folder / PAGE_FILE).read_bytes())
        except (OSError, ValueError):
            return None
        own = [process for process in page.processes if process.pid == os.getpid()]
        if not own:
            return None
        mine = own[-1]
        device = page.devices[mine.device]
        used = sum(each.used_bytes for each in page.processes if each.pid and each.device == mine.device)
        return device.total_bytes - device.reserved_bytes - used, mine.largest_free_bytes

    @staticmethod
    def _check(act: str, code: int) -> None:
        if code != 0:
            raise GpuError(act, code)
