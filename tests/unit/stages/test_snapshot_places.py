# SPDX-License-Identifier: Apache-2.0
"""What a snapshot says of the contexts, own stages, adapters and embeddings of requests."""

from __future__ import annotations

import msgspec
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, sample, thread

from hotstage.stages.places import Places
from hotstage.stages.snapshot import snapshot
from hotstage.stages.stage import Modality, Stage

START = 1_000 * SECOND
ADDRESS = 0xDEADBEEF
NAMES = {(100, 40): "rerank", (200, 40): "guard"}
PLACES = Places(stage_names=NAMES)


def shown(clock, *requests, threads=(), places=PLACES):
    return snapshot(sample(START + SECOND, requests=requests, threads=threads), clock, {}, places).requests


def bound(request, *contexts):
    """`contexts`: (CUcontext, device, stages) each."""
    for place, (context, device, stages) in enumerate(contexts):
        row = request.row["contexts"][place]
        row["context"], row["device"], row["stage_mask"] = context, device, sum(1 << each for each in stages)
    return request


def test_a_context_says_which_stages_it_served_and_so_does_its_device(clock):
    request = bound(
        KernelRequest(1, at_ns=START),
        (0xA0, 0, (Stage.vision_encode, 40)),
        (0xA1, 1, (Stage.llm_prefill,)),
        (0xA2, 255, (Stage.sample,)),  # its device was not seen
    )
    places = Places({(100, 0xA0): 0}, {(100, 1): "GPU-one"}, {"GPU-one": 5}, NAMES)
    (found,) = shown(clock, request, places=places)
    assert [(each.context, each.ordinal, each.stages) for each in found.contexts] == [
        (0xA0, 0, ["vision_encode", "rerank"]),
        (0xA1, 1, ["llm_prefill"]),
        (0xA2, None, ["sample"]),
    ]
    assert [each.index for each in found.devices] == [None, 5], "as the host counts, where its UUID is known"
    assert [(each.ordinal, each.uuid, each.source, each.stages) for each in found.devices] == [
        (0, None, "context", ["vision_encode", "rerank"]),
        (1, "GPU-one", "context", ["llm_prefill"]),
    ]


def test_the_context_that_a_thread_works_in_now_is_the_requests(clock):
    row = thread(7, stage=Stage.llm_decode)
    row["request_hash"], row["context"], row["device"] = 1, 0xA0, 0
    (found,) = shown(clock, KernelRequest(1, at_ns=START), threads=[row])
    assert [(each.context, each.ordinal, each.stages) for each in found.contexts] == [
        (0xA0, 0, ["llm_decode"])
    ]


def test_own_stages_have_the_names_of_their_process(clock):
    requests = [KernelRequest(n, at_ns=START + n, pid=pid) for n, pid in ((1, 100), (2, 200), (3, 300))]
    for request in requests:
        request.row["own_stages"] = 41 << 8 | 40
        for slot, stage in ((18, 40), (19, 41)):
            request.begin(slot, START + MS, modality=Modality.image)
            request.row["open_mask"] ^= 1 << slot | 1 << stage
        request.end(18, START + 2 * MS)
        request.row["stage_mask"] = 1 << 40 | 1 << Stage.tokenize
        request.row["modality_words"][Modality.image] |= 40 << 56
    found = shown(clock, *requests)
    assert [each.stages_done for each in found] == [
        ["tokenize", "rerank"],
        ["tokenize", "guard"],
        ["tokenize", "stage_40"],
    ]
    assert [each.stages[0].stage for each in found] == ["rerank", "guard", "stage_40"]
    assert [each.open[0].stage for each in found] == ["stage_41"] * 3


@pytest.mark.parametrize(
    ("rank", "module", "wanted"),
    [(0, 0, None), (16, 8, (16, "qkv_proj")), (8, 0, (8, None)), (0, 99, (None, "other"))],
)
def test_the_adapter_is_told_as_far_as_it_is_known(clock, rank, module, wanted):
    request = KernelRequest(1, at_ns=START)
    request.row["lora_rank"], request.row["lora_module"] = rank, module
    (found,) = shown(clock, request)
    assert (found.lora and (found.lora.rank, found.lora.module)) == wanted


def test_of_an_embedding_everything_is_told_but_where_it_lies(clock):
    request = KernelRequest(1, at_ns=START)
    for name, value in (("dims", 1024), ("dtype", 2), ("stage", 8), ("address", ADDRESS)):
        request.row[f"embedding_{name}"] = value
    found = shown(clock, request, KernelRequest(2, at_ns=START + 1))
    assert [each.embedding and msgspec.structs.astuple(each.embedding) for each in found] == [
        (1024, "bf16", "vision_encode"),
        None,
    ]
    assert str(ADDRESS) not in msgspec.json.encode(found).decode()
