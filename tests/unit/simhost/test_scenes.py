# SPDX-License-Identifier: Apache-2.0
"""What faults do to a server's GPU: memory that is filled and cut as asked, bursts at their time."""

from __future__ import annotations

import threading
import time

from hotstage.simhost import faults
from hotstage.simhost.scenes import SCENES, Scenes, _volleys
from hotstage.simhost.truth import StageSpan

MIB = 1 << 20


class Recorder:
    """A GPU that does nothing, and remembers it."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []

    def squeeze(self, free_bytes: int, cut_bytes: int) -> None:
        self.done.append(("squeeze", free_bytes, cut_bytes))

    def relieve(self) -> None:
        self.done.append(("relieve",))

    def share_stream(self, *, is_shared: bool) -> None:
        self.done.append(("share", is_shared))

    def free_memory(self) -> tuple[int, int]:
        return 10, 4


Played = tuple[Recorder, list[object], list[dict[str, object]]]


def played(spec: str, instance: str = "i-0", spans: tuple[StageSpan, ...] = ()) -> Played:
    gpu, taken, is_over = Recorder(), [], threading.Event()
    scenes = Scenes((faults.parse_spec(spec),), instance, 0, "t", gpu, taken.append)  # type: ignore[arg-type]
    before = set(threading.enumerate())
    scenes.start(time.monotonic_ns(), is_over)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    return gpu, taken, scenes.happened(spans)


def test_a_conflict_is_prepared_brings_its_burst_and_gives_everything_back():
    gpu, taken, happened = played("token-conflict@0-0.2:2")
    scene = SCENES["token-conflict"]
    assert gpu.done == [("squeeze", scene.free_bytes, scene.cut_bytes), ("relieve",)]
    assert sum(arrival.text_tokens for arrival in taken) == 2 * 4096
    assert sum(arrival.media_tokens for arrival in taken) == 2 * 2 * 512
    assert len({arrival.id for arrival in taken}) == len(taken)
    assert [each["what"] for each in happened] == ["memory", "volley"]


def test_the_first_allocation_of_a_burst_is_the_begin_of_its_first_stage_on_the_gpu():
    spans = tuple(
        StageSpan(request, stage, "image", "i-0", began_ns, 900, 7)
        for request, stage, began_ns in (
            ("req-1", "vision_encode", 100),
            ("burst-1", "media_fetch", 200),
            ("burst-2", "llm_prefill", 400),
            ("burst-1", "vision_encode", 300),
        )
    )
    happened = played("token-conflict@0-0.1", spans=spans)[2]
    assert [each["at_ns"] for each in happened if each["what"] == "allocation"] == [300]


def test_a_scene_is_played_on_its_instance_alone():
    gpu, taken, happened = played("cut-memory@0-0.1", "i-1")
    assert (gpu.done, taken, happened) == ([], [], [])


def test_cut_memory_alone_brings_no_request_and_a_shared_stream_no_memory():
    assert played("cut-memory@0-0.1")[1] == []
    gpu, taken, _ = played("shared-stream@0-0.1")
    assert (gpu.done, taken) == ([("share", True), ("share", False)], [])


def test_a_volley_comes_every_second_until_the_end():
    assert list(_volleys(faults.parse_spec("token-conflict@5-8"))) == [5, 6, 7]


def test_memory_is_left_as_asked_by_the_allocator_itself(stubs, page, driver):
    page.devices[0].total_bytes = 256 * MIB
    said = driver(f"""
import os, sys
from pathlib import Path
from hotstage.simhost.gpu import Gpu
gpu = Gpu(Path({str(stubs.server)!r}))
gpu.open(weight_bytes=16 << 20, graph_nodes=1)
before = gpu.free_memory()
gpu.squeeze(24 << 20, 64 << 20)
free, total = c_size_t(), c_size_t()
check(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
cut = gpu.free_memory()
gpu.relieve()
print(free.value >> 20, cut[1] >> 20, round(1 - cut[1] / cut[0], 2), gpu.free_memory() == before)
""")
    assert said == "24 25 0.7 True", "the rest of the last page joins what is left"
