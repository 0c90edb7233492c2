# SPDX-License-Identifier: Apache-2.0
"""A PyTorch process that works in phases with known numbers of graph replays and copies."""

from __future__ import annotations

import ctypes
import os
import time

import torch

from gpu_checks.programs.dialogue import Answer, serve


class Program:
    """The verbs; a phase answers with the calls that it made for certain, the others only CUPTI knows."""

    def __init__(self) -> None:
        ctypes.CDLL("libcuda.so.1")  # mapped before anything is called, so that a watcher can attach first

    def start(self) -> Answer:
        return {"pid": os.getpid(), "torch": torch.__version__, "cuda": torch.version.cuda}

    def matmuls(self, times: int) -> Answer:
        """Products and sums, allocated and freed by the caching allocator."""
        began = time.perf_counter()
        a = torch.randn(512, 512, device="cuda")
        for _ in range(times):
            b = (a @ a).relu_()
        total = float(b.sum())
        torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - began, "total": total, "certain": {}}

    def copies(self, times: int) -> Answer:
        """To the device from pageable and page-locked memory, and back."""
        host = torch.ones(1 << 14)
        pinned = host.pin_memory()
        device = torch.empty(1 << 14, device="cuda")
        for _ in range(times):
            device.copy_(host)
            device.copy_(pinned, non_blocking=True)
            host.copy_(device)
        torch.cuda.synchronize()
        return {"certain": {"cuMemcpyHtoDAsync_v2": 2 * times, "cuMemcpyDtoHAsync_v2": times}}

    def graphs(self, times: int) -> Answer:
        """Capture a few operations, replay them so many times."""
        x = torch.zeros(1024, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            x.add_(1)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(7):
                x.add_(1)
        for _ in range(times):
            graph.replay()
        torch.cuda.synchronize()
        return {"certain": {"cuGraphLaunch": times}, "value": float(x[0])}

    def refuse(self) -> Answer:
        """Ask for more memory than there is: PyTorch tries, tidies up, tries again, and raises."""
        try:
            torch.empty(1 << 50, device="cuda", dtype=torch.uint8)
        except torch.cuda.OutOfMemoryError:
            return {"certain": {}, "refused": True}
        return {"certain": {}, "refused": False}

    def cupti(self) -> Answer:
        """As `driver_calls`."""
        path = os.environ.get("CUDA_INJECTION64_PATH")
        return {"written": None if path is None else ctypes.CDLL(path).hotstage_cupti_write() == 0}


def main() -> None:
    program = Program()
    serve(
        {
            "start": program.start,
            "matmuls": program.matmuls,
            "copies": program.copies,
            "graphs": program.graphs,
            "refuse": program.refuse,
            "cupti": program.cupti,
        }
    )


if __name__ == "__main__":
    main()
