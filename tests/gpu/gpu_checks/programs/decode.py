# SPDX-License-Identifier: Apache-2.0
"""A PyTorch process that decodes tokens when told to, for a given time, and says how many."""

from __future__ import annotations

import os
import time

import torch

from gpu_checks.programs.dialogue import Answer, serve
from gpu_checks.programs.torch_model import Server


class Program:
    """`window` is the measurement: whole steps, each waited for by reading its tokens, as a server does."""

    def __init__(self) -> None:
        self._server: Server | None = None

    def start(self) -> Answer:
        """Build, warm up, capture."""
        self._server = server = Server("cuda")
        for _ in range(20):
            server.step()
            server.read()
        server.capture()
        torch.cuda.synchronize()
        return {"pid": os.getpid(), "torch": torch.__version__}

    def window(self, seconds: float, graph: bool) -> Answer:
        """Decode for so long; tokens, the time they took, steps."""
        server = self._server
        assert server is not None, "`start` comes first"
        step = server.replay if graph else server.step
        steps = 0
        began = time.perf_counter()
        ends = began + seconds
        while (now := time.perf_counter()) < ends:
            step()
            server.read()
            steps += 1
        return {"steps": steps, "tokens": steps * server.sizes.batch, "seconds": now - began}


def main() -> None:
    program = Program()
    serve({"start": program.start, "window": program.window})


if __name__ == "__main__":
    main()
