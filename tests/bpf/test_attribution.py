# SPDX-License-Identifier: Apache-2.0
"""Rules and learned functions from judgement to kernel and back: real processes under real probes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from tests.bpf.conftest import Probes, Workload

from hotstage.attribution.explain import explain
from hotstage.attribution.facts import FactsBook
from hotstage.attribution.fingerprints import FingerprintBook
from hotstage.attribution.judge import Judge
from hotstage.attribution.rules import RuleSet
from hotstage.clock import SystemClock
from hotstage.config.stages import StageRule, StagesConfig
from hotstage.probes.discovery.processes import ProcessTable
from hotstage.probes.launch_sources import LaunchSources, SourcesBook
from hotstage.probes.maps.bursts import BurstMaps
from hotstage.probes.maps.inference import Function, FunctionDecision, RuleEntry, Stream
from hotstage.probes.maps.layout import NO_STAGE

LAUNCH, GRAPH = 1, 4
VISION, PREFILL, DECODE = 8, 12, 13
SECOND = 1_000_000_000


@dataclass
class OwnRows:
    """The engine's part, for the processes of one test: other tests' processes are in the same maps."""

    probes: Probes
    pids: set[int]

    def threads(self) -> np.ndarray:
        rows = self.probes.maps.threads()
        return rows[np.isin(rows["tgid"], list(self.pids))]

    def thread_ids(self) -> list[int]:
        return self.threads()["tid"].tolist()

    def launches_by_source(self) -> Mapping[int, LaunchSources]:
        return SourcesBook().sum(self.threads())

    def streams(self) -> list[Stream]:
        return self.probes.maps.inference.streams()

    def functions(self) -> list[Function]:
        return self.probes.maps.inference.functions()

    def function_counts(self) -> list[tuple[int, int, int, int, int]]:
        return [row for row in self.probes.maps.inference.counts() if row[0] in self.pids]

    def set_stage_rules(self, pid: int, entries: Collection[RuleEntry]) -> int:
        return self.probes.maps.inference.set_rules(pid, entries)

    def decide_functions(self, pid: int, decisions: Mapping[int, FunctionDecision]) -> int:
        return self.probes.maps.inference.decide(pid, decisions)

    def learn_functions(self, is_learning: bool) -> None:
        self.probes.maps.learn(is_learning)

    @property
    def bursts(self) -> BurstMaps:
        return self.probes.maps.bursts


class Court:
    """A judge over the processes that it is told of; each judgement is a second later."""

    def __init__(self, probes: Probes, config: StagesConfig, book: FingerprintBook | None = None) -> None:
        self.rows = OwnRows(probes, set())
        self.book = book or FingerprintBook(8)
        rules = RuleSet(config)
        facts = FactsBook(ProcessTable(), with_libraries=rules.uses_libraries)
        self.judge = Judge(config, self.rows, facts, rules, self.book)
        self.now_ns = 100 * SECOND

    def judges(self, *workloads: Workload) -> None:
        self.rows.pids |= {each.pid for each in workloads}
        self.now_ns += SECOND
        self.judge.advance(self.now_ns)

    def explained(self, workload: Workload) -> dict:
        return explain(self.judge.states[workload.pid], SystemClock(), {})


@pytest.fixture
def stop_learning(probes: Probes):
    yield
    probes.maps.learn(False)


def test_a_rule_by_thread_name_counts_until_the_process_marks(probes: Probes, workload: Workload) -> None:
    rules = [
        StageRule(stage="sample", thread="nobody"),
        StageRule(stage="llm_decode", modality="text", thread="work*"),
        StageRule(stage="llm_prefill", library="libtarget_cuda*"),
    ]
    court = Court(probes, StagesConfig(rules=rules, fingerprints=False))
    workload.launch(7)
    court.judges(workload)
    workload.launch(53)
    workload.do("stage_begin", "-", VISION, 0, 0)
    workload.launch(11)
    workload.do("stage_end", "-", VISION, 0, 0)
    court.judges(workload)
    assert [probes.count(workload.pid, LAUNCH, stage=each) for each in (NO_STAGE, DECODE, VISION)] == [
        7,
        53,
        11,
    ]
    (thread,) = court.explained(workload)["threads"]
    assert thread["launches"] == {"mark": 11, "nvtx": 0, "rule": 53, "fingerprint": 0, "none": 7, "total": 71}
    workload.launch(1)
    court.judges(workload)
    (thread,) = court.explained(workload)["threads"]
    assert (thread["stage"], thread["source"], thread["confidence"]) == ("llm_decode", "rule", 0.8)
    assert thread["why"] == 'rule 2: thread = "work*"'
    assert [each["text"] for each in thread["alternatives"]] == ['rule 3: library = "libtarget_cuda*"']


def test_threads_that_appear_are_judged_at_once(probes: Probes, workload: Workload) -> None:
    court = Court(probes, StagesConfig(shipped_rules=False))
    workload.launch(1)
    court.judges(workload)
    assert not court.judge.sees_new_threads()
    workload.do("threads", "-", 2, 1, 0)
    assert court.judge.sees_new_threads()
    court.judges(workload)
    assert not court.judge.sees_new_threads()


def test_a_stream_rule_wins_over_a_later_rule_of_its_thread(probes: Probes, workload: Workload) -> None:
    rules = [
        StageRule(stage="kv_transfer", stream="priority:-5"),
        StageRule(stage="other", stream="default"),
        StageRule(stage="llm_decode", thread="workload"),
    ]
    court = Court(probes, StagesConfig(rules=rules, fingerprints=False))
    workload.do("stream", "-", 0, 5)
    court.judges(workload)
    workload.launch(3, 0x5700 + 11)
    workload.launch(5)
    workload.launch(7, 0xABC)
    assert [probes.count(workload.pid, LAUNCH, stage=each) for each in (14, 17, DECODE)] == [3, 5, 7]


def test_what_marks_teach_counts_for_the_same_program_without_marks(
    probes: Probes, start_workload: Callable[[], Workload], stop_learning: None
) -> None:
    court = Court(probes, StagesConfig(shipped_rules=False))
    teacher = start_workload()
    serve(teacher, is_marked=True, times=2)
    court.judges(teacher)  # marks are seen: learning begins
    assert court.judge._learner.is_learning
    serve(teacher, is_marked=True, times=60)
    court.judges(teacher)
    pupil = start_workload()
    for name in ("prefill_attention", "decode_attention", "gemm"):
        pupil.do("named", name, 0, 0, 0)
    pupil.launch(4)
    court.judges(teacher, pupil)
    assert court.explained(pupil)["fingerprint"]["applied"]
    assert not court.explained(teacher)["fingerprint"]["applied"], "who marks is not guessed at"
    serve(pupil, is_marked=False, times=10)
    court.judges(teacher, pupil)
    # What both phases launch counts as the phase before, until an anchor comes; at first as none.
    assert probes.count(pupil.pid, LAUNCH, stage=PREFILL) == 10 * 3
    assert probes.count(pupil.pid, LAUNCH, stage=DECODE) == 10 * 4 + 9 * 2
    assert probes.count(pupil.pid, LAUNCH, stage=NO_STAGE) == 4 + 2
    assert probes.count(pupil.pid, GRAPH, stage=DECODE) == 10
    document = court.explained(pupil)
    (thread,) = document["threads"]
    assert (thread["stage"], thread["source"]) == ("llm_decode", "fingerprint")
    assert thread["confidence"] > 0.9
    assert {each["function"] for each in document["fingerprint"]["anchors"]} == {
        "prefill_attention",
        "decode_attention",
        "(graphs)",
    }


def serve(workload: Workload, *, is_marked: bool, times: int) -> None:
    """A request: two kernels of both phases and three of prefill, then a graph and four of decode."""
    for _ in range(times):
        for stage, names in (
            (PREFILL, [("gemm", 2), ("prefill_attention", 3)]),
            (DECODE, [("graph", 1), ("decode_attention", 3), ("gemm", 1)]),
        ):
            if is_marked:
                workload.do("stage_begin", "-", stage, 0, 0)
            for name, count in names:
                if name == "graph":
                    workload.call("graph", count, 0)
                else:
                    workload.do("named", name, count, 0, 0)
            if is_marked:
                workload.do("stage_end", "-", stage, 0, 0)
        workload.call("wait", 1)


def test_graph_steps_are_decode_and_say_so(probes: Probes, workload: Workload) -> None:
    court = Court(probes, StagesConfig(shipped_rules=False))
    workload.launch(1)
    court.judges(workload)
    workload.do("decode", "-", 60, 2)
    court.judges(workload)
    workload.do("decode", "-", 10, 2)
    court.judges(workload)
    assert probes.count(workload.pid, GRAPH, stage=DECODE) == 10
    (thread,) = court.explained(workload)["threads"]
    assert (thread["stage"], thread["confidence"]) == ("llm_decode", 0.6)
    assert "the shape of its steps: 70 of 70" in thread["why"]


def test_work_that_nothing_tells_of_is_explained_with_remedies(probes: Probes, workload: Workload) -> None:
    court = Court(probes, StagesConfig(shipped_rules=False))
    workload.launch(40)
    court.judges(workload)
    document = court.explained(workload)
    assert document["threads"][0]["stage"] is None
    found = document["unattributed"]
    assert (found["launches"], found["ratio"]) == (40, 1.0)
    assert "never learned" in found["reason"]
    assert any("NVTX_INJECTION64_PATH" in remedy for remedy in found["remedies"])
    assert any('thread = "workload"' in each for each in document["threads"][0]["unattributed"]["remedies"])


def test_new_rules_count_from_the_next_judgement_on(probes: Probes, workload: Workload) -> None:
    court = Court(probes, StagesConfig(shipped_rules=False))
    workload.launch(2)
    court.judges(workload)
    changed = StagesConfig(rules=[StageRule(stage="sample", library="libtarget_cuda*")], shipped_rules=False)
    court.judge.take_over(changed, RuleSet(changed))
    court.now_ns += 30 * SECOND  # its libraries had not been read
    court.judges(workload)
    workload.launch(13)
    assert probes.count(workload.pid, LAUNCH, stage=15) == 13
    court.judge.take_over(StagesConfig(shipped_rules=False), RuleSet(StagesConfig(shipped_rules=False)))
    court.judges(workload)
    workload.launch(17)
    assert probes.count(workload.pid, LAUNCH, stage=NO_STAGE) == 2 + 17


def test_eager_generation_is_told_by_its_work_and_explained(probes: Probes, workload: Workload) -> None:
    def serve(requests: int) -> None:
        for nth in range(requests):
            workload.call("copy", 1, 8000 + nth * 800)
            workload.do("burst", "-", 82, 4096 + nth * 512, 8)
            for _ in range(15):
                workload.do("burst", "-", 92, 8, 8)

    court = Court(probes, StagesConfig(shipped_rules=False))
    serve(3)
    court.judges(workload)
    (thread,) = court.explained(workload)["threads"]
    assert thread["stage"] is None
    assert thread["why"].endswith("47 bursts of launches, 64 are the least")
    for _ in range(2):
        serve(3)
        court.judges(workload)
    before = {stage: probes.count(workload.pid, LAUNCH, stage=stage) for stage in (PREFILL, DECODE)}
    assert before == {PREFILL: 0, DECODE: 0}
    serve(4)
    court.judges(workload)
    counted = {stage: probes.count(workload.pid, LAUNCH, stage=stage) for stage in (PREFILL, DECODE)}
    assert counted == {PREFILL: 4 * 50, DECODE: 4 * 15 * 60}
    (thread,) = court.explained(workload)["threads"]
    assert (thread["stage"], thread["source"], thread["confidence"]) == ("llm_decode", "fingerprint", 0.6)
    assert "3.0 doublings of grid blocks a launch and bring back 8 bytes" in thread["why"]
    assert "first launches of each burst" in thread["unattributed"]["reason"]
    assert thread["unattributed"]["remedies"] == []
