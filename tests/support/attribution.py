# SPDX-License-Identifier: Apache-2.0
"""A judged process as several tests want it: marked, ruled, learned and unknown threads."""

from __future__ import annotations

from hotstage.attribution.facts import ProcessFacts
from hotstage.attribution.fingerprints import FunctionCounts, Verdict, verdict_of
from hotstage.attribution.rules import RuleSet
from hotstage.attribution.state import ProcessState, ThreadFacts
from hotstage.attribution.steps import StepShape
from hotstage.config.stages import StageRule, StagesConfig
from hotstage.probes.discovery.processes import ProcessId
from hotstage.probes.launch_sources import LaunchSources
from hotstage.probes.maps.layout import NO_STAGE, Source
from hotstage.stages.stage import Modality, Stage

FACTS = ProcessFacts(ProcessId(77, 1), command="python server.py", program="python# server.py")
RULES = RuleSet(
    StagesConfig(
        rules=[
            StageRule(stage="vision_encode", modality="image", thread="vit*"),
            StageRule(stage="other", command="*server.py"),
        ],
        shipped_rules=False,
    )
)
NO_SHAPE = StepShape(0, 0, 0, 0.0)


def anchor(name: str, stage: Stage, launches: int) -> Verdict:
    found = verdict_of(FunctionCounts(name, {(int(stage), int(Modality.text)): launches}))
    assert found is not None
    return found


def thread(tid: int, name: str, source: Source, stage: int = NO_STAGE, **changed: object) -> ThreadFacts:
    values: dict[str, object] = {
        "modality": int(Modality.text),
        "since_ns": 5_000_000_000 if source in (Source.MARK, Source.NVTX) else None,
        "launches": LaunchSources(none=tid),
        "rules": tuple(RULES.matching(FACTS, name)) if name.startswith("vit") else (),
        "shape": NO_SHAPE,
        "by_step": False,
        "stream_rules": 0,
        **changed,
    }
    return ThreadFacts(tid, name, source, stage, **values)  # type: ignore[arg-type]


def process(*threads: ThreadFacts, **changed: object) -> ProcessState:
    launches = sum((each.launches for each in threads), LaunchSources())
    values: dict[str, object] = {"is_marked": False, "by_function": False, **changed}
    return ProcessState(FACTS, 9_000_000_000, threads, launches, **values)  # type: ignore[arg-type]
