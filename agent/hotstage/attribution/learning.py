# SPDX-License-Identifier: Apache-2.0
"""When the kernel counts functions, what of it is new, and which decisions an unmarked process gets.

Learning costs each marked launch some 50 ns, so it is on while a program that marks is new, and two seconds
of each minute after that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from hotstage.attribution.facts import ProcessFacts
from hotstage.attribution.fingerprints import GRAPH_HASH, GRAPH_NAME, FingerprintBook, Verdict
from hotstage.probes.maps.inference import Function, FunctionDecision
from hotstage.probes.maps.layout import GRAPH_HANDLE, FunctionKind

NEW_LAUNCHES = 50_000
NEW_NS = 60_000_000_000
"""A program is new until it was learned from so many launches and for so long."""
AGAIN_NS = 60_000_000_000
AGAIN_FOR_NS = 2_000_000_000
PROGRAMS_LIMIT = 1024
"""Programs that are known not to be new; one that comes back after so many others is new again."""


class Counting(Protocol):
    def function_counts(self) -> list[tuple[int, int, int, int, int]]: ...

    def learn_functions(self, is_learning: bool) -> None: ...


class Deciding(Protocol):
    def decide_functions(self, pid: int, decisions: Mapping[int, FunctionDecision]) -> int: ...


class Learner:
    """Feeds the book from processes that mark."""

    def __init__(self, probes: Counting, book: FingerprintBook) -> None:
        self._probes = probes
        self._book = book
        self._told: dict[tuple[int, int, int, int], int] = {}
        self._since_ns: OrderedDict[str, int] = OrderedDict()
        self._again_ns = 0
        self.is_learning = False

    def advance(
        self, now_ns: int, marked: Mapping[int, ProcessFacts], named: Mapping[int, Sequence[Function]]
    ) -> None:
        """`marked`: processes that mark now; `named`: functions by pid."""
        if self.is_learning:
            self._take(marked, named)
        wanted = self._is_wanted(now_ns, marked)
        if wanted != self.is_learning:
            self._probes.learn_functions(wanted)
            self.is_learning = wanted

    def learned_of(self, facts: ProcessFacts) -> int:
        """Launches that the process's program was learned from."""
        return self._book.total(facts.program_key)

    def _take(self, marked: Mapping[int, ProcessFacts], named: Mapping[int, Sequence[Function]]) -> None:
        names = {
            (pid, each.handle): (each.name_hash, each.name) for pid in marked for each in named.get(pid, ())
        }
        told: dict[tuple[int, int, int, int], int] = {}
        for pid, handle, stage, modality, count in self._probes.function_counts():
            key = (pid, handle, stage, modality)
            told[key] = count
            facts = marked.get(pid)
            name = (GRAPH_HASH, GRAPH_NAME) if handle == GRAPH_HANDLE else names.get((pid, handle))
            if facts is None or name is None or not facts.program:
                continue
            before = self._told.get(key, 0)
            grew = count - before if count >= before else count
            self._book.learn(facts.program_key, facts.program, *name, (stage, modality), grew)
        self._told = told

    def _is_wanted(self, now_ns: int, marked: Mapping[int, ProcessFacts]) -> bool:
        if not marked:
            return False
        for facts in marked.values():
            since_ns = self._since_ns.setdefault(facts.program_key, now_ns)
            self._since_ns.move_to_end(facts.program_key)
            while len(self._since_ns) > PROGRAMS_LIMIT:
                self._since_ns.popitem(last=False)
            if now_ns - since_ns < NEW_NS or self.learned_of(facts) < NEW_LAUNCHES:
                return True
        if now_ns - self._again_ns >= AGAIN_NS:
            self._again_ns = now_ns
        return now_ns - self._again_ns < AGAIN_FOR_NS


class Applied:
    """What unmarked processes were told of their functions."""

    def __init__(self, probes: Deciding, book: FingerprintBook) -> None:
        self._probes = probes
        self._book = book
        self._told: dict[int, dict[int, FunctionDecision]] = {}

    def advance(self, facts: ProcessFacts, functions: Sequence[Function]) -> tuple[Verdict, ...]:
        """Tell the kernel what is known of the process's functions; the anchors among them, most launched
        first. Empty: nothing is known that tells a stage.
        """
        verdicts = self._book.verdicts(facts.program_key) if facts.program else {}
        if not verdicts:
            return ()
        pid = facts.identity.pid
        told = self._told.setdefault(pid, {})
        known: dict[int, Verdict] = {}
        fresh: dict[int, FunctionDecision] = {}
        for function in functions:
            verdict = verdicts.get(function.name_hash)
            if verdict is None:
                continue
            known[function.handle] = verdict
            if function.kind is FunctionKind.UNKNOWN or told.get(function.handle) != verdict.decision:
                fresh[function.handle] = verdict.decision
        graphs = verdicts.get(GRAPH_HASH)
        if graphs is not None:
            known[GRAPH_HANDLE] = graphs
            if told.get(GRAPH_HANDLE) != graphs.decision:
                fresh[GRAPH_HANDLE] = graphs.decision
        if fresh:
            self._probes.decide_functions(pid, fresh)
            told.update(fresh)
        anchors = {each.name: each for each in known.values() if each.decision.kind is FunctionKind.ANCHOR}
        return tuple(sorted(anchors.values(), key=lambda each: -each.launches))

    def keep(self, pids: Collection[int]) -> None:
        """Forget all others: a pid that comes back is another process."""
        for gone in self._told.keys() - set(pids):
            del self._told[gone]
