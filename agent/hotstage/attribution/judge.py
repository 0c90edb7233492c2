# SPDX-License-Identifier: Apache-2.0
"""Once a second: who runs, what do rules, learned functions and steps say of it, and tell the kernel.

It decides, the kernel applies. Nothing here is done for an event. Marks always win: a process that marks is
learned from, and its unmarked work gets rules only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from hotstage.attribution.facts import FactsBook, ProcessFacts
from hotstage.attribution.fingerprints import FingerprintBook, Verdict
from hotstage.attribution.learning import Applied, Learner
from hotstage.attribution.phase_book import Bursts, PhaseBook
from hotstage.attribution.phases import NO_BURSTS, PhaseShape
from hotstage.attribution.rules import DEFAULT_STREAMS, Rule, RuleSet
from hotstage.attribution.state import ProcessState, ThreadFacts
from hotstage.attribution.steps import StepShape, ThreadSteps
from hotstage.config.stages import StagesConfig
from hotstage.probes.launch_sources import LaunchSources, of_threads
from hotstage.probes.maps.inference import Function, FunctionDecision, RuleEntry, Stream
from hotstage.probes.maps.layout import NO_STAGE, NULL_STREAM, RuleFlag, Source

MARKED_NS = 60_000_000_000
"""So long after its last marked launch a process counts as one that marks."""
THREADS_TOLD_LIMIT = 1024
"""Threads of one process that get an entry of their own."""
STREAMS_LIMIT = 64
_NO_FLAGS = RuleFlag(0)


class Probes(Protocol):
    """What is asked of the probes and told to them; `UnmarkedWork` has it."""

    def threads(self) -> NDArray[np.void]: ...

    def thread_ids(self) -> Iterable[int]: ...

    def launches_by_source(self) -> Mapping[int, LaunchSources]: ...

    def streams(self) -> list[Stream]: ...

    def functions(self) -> list[Function]: ...

    def function_counts(self) -> list[tuple[int, int, int, int, int]]: ...

    def set_stage_rules(self, pid: int, entries: Collection[RuleEntry]) -> int: ...

    def decide_functions(self, pid: int, decisions: Mapping[int, FunctionDecision]) -> int: ...

    def learn_functions(self, is_learning: bool) -> None: ...

    @property
    def bursts(self) -> Bursts: ...


class _Row(NamedTuple):
    """What is looked at of a thread's state, by its names there."""

    tid: int
    source: int
    stage: int
    modality: int
    inferred_stage: int
    inferred_modality: int
    stage_since_ns: int
    steps: int
    graph_steps: int
    burst_steps: int


