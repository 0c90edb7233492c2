# SPDX-License-Identifier: Apache-2.0
"""A marked multimodal server in one thread: it tells its own times and calls, hotstage must find the same.

The work is PyTorch's, or (`--work driver`) plain launches by ctypes, whose number is known for each stage.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from gpu_checks.programs.dialogue import Answer, serve
from gpu_checks.programs.driver import Driver, Session, Size

if os.environ.get("HOTSTAGE_MARKS_LIBRARY"):
    from gpu_checks.programs import marks_by_ctypes as marks
else:
    import hotstage_marks as marks  # type: ignore[no-redef]

ENDPOINTS = {"text": "/v1/chat", "image": "/v1/vision", "audio": "/v1/transcribe"}
MODEL = "tiny-vlm"


class Work(Protocol):
    """What the stages do; `launches` is the number of launch-class calls so far, None where nobody knows."""

    def load(self) -> None: ...
    def encode(self, modality: str) -> None: ...
    def align(self) -> None: ...
    def prefill(self) -> None: ...
    def decode(self, *, graph: bool) -> None: ...
    def launches(self) -> int | None: ...


class DriverWork:
    """So many launches a stage, a copy in, a wait at the end."""

    def __init__(self) -> None:
        self._driver = Driver()

    def load(self) -> None:
        self._session = session = Session(self._driver)
        self._device = session.out("cuMemAlloc_v2", Size(1 << 16))
        self._host = (ctypes.c_ubyte * (1 << 16))()
        graph = session.capture(launches=20)
        self._graph = session.out("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))

    def encode(self, modality: str) -> None:
        self._driver.call("cuMemcpyHtoD_v2", self._device, self._host, Size(1 << 16))
        self._run(40 if modality == "image" else 25)

    def align(self) -> None:
        self._run(4)

    def prefill(self) -> None:
        self._run(60)

    def decode(self, *, graph: bool) -> None:
        if graph:
            self._driver.call("cuGraphLaunch", self._graph, self._session.stream)
            self._driver.call("cuStreamSynchronize", self._session.stream)
        else:
            self._run(20)

    def launches(self) -> int:
        return sum(count for name, count in self._driver.made().items() if "Launch" in name)

    def _run(self, launches: int) -> None:
        for _ in range(launches):
            self._session.launch(self._session.stream)
        self._driver.call("cuStreamSynchronize", self._session.stream)


class TorchWork:
    """The small model of `torch_model`; every stage ends by waiting, as a stage must that is to be timed."""

    def load(self) -> None:
        import torch

        from gpu_checks.programs.torch_model import Server

        self._torch = torch
        self._server = server = Server("cuda")
        batch = server.sizes.batch
        self._inputs = {"image": torch.rand(batch, 3, 224, 224), "audio": torch.rand(batch, 80, 400)}
        self._features = server.encode(self._inputs["image"], "image")
        self.encode("audio")
        self.align()
        self.prefill()
        server.step()
        server.capture()
        torch.cuda.synchronize()

    def encode(self, modality: str) -> None:
        self._features = self._server.encode(self._inputs[modality], modality)
        self._torch.cuda.current_stream().synchronize()

    def align(self) -> None:
        self._features = self._server.align(self._features)
        self._torch.cuda.current_stream().synchronize()

    def prefill(self) -> None:
        self._server.prefill(self._features[:, :100])
        self._server.read()

    def decode(self, *, graph: bool) -> None:
        if graph:
            self._server.replay()
        else:
            self._server.step()
        self._server.read()

    def launches(self) -> None:
        return None


class Program:
    """The verbs of the server."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._spans: list[dict[str, Any]] = []
        self._launches: Counter[str] = Counter()
        self._held: Any = None
        self._number = 0
        self._graph_steps = 0

    def start(self) -> Answer:
        """libcuda is mapped, nothing called: a watcher can attach first."""
        ctypes.CDLL("libcuda.so.1")
        if isinstance(self._work, TorchWork):
            import torch  # noqa: F401  # its libraries, before anything is watched
        return {"pid": os.getpid(), "marks": marks.__name__, "native": marks.is_native}

    def load(self) -> Answer:
        with self._stage("model_load", "unknown", None):
            self._work.load()
        return self._truth()

    def requests(self, text: int, image: int, audio: int, output_tokens: int) -> Answer:
        """So many requests of each modality, one after another; every other one decodes by graph."""
        began = time.perf_counter()
        for modality, count in (("text", text), ("image", image), ("audio", audio)):
            for _ in range(count):
                self._request(modality, output_tokens)
        return {**self._truth(), "seconds": time.perf_counter() - began}

    def hold(self) -> Answer:
        """Begin a request and stay in its decoding: what a snapshot must show."""
        request = marks.request_begin(self._name(), endpoint=ENDPOINTS["image"], instance="i-0", model=MODEL)
        with marks.stage("vision_encode", modality="image", tokens=196, request=request):
            self._work.encode("image")
        stage = marks.stage("llm_decode", modality="image", request=request).begin()
        for done in range(1, 4):
            self._work.decode(graph=False)
            marks.tokens(done, request=request)
        self._held = (request, stage)
        return {"id": request.id, "done": ["vision_encode"], "open": "llm_decode", "output_tokens": 3}

    def release(self) -> Answer:
        request, stage = self._held
        stage.end()
        request.end("cancelled", 3)
        return {}

    def _request(self, modality: str, output_tokens: int) -> None:
        name = self._name()
        with marks.request(name, endpoint=ENDPOINTS[modality], instance="i-0", model=MODEL) as request:
            if modality != "text":
                encoder = "vision_encode" if modality == "image" else "audio_encode"
                with self._stage(encoder, modality, name):
                    self._work.encode(modality)
                with self._stage("cross_modal_align", modality, name):
                    self._work.align()
            with self._stage("llm_prefill", modality, name):
                self._work.prefill()
            with self._stage("llm_decode", modality, name):
                by_graph = self._number % 2 == 0
                for done in range(1, output_tokens + 1):
                    self._work.decode(graph=by_graph)
                    request.tokens(done)
                self._graph_steps += output_tokens if by_graph else 0

    @contextmanager
    def _stage(self, stage: str, modality: str, request: str | None) -> Iterator[None]:
        launches = self._work.launches() or 0
        with marks.stage(stage, modality=modality, tokens=100):
            began = time.monotonic_ns()
            yield
            seconds = (time.monotonic_ns() - began) / 1e9
        self._launches[stage] += (self._work.launches() or 0) - launches
        self._spans.append({"request": request, "stage": stage, "modality": modality, "seconds": seconds})

    def _name(self) -> str:
        self._number += 1
        return f"gpu-check-{os.getpid()}-{self._number}"

    def _truth(self) -> Answer:
        known = dict(self._launches) if isinstance(self._work, DriverWork) else None
        return {"spans": self._spans, "launches": known, "graph_steps": self._graph_steps}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=("torch", "driver"), required=True)
    work = TorchWork() if parser.parse_args().work == "torch" else DriverWork()
    program = Program(work)
    serve(
        {
            "start": program.start,
            "load": program.load,
            "requests": program.requests,
            "hold": program.hold,
            "release": program.release,
        }
    )


if __name__ == "__main__":
    main()
