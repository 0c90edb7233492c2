# SPDX-License-Identifier: Apache-2.0
"""Engines in the frame: columns of their instances, and of nothing else."""

from __future__ import annotations

import math

import pytest
from support.pulses import I0, I1, SECOND, process, pulse, request

from hotstage.config.settings import FrameConfig
from hotstage.engines.quantiles import Basis, Phase
from hotstage.engines.samples import EngineSample, ModelSample
from hotstage.engines.table import PHASES, Runtime
from hotstage.frame.columns import COLUMN_INDEX, ENGINE_COLUMNS
from hotstage.frame.entity import Entity, EntityKind
from hotstage.frame.fuse import Fuser
from hotstage.host.samples import HostSample, ProcessLoad

NOW = 1000 * SECOND
I_0, I_1, ENGINE = (Entity(EntityKind.instance, instance=name) for name in ("i-0", "i-1", "vllm-0"))
TOTAL = ModelSample(
    "", queue=3.0, running=12.0, kv_use_ratio=0.6, request_rate=4.0, output_token_rate=200.0,
    phases={name: Phase(0.1, 0.4, 0.2, 50.0, Basis.histogram) for name in PHASES},
)  # fmt: skip


def engine(instance="vllm-0", *, at_ns=NOW - SECOND, total=TOTAL):
    return EngineSample(instance, instance, Runtime.vllm, at_ns, 6 * SECOND, "", 0, (), total)


def busy():
    waiting = [request(1, NOW, instance=I0), request(2, NOW, instance=I1)]
    return pulse(NOW, requests_open=waiting, processes=[process(100, instance=I0), process(101, instance=I1)])


def fused(*engines, pulses=(), host=None):
    return Fuser(FrameConfig()).fuse(NOW, pulses or [pulse(NOW)], host=host, engines=engines)


def test_what_an_engine_says_is_in_the_columns_of_its_instance():
    frame = fused(engine())
    told = {
        "engine_queue": 3.0, "engine_running": 12.0, "engine_kv_use_ratio": 0.6, "engine_request_rate": 4.0,
        "engine_output_token_rate": 200.0, "engine_ttft_p95_seconds": 0.4, "engine_itl_p50_seconds": 0.1,
        "engine_queue_p95_seconds": 0.4, "engine_decode_p95_seconds": 0.4, "engine_sample_age_seconds": 1.0,
    }  # fmt: skip
    assert {name: frame.get(ENGINE, name) for name in told} == told
    assert math.isnan(frame.get(ENGINE, "engine_prompt_token_rate")), "it did not say"


def test_every_column_of_engines_is_filled_when_all_is_told():
    names = {
        field: 1.0
        for field in ModelSample.__slots__
        if field not in ("model", "waiting", "requests", "phases")
    }
    frame = fused(engine(total=ModelSample("", **names, phases=TOTAL.phases)))
    assert [each.name for each in ENGINE_COLUMNS if math.isnan(frame.get(ENGINE, each.name))] == []


def test_an_engine_that_is_too_old_leaves_its_age_and_nothing_else():
    frame = fused(engine(at_ns=NOW - 7 * SECOND))
    known = {each.name for each in ENGINE_COLUMNS if not math.isnan(frame.get(ENGINE, each.name))}
    assert known == {"engine_sample_age_seconds"}


def test_a_silent_engine_makes_no_frame_stale():
    assert fused(engine(at_ns=NOW - 60 * SECOND)).stale == fused().stale


def test_an_engine_that_was_never_heard_is_not_in_the_frame():
    assert ENGINE not in fused(engine(at_ns=None))


def test_an_engine_joins_the_instance_that_the_marks_call_the_same():
    frame = fused(engine("i-0"), pulses=[busy()])
    assert (frame.get(I_0, "engine_queue"), frame.get(I_0, "inflight")) == (3.0, 1.0)
    assert math.isnan(frame.get(I_1, "engine_queue"))


def test_an_engine_without_processes_does_not_spoil_the_deviation_of_the_others():
    loads = {pid: ProcessLoad(pid, 1.0, 2**30, 0.25, 0.25) for pid in (100, 101)}
    host = HostSample(NOW, 8, 0.5, 2**33, 0.25, loads)
    frame = fused(engine(), pulses=[busy()], host=host)
    assert frame.get(I_0, "dispatch_deviation") == pytest.approx(0.0)


def test_the_columns_are_in_the_table():
    assert {each.name for each in ENGINE_COLUMNS} <= set(COLUMN_INDEX)
    assert {each.source for each in ENGINE_COLUMNS} == {"engines"}