class Judge:
    """`advance` once a second or less often, from one thread. `states` is replaced as a whole: any thread may
    read it.
    """

    def __init__(
        self, config: StagesConfig, probes: Probes, facts: FactsBook, rules: RuleSet, book: FingerprintBook
    ) -> None:
        self._config = config
        self._probes = probes
        self._facts = facts
        self._rules = rules
        self._learner = Learner(probes, book)
        self._applied = Applied(probes, book)
        self._steps: dict[int, ThreadSteps] = {}
        self._phases = PhaseBook()
        self._tids: frozenset[int] = frozenset()
        self._marked: dict[int, tuple[int, int]] = {}  # pid → (marked launches, when they last grew)
        self._fitting: dict[int, tuple[ProcessFacts, dict[str | None, list[Rule]]]] = {}
        self._next: tuple[StagesConfig, RuleSet] | None = None
        self.states: Mapping[int, ProcessState] = {}

    def take_over(self, config: StagesConfig, rules: RuleSet) -> None:
        """These rules from the next judgement on; any thread may call. What was learned stays."""
        self._next = config, rules

    def advance(self, now_ns: int, *, engine_decodes: bool = False) -> None:
        """One judgement. `engine_decodes`: the one engine that is looked at says that it makes tokens."""
        if self._next is not None:
            (self._config, self._rules), self._next = self._next, None
            self._facts.with_libraries = self._rules.uses_libraries
            self._fitting.clear()
        rows = self._probes.threads()
        rows = rows[rows["tgid"] != 0]
        launches = self._probes.launches_by_source()
        by_pid: dict[int, list[int]] = defaultdict(list)
        for index, pid in enumerate(rows["tgid"].tolist()):
            by_pid[pid].append(index)
        processes = {pid: facts for pid in by_pid if (facts := self._facts.process(pid, now_ns)) is not None}
        marked = {pid for pid in processes if self._is_marked(pid, launches.get(pid), now_ns)}
        named = self._named(processes.values()) if self._config.fingerprints else None
        if self._config.fingerprints:
            self._learner.advance(now_ns, {pid: processes[pid] for pid in marked}, named or {})
        streams = _by_pid(self._probes.streams()) if self._rules.uses_streams else {}
        found = {
            pid: self._judge(
                rows[by_pid[pid]],
                facts,
                launches.get(pid, LaunchSources()),
                None if named is None else named.get(pid, ()),
                streams.get(pid, ()),
                now_ns,
                is_marked=pid in marked,
                engine_decodes=engine_decodes,
            )
            for pid, facts in processes.items()
        }
        self._tids = frozenset(rows["tid"].tolist())
        self._forget(found, self._tids)
        self.states = found

    @property
    def only_tells(self) -> bool:
        """Whether the next judgement can decide nothing: all work is marked, nothing is learned of it, and
        the rules are the same.
        """
        if self._learner.is_learning or self._next is not None or not self.states:
            return False
        return all(state.is_marked for state in self.states.values())

    def sees_new_threads(self) -> bool:
        """Whether threads have appeared since the last judgement: rules should count from their begin on."""
        return not self._tids.issuperset(self._probes.thread_ids())

    def _judge(
        self,
        rows: NDArray[np.void],
        facts: ProcessFacts,
        launches: LaunchSources,
        functions: Sequence[Function] | None,
        streams: Sequence[Stream],
        now_ns: int,
        *,
        is_marked: bool,
        engine_decodes: bool,
    ) -> ProcessState:
        pid = facts.identity.pid
        anchors: tuple[Verdict, ...] = ()
        if self._config.fingerprints and not is_marked:
            anchors = self._applied.advance(facts, functions or ())
        flags = RuleFlag.BY_FUNCTION if anchors else _NO_FLAGS
        default = self._rules_for(facts, None)
        by_stream = dict(self._stream_entries(facts, None, streams))
        threads: list[ThreadFacts] = []
        entries: dict[tuple[int, int], RuleEntry] = {
            (0, stream): _entry(rule, 0, stream) for stream, rule in by_stream.items()
        }
        columns = (rows[name].tolist() for name in _Row._fields)
        for row, counted in zip(map(_Row, *columns), of_threads(rows), strict=True):
            tid = row.tid
            name = self._facts.thread(pid, tid)
            fitting = self._rules_for(facts, name)
            shape, by_step = self._shape(row, now_ns)
            is_untold = not is_marked and not anchors and not fitting
            by_step &= is_untold
            work, by_work = self._work(pid, row, is_wanted=is_untold and not by_step)
            threads.append(
                _thread(
                    row,
                    name,
                    counted,
                    rules=tuple(fitting),
                    shape=shape,
                    by_step=by_step,
                    stream_rules=len(by_stream),
                    work=work,
                    by_work=by_work,
                )
            )
            if len(threads) > THREADS_TOLD_LIMIT:
                continue
            of_thread = dict(self._stream_entries(facts, name, streams))
            for stream, rule in of_thread.items():
                if by_stream.get(stream) is not rule:
                    entries[tid, stream] = _entry(rule, tid, stream)
            if by_step or by_work or (fitting and (not default or fitting[0] is not default[0])):
                step = RuleFlag.BY_STEP if by_step else RuleFlag.BY_WORK if by_work else _NO_FLAGS
                entries[tid, 0] = _entry(fitting[0] if fitting else None, tid, 0, flags | step)
        if default or flags:
            entries[0, 0] = _entry(default[0] if default else None, 0, 0, flags)
        lost = self._probes.set_stage_rules(pid, _with_streams(entries))
        return ProcessState(
            facts,
            now_ns,
            tuple(threads),
            launches,
            is_marked,
            bool(anchors),
            anchors,
            None if functions is None else len(functions),
            self._learner.learned_of(facts),
            lost,
            engine_decodes,
        )

    def _stream_entries(
        self, facts: ProcessFacts, thread: str | None, streams: Sequence[Stream]
    ) -> Iterator[tuple[int, Rule]]:
        """(stream as the kernel keys it, rule) where the stream changes which rule wins."""
        if not self._rules.uses_streams:
            return
        base = self._rules_for(facts, thread)
        for handle in sorted(DEFAULT_STREAMS):
            fitting = self._rules.matching(facts, thread, handle)
            if fitting and (not base or fitting[0] is not base[0] or thread is not None):
                yield handle or NULL_STREAM, fitting[0]
        for nth, stream in enumerate(streams[:STREAMS_LIMIT]):
            fitting = self._rules.matching(facts, thread, stream, nth)
            if fitting and (not base or fitting[0] is not base[0] or thread is not None):
                yield stream.handle, fitting[0]

    def _shape(self, row: _Row, now_ns: int) -> tuple[StepShape, bool]:
        steps = self._steps.get(row.tid)
        if steps is None:
            steps = self._steps[row.tid] = ThreadSteps()
        shape = steps.advance(now_ns, row.steps, row.graph_steps, row.burst_steps)
        return shape, self._config.steps and steps.is_decided

    def _work(self, pid: int, row: _Row, *, is_wanted: bool) -> tuple[PhaseShape, bool]:
        """What its bursts say, and whether that counts: the kernel knows the limits then."""
        if not self._config.steps:
            return NO_BURSTS, False
        work = self._phases.look(self._probes.bursts, pid, row.tid, row.steps)
        limits = work.limits if is_wanted else None
        return work, self._probes.bursts.set_limits(pid, row.tid, limits) and limits is not None

    def _is_marked(self, pid: int, launches: LaunchSources | None, now_ns: int) -> bool:
        total = 0 if launches is None else launches.marked
        before, since_ns = self._marked.get(pid, (0, 0))
        if total != before:
            self._marked[pid] = (total, now_ns)
            return total > 0
        return total > 0 and now_ns - since_ns < MARKED_NS

    def _rules_for(self, facts: ProcessFacts, thread: str | None) -> list[Rule]:
        """Rules that fit whatever the stream; worked out anew when the process was looked at again."""
        pid = facts.identity.pid
        of, known = self._fitting.get(pid, (None, {}))
        if of is not facts:
            known = {}
            self._fitting[pid] = (facts, known)
        if thread not in known:
            known[thread] = self._rules.matching(facts, thread)
        return known[thread]

    def _named(self, processes: Iterable[ProcessFacts]) -> dict[int, list[Function]] | None:
        """Functions by pid; None where nobody learns and nothing was learned: there may be thousands."""
        if not self._learner.is_learning and not any(map(self._learner.learned_of, processes)):
            return None
        found: dict[int, list[Function]] = defaultdict(list)
        for function in self._probes.functions():
            found[function.pid].append(function)
        return found

    def _forget(self, found: Mapping[int, ProcessState], tids: frozenset[int]) -> None:
        self._facts.keep(found)
        self._applied.keep(found)
        for book in (self._marked, self._fitting):
            for pid in book.keys() - found.keys():
                del book[pid]
        for tid in self._steps.keys() - tids:
            del self._steps[tid]
        self._phases.forget(tids)


