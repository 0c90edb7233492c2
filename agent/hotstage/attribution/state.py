# SPDX-License-Identifier: Apache-2.0
"""What is known of the processes at one moment, and why: a judgement's result for those who ask. Values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotstage.attribution.facts import ProcessFacts
from hotstage.attribution.fingerprints import Verdict
from hotstage.attribution.phases import NO_BURSTS, PhaseShape
from hotstage.attribution.rules import Rule
from hotstage.attribution.steps import StepShape
from hotstage.probes.launch_sources import LaunchSources
from hotstage.probes.maps.layout import Source


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """One thread. `stage` is NO_STAGE where it counts as none; `since_ns` of a mark (CLOCK_MONOTONIC)."""

    tid: int
    name: str
    source: Source
    stage: int
    modality: int
    since_ns: int | None
    launches: LaunchSources
    rules: tuple[Rule, ...]
    """All that fit it, the one that wins first; they count where it has no mark."""
    shape: StepShape
    by_step: bool
    stream_rules: int
    """Entries for streams of its process that go before its own rule."""
    work: PhaseShape = NO_BURSTS
    by_work: bool = False


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process. `launches` holds those of threads that ended, too."""

    facts: ProcessFacts
    at_ns: int
    threads: tuple[ThreadFacts, ...]
    launches: LaunchSources
    is_marked: bool
    """It has launched under marks or ranges within the last minute."""
    by_function: bool
    anchors: tuple[Verdict, ...] = ()
    """Learned functions that it has looked up and that tell a stage, most launched first."""
    functions_known: int | None = None
    """Functions of it whose name is known; None where nobody had to know."""
    program_launches: int = 0
    """Launches that its program was learned from, in all its lives."""
    lost_entries: int = 0
    engine_agrees: bool = False
    names: Mapping[int, str] = field(default_factory=dict)
    """Its own stages by id."""
