# SPDX-License-Identifier: Apache-2.0
"""The tables against the names that the engines document: facts of their sources, in `documented/`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotstage.engines import vllm
from hotstage.engines.sglang import SGLANG
from hotstage.engines.table import COUNTERS, GAUGES, OUTCOMES, PHASES
from hotstage.engines.target import TABLES
from hotstage.engines.triton import TRITON
from hotstage.engines.vllm import VLLM
from hotstage.simhost.engine_model import EngineModel
from hotstage.simhost.engine_page import Dialect, page

DOCUMENTED = Path(__file__).parent / "documented"


def documented(*files):
    lines = [line for name in files for line in (DOCUMENTED / f"{name}.txt").read_text().splitlines()]
    return {line.removesuffix("_total") for line in lines if line and not line.startswith("#")}


NOW = {"vllm": documented("vllm"), "sglang": documented("sglang"), "triton": documented("triton")}
EVER = {
    "vllm": NOW["vllm"] | documented("vllm-former"),
    "sglang": NOW["sglang"] | documented("sglang-former"),
    "triton": NOW["triton"] | NOW["vllm"] | documented("vllm-former"),
}


def entries(table):
    return [*table.gauges, *table.counters, *table.waiting, *table.requests, *table.timings]


def spelled(table, name):
    """As documented: with the engine's own prefix, `vllm:` and not `vllm_`."""
    return f"{table.prefixes[0]}{name}".replace("vllm_", "vllm:")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.runtime.value)
def test_every_name_that_is_read_is_or_was_one_of_the_engines(table):
    read = {spelled(table, name) for entry in entries(table) for name in entry.names}
    assert read - EVER[table.runtime.value] == set()


@pytest.mark.parametrize("table", [VLLM, SGLANG], ids=lambda table: table.runtime.value)
def test_of_several_names_the_one_of_today_comes_first(table):
    former = EVER[table.runtime.value] - NOW[table.runtime.value]
    for entry in entries(table):
        names = [spelled(table, name) for name in entry.names]
        assert [name in former for name in names] == sorted(name in former for name in names), names


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.runtime.value)
def test_a_table_speaks_of_known_things_only(table):
    assert {each.says for each in table.gauges} <= set(GAUGES)
    assert {each.says for each in table.counters} <= set(COUNTERS)
    assert {each.phase for each in table.timings} <= set(PHASES)
    for split in table.requests:
        assert {*split.keys.values(), split.key, split.otherwise} - {"", None} <= set(OUTCOMES)


def test_vllm_and_sglang_tell_every_phase_and_triton_what_it_has():
    for table in (VLLM, SGLANG):
        assert {each.phase for each in table.timings} == set(PHASES)
    own = [each for each in TRITON.timings if each.names[0].startswith("nv_")]
    assert {each.phase for each in own} == {"ttft", "e2e", "queue"}


def test_both_spellings_of_the_prefix_are_read():
    for ending in (b"num_requests_waiting", b"prompt_tokens_total", b"time_to_first_token_seconds_bucket"):
        assert {b"vllm:" + ending, b"vllm_" + ending} <= VLLM.wanted
        assert {b"vllm:" + ending, b"vllm_" + ending} <= TRITON.wanted


def test_every_finish_reason_of_vllm_has_an_outcome():
    assert set(vllm.FINISHED) == {"stop", "length", "abort", "error", "repetition"}


@pytest.mark.parametrize("dialect", Dialect)
def test_the_fake_engine_uses_documented_names_only(dialect):
    engine = EngineModel(seed=1)
    engine.advance(5.0)
    text = page(engine, dialect).replace("vllm_", "vllm:")
    names = {name.removesuffix("_total") for name in re.findall(r"(?m)^# TYPE (\S+)", text)}
    assert names - EVER[dialect.value.split("-")[0]] == set()