def _by_pid(streams: list[Stream]) -> dict[int, list[Stream]]:
    found: dict[int, list[Stream]] = defaultdict(list)
    for stream in streams:
        found[stream.pid].append(stream)
    return found


def _entry(rule: Rule | None, tid: int, stream: int, flags: RuleFlag = _NO_FLAGS) -> RuleEntry:
    if rule is None:
        return RuleEntry(tid, stream, flags=flags)
    return RuleEntry(tid, stream, rule.stage, rule.modality, flags)


def _with_streams(entries: Mapping[tuple[int, int], RuleEntry]) -> list[RuleEntry]:
    """Where some entry is for a stream, those for all streams say so; one is made where there is none."""
    if not any(stream for _, stream in entries):
        return list(entries.values())
    whole = {(0, 0): RuleEntry(), **entries}
    return [
        entry if stream else RuleEntry(tid, 0, entry.stage, entry.modality, entry.flags | RuleFlag.BY_STREAM)
        for (tid, stream), entry in whole.items()
    ]


class _Found(TypedDict):
    """Fields of ThreadFacts that no state of the thread tells."""

    rules: tuple[Rule, ...]
    shape: StepShape
    by_step: bool
    stream_rules: int
    work: PhaseShape
    by_work: bool


def _thread(row: _Row, name: str, launches: LaunchSources, **found: Unpack[_Found]) -> ThreadFacts:
    source = Source(min(row.source, max(Source)))
    is_marked = source in (Source.MARK, Source.NVTX)
    stage = row.stage if is_marked else row.inferred_stage
    return ThreadFacts(
        tid=row.tid,
        name=name,
        source=source if stage != NO_STAGE else Source.NONE,
        stage=stage,
        modality=row.modality if is_marked else row.inferred_modality,
        since_ns=row.stage_since_ns if is_marked and stage != NO_STAGE else None,
        launches=launches,
        **found,
    )
