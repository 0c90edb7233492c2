# SPDX-License-Identifier: Apache-2.0
"""What a request's stage waited for, where it ran, and what else is told of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from tests.bpf.conftest import Probes
from tests.bpf.request_server import Server
from tests.bpf.test_in_flight import in_call

from hotstage.probes.maps.layout import UNKNOWN_US

ENCODE, ALIGN, LORA = 8 | 1 << 8, 11 | 1 << 8, 7
WAIT = 64
CONTEXT = 0xC0DE0000
StartServer = Callable[[Probes], Server]


def waits(row: object, stage: int) -> list[int]:
    return [int(row["stages"][stage][f"{name}_us"]) for name in ("run_queue", "sync", "copy", "alloc")]  # type: ignore[index]


def test_the_time_in_a_wait_belongs_to_the_stage_that_made_it(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    server.do("begin", 1)
    server.do("stage_begin", 1, ENCODE, 0)
    server.say("block")
    began = time.monotonic_ns()
    in_call(probes, server.pid, WAIT)
    time.sleep(0.05)
    server.unblock()
    took_us = (time.monotonic_ns() - began) / 1e3
    server.do("stage_end", 1, ENCODE, 0)
    server.do("stage_begin", 1, ALIGN, 0)
    server.do("stage_end", 1, ALIGN, 0)
    row = server.requests()[1]
    assert 45_000 < waits(row, 8)[1] <= took_us + 1_000
    assert waits(row, 8)[2:] == [0, 0]
    assert waits(row, 11)[1:] == [0, 0, 0]
    server.do("end", 1, 0, 0)


def test_a_span_that_no_thread_worked_for_says_nothing_of_waits(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    server.do("begin", 1)
    server.do("span_begin", 1, ENCODE, 0)
    server.do("span_end", 1, ENCODE, 0)
    assert waits(server.requests()[1], 8) == [UNKNOWN_US] * 4
    server.do("end", 1, 0, 0)


def test_waiting_for_a_cpu_is_seen_where_the_kernel_tells(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(server.pid, {cpu})
    spin = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(1, flush=True)\nwhile 1: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as hog:
        assert hog.stdout
        assert hog.stdout.readline()
        server.do("begin", 1)
        server.do("stage_begin", 1, ENCODE, 0)
        server.do("spin", 200)
        server.do("stage_end", 1, ENCODE, 0)
        hog.kill()
    queued_us = waits(server.requests()[1], 8)[0]
    if probes.loader.name == "bcc":  # it reads no structure of the kernel
        assert queued_us == UNKNOWN_US
    else:
        assert 20_000 < queued_us < 5_000_000
    server.do("end", 1, 0, 0)


def test_each_context_says_which_stages_it_served(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    server.do("begin", 1)
    for device, stage in ((0, ENCODE), (1, ALIGN), (0, 12)):
        server.do("retain", device)
        server.do("context", CONTEXT + device)
        server.do("stage_begin", 1, stage, 0)
        server.do("launch", 2)
        server.do("stage_end", 1, stage, 0)
    bound = server.requests()[1]["contexts"]  # type: ignore[index]
    assert bound["context"].tolist() == [CONTEXT, CONTEXT + 1, 0, 0]
    assert bound["device"].tolist()[:2] == [0, 1]
    assert bound["stage_mask"].tolist() == [1 << 8 | 1 << 12, 1 << 11, 0, 0]
    server.do("end", 1, 0, 0)


def test_a_fifth_context_is_counted(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    before = probes.losses().get("lost_request_contexts", 0)
    server.do("begin", 1)
    for device in range(5):
        server.do("context", CONTEXT + 100 + device)
        server.do("stage_begin", 1, ENCODE, 0)
        server.do("launch", 1)
        server.do("stage_end", 1, ENCODE, 0)
    assert probes.losses()["lost_request_contexts"] - before == 1
    server.do("end", 1, 0, 0)


def test_the_first_mark_of_a_modality_stays(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    server.do("begin", 1)
    before = time.monotonic_ns()
    server.do("span_begin", 1, ENCODE, 0)
    between = time.monotonic_ns()
    server.do("span_end", 1, ENCODE, 0)
    server.do("span_begin", 1, ALIGN, 0)
    row = server.requests()[1]
    first, last = (int(row[name][1]) for name in ("modality_first_words", "modality_words"))  # type: ignore[index]
    assert (first >> 56, last >> 56) == (8, 11)
    assert before - 256 < (first & (1 << 48) - 1) << 8 < between
    server.do("end", 1, 0, 0)


def test_an_adapter_and_an_embedding_are_told_with_the_request(probes: Probes, start: StartServer) -> None:
    server = start(probes)
    server.do("begin", 1)
    server.do("span_begin", 1, LORA | 16 << 16 | 8 << 32, 0)
    server.do("embedding", 1, 8, 1024 | 2 << 32)
    row = server.requests()[1]
    assert (row["lora_rank"], row["lora_module"]) == (16, 8)  # type: ignore[index]
    told = [int(row[f"embedding_{name}"]) for name in ("dims", "dtype", "stage")]  # type: ignore[index]
    assert told == [1024, 2, 8]
    assert row["embedding_address"]  # type: ignore[index]
    server.do("end", 1, 0, 0)


@pytest.mark.parametrize("tokens", [2**64 - 1, 2**63, 2**32])
def test_tokens_that_cannot_be_are_none_and_counted(probes: Probes, start: StartServer, tokens: int) -> None:
    server = start(probes)
    before = probes.losses().get("refused_tokens", 0)
    server.do("begin", 1)
    server.do("span_begin", 1, 12, tokens)
    server.do("span_end", 1, 12, tokens)
    server.do("tokens", 1, 13, tokens)
    row = server.requests()[1]
    assert (row["stages"][12]["tokens"], row["output_tokens"]) == (0, 0)  # type: ignore[index]
    assert probes.losses()["refused_tokens"] - before == 3
    server.do("end", 1, 0, 0)
