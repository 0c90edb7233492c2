# SPDX-License-Identifier: Apache-2.0
"""Two looks at an agent become one document: units, nulls, losses of the interval alone."""

from __future__ import annotations

import dataclasses

import jsonschema
import msgspec
import pytest
from support.answers import answering
from support.top_agent import GIB, TopAgent

from hotstage.api.schemas import schema_of
from hotstage.api.top_types import Top
from hotstage.cli.client import AgentClient
from hotstage.cli.top.look import Look, top_of
from hotstage.errors import PeerError


@pytest.fixture
def agent():
    return TopAgent()


@pytest.fixture
def look(agent):
    with answering(agent.answer) as address:
        yield lambda: Look.at(AgentClient(url=address))


def test_the_document_is_what_its_schema_promises(look):
    found = msgspec.to_builtins(top_of(look(), look()))
    jsonschema.Draft202012Validator(schema_of(Top)).validate(found)
    assert found["host"]["host"] == "gpu-7"


def test_losses_are_those_of_the_interval_with_what_they_falsify(agent, look):
    agent.losses = {"lost_threads": 4, "lost_requests": 1}
    before = look()
    agent.losses = {"lost_threads": 11, "lost_requests": 1, "lost_new_kind": 2}
    found = top_of(before, look()).losses
    assert [(each.name, each.count) for each in found] == [("lost_threads", 7), ("lost_new_kind", 2)]
    assert "hangs of it are not seen" in found[0].falsifies
    assert found[1].falsifies == "unknown"


def test_one_look_alone_knows_neither_losses_nor_cpu(look):
    found = top_of(None, look())
    assert (found.losses, found.interval_seconds, found.host.agent_cpu_ratio) == (None, None, None)


def test_an_agent_that_began_anew_is_another_one(agent, look):
    before = look()
    agent.epoch_ns = 6
    assert top_of(before, look()).losses is None


def test_cpu_of_the_agent_is_of_the_interval(look):
    before, now = look(), look()
    now = dataclasses.replace(now, at_seconds=before.at_seconds + 2.0)
    assert top_of(before, now).host.agent_cpu_ratio == pytest.approx(0.025)


def test_processes_join_counters_memory_and_governor(look):
    first, second = top_of(None, look()).processes
    assert (first.pid, first.name, first.probe_level, first.probe_cost_ratio) == (
        100,
        "server-100",
        "counts_only",
        0.031,
    )
    assert (first.gpu_memory_bytes, first.gpu_memory_is_complete) == (2 * GIB, True)
    # Page-locked memory is the host's.
    assert (second.gpu_memory_bytes, second.gpu_memory_is_complete) == (GIB, False)
    assert (second.requests_in_flight, second.longest_call_seconds, second.copy_wait_threads) == (
        3,
        9.0,
        None,
    )


def test_a_call_in_flight_is_told_by_its_age_beside_the_mean_of_those_that_returned(agent, look):
    agent.is_stuck = True
    first, second = top_of(None, look()).processes
    assert (first.sync_wait_threads, first.sync_open_seconds) == (0.25, None)
    assert (second.sync_wait_threads, second.sync_open_seconds, second.copy_open_seconds) == (0.0, 61.2, None)


def test_before_the_first_frame_all_is_unknown_and_nothing_zero(agent, look):
    agent.has_frame = False
    found = top_of(look(), look())
    assert (found.at, found.host.calls_per_second, found.stages) == (None, None, [])
    assert [each.calls_per_second for each in found.processes] == [None, None]


def test_what_probes_told_is_unknown_once_they_are_off(agent, look):
    agent.off = "by root: noise"
    found = top_of(look(), look())
    host, first = found.host, found.processes[0]
    assert (host.launches_per_second, host.requests_in_flight, first.launches_per_second) == (None,) * 3
    assert (first.sync_wait_threads, first.requests_in_flight, first.probe_cost_ratio) == (None,) * 3
    assert (first.gpu_memory_bytes, first.probe_level, first.state) == (None, None, "off")


def test_requests_that_nobody_hears_of_are_unknown_and_not_none(agent, look):
    agent.stale = ["requests"]
    found = top_of(look(), look())
    assert (found.host.requests_in_flight, found.processes[0].requests_in_flight) == (None, None)
    assert found.host.launches_per_second == 1500.0
    assert [each.sync_open_seconds for each in found.processes] == [None, None]


def test_stages_come_in_the_order_of_a_requests_way(look):
    assert [each.stage for each in top_of(None, look()).stages] == ["vision_encode", "llm_prefill"]


def test_a_stage_names_the_open_windows_that_name_it(agent, look):
    agent.kinds = ("shared_stream", "gpu_xid")
    agent.places = {"shared_stream": {"stage": "vision_encode", "modality": "image", "instance": "i-0"}}
    assert [each.windows_open for each in top_of(None, look()).stages] == [["shared_stream"], []]


def test_an_answer_of_another_kind_is_refused_with_a_remedy():
    with (
        answering(lambda path: {"frames": [], "windows": []}) as address,
        pytest.raises(PeerError) as refused,
    ):
        Look.at(AgentClient(url=address))
    assert "of one version" in (refused.value.remedy or "")
