# SPDX-License-Identifier: Apache-2.0
"""The watch as a dialogue: news in, what the follower is told out. procfs is a folder, the news a list."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hotstage.errors import AttachError
from hotstage.probes.discovery.libraries import LibraryGoneError
from hotstage.probes.discovery.processes import Mapping, ProcessId, ProcessTable, ProcessView
from hotstage.probes.discovery.sideband import Event, Executed, Exited, Forked, Lost, Mapped
from hotstage.probes.discovery.targets import Candidate
from hotstage.probes.discovery.watch import FileKey, Watch

sys.path.insert(0, str(Path(__file__).parent))
from test_processes import CUDA, STAT

FILE: FileKey = ((0xFD, 0), 4242)


class FakeNews:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def follow_cpus(self) -> bool:
        return False

    def wait(self, timeout_seconds: float) -> None:
        time.sleep(0.001)

    def drain(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def close(self) -> None:
        pass


class Notebook:
    """A follower that writes down what it is told."""

    def __init__(self) -> None:
        self.held: set[FileKey] = set()
        self.doubts = 0
        self.gone = 0
        self.told: list[tuple[Any, ...]] = []

    def library_found(
        self, process: ProcessView, candidate: Candidate, mapped_ns: int, looked_ns: int
    ) -> bool:
        self.told.append(("found", process.identity.pid, mapped_ns))
        if self.doubts:
            self.doubts -= 1
            return False
        self.held.add(candidate.file)
        return True

    def library_shared(self, process: ProcessView, file: FileKey, mapped_ns: int) -> bool:
        if file in self.held:
            self.told.append(("shared", process.identity.pid, mapped_ns))
        return file in self.held

    def library_refused(
        self, process: ProcessView, mapping: Mapping, reason: str, *, is_gone: bool = False
    ) -> None:
        self.told.append(("refused", process.identity.pid, reason))
        self.gone += is_gone

    def libraries_kept(self, process: ProcessView, files: frozenset[FileKey]) -> None:
        self.told.append(("kept", process.identity.pid, len(files)))

    def process_gone(self, process: ProcessId, at_ns: int) -> None:
        self.told.append(("gone", process.pid, at_ns))

    def thread_gone(self, pid: int, tid: int, at_ns: int) -> None:
        self.told.append(("thread gone", pid, tid))

    def tick(self, now_ns: int) -> None:
        pass

    def only(self, *verbs: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.told if entry[0] in verbs]


class Stage:
    """A host to watch: processes appear and end, and a watch without its thread is stepped by hand."""

    def __init__(self, root: Path, clock: Any) -> None:
        self.root = root
        self.clock = clock
        self.news = FakeNews()
        self.book = Notebook()
        self.refusal: str | None = None
        self.refusal_kind = AttachError
        self.opened: list[int] = []
        self.own: set[int] = set()
        self.ends_while_opened = False
        self.watch = Watch(
            ProcessTable(root),
            self.book,
            clock,
            inspect=self.inspect,
            deadline_seconds=5.0,
            is_own=self.own.__contains__,
            news=self.news,
        )

    def inspect(self, root: Path, pid: int, mapping: Mapping) -> Candidate:
        self.opened.append(pid)
        if self.ends_while_opened:
            self.end(pid)
        if self.refusal:
            raise self.refusal_kind(self.refusal, path=mapping.path)
        return Candidate(None, (mapping.device, mapping.inode), (), (), is_patched=False)  # type: ignore[arg-type]

    def add(self, pid: int, maps: str = CUDA, *, start: int = 777) -> None:
        thread = self.root / str(pid) / "task" / str(pid)
        thread.mkdir(parents=True, exist_ok=True)
        stat = STAT % (pid, b"server", b"S", start)
        (self.root / str(pid) / "stat").write_bytes(stat)
        (thread / "stat").write_bytes(stat)
        (self.root / str(pid) / "comm").write_bytes(b"server\n")
        (self.root / str(pid) / "maps").write_text(maps)

    def end(self, pid: int) -> None:
        for file in sorted((self.root / str(pid)).rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        (self.root / str(pid)).rmdir()

    def settle(self) -> None:
        """Step until every look-up is answered, at most 5 s."""
        began = time.monotonic()
        self.watch._step()
        while self.watch._lookups.pending:
            assert time.monotonic() - began < 5, "all look-ups were answered within 5 s"
            self.watch._step()

    def happen(self, *events: Event) -> None:
        self.news.events.extend(events)
        self.settle()


@pytest.fixture
def stage(tmp_path: Path, clock: Any) -> Iterator[Stage]:
    stage = Stage(tmp_path, clock)
    yield stage
    stage.watch._lookups.close()


def mapped(pid: int, at_ns: int = 50) -> Mapped:
    return Mapped(pid, at_ns, "/usr/lib/libcuda.so.550.163.01", (0, 0), 4242)


def test_the_first_scan_finds_what_is_there_and_opens_a_shared_library_once(stage: Stage) -> None:
    stage.add(40)
    stage.add(41)
    stage.add(42, maps="")
    stage.settle()
    assert sorted(entry[0] for entry in stage.book.only("found", "shared")) == ["found", "shared"]
    assert len(stage.opened) == 1
    assert {entry[2] for entry in stage.book.only("found", "shared")} == {0}


def test_a_mapping_record_leads_to_the_library_with_its_time(stage: Stage) -> None:
    stage.settle()
    stage.add(40)
    stage.happen(mapped(40, at_ns=1234))
    assert stage.book.only("found") == [("found", 40, 1234)]


def test_the_watchers_own_process_is_no_server_and_neither_are_its_forks(stage: Stage) -> None:
    stage.own.add(40)
    stage.add(40)
    stage.add(41)
    stage.happen(mapped(40), Forked(45, 40, 60))
    assert stage.opened == [41]
    assert 45 not in stage.watch._looking


def test_mappings_of_other_files_cost_no_look(stage: Stage) -> None:
    stage.settle()
    stage.happen(Mapped(40, 1, "/usr/lib/libc.so.6", (0, 0), 1))
    assert stage.book.told == []
    assert stage.watch._looking == set()


def test_a_child_of_a_known_process_is_looked_at(stage: Stage) -> None:
    stage.add(40)
    stage.settle()
    stage.add(41)
    stage.happen(Forked(41, 40, 99), Forked(51, 50, 99))
    assert stage.book.only("shared") == [("shared", 41, 99)]


def test_an_exit_is_told_once_the_process_is_really_gone(stage: Stage) -> None:
    stage.add(40)
    stage.settle()
    at_ns = stage.clock.monotonic_ns()
    stage.happen(Exited(40, 40, at_ns))
    assert stage.book.only("gone") == []
    stage.end(40)
    stage.settle()
    assert stage.book.only("gone", "thread gone") == [("thread gone", 40, 40), ("gone", 40, at_ns)]


class Vanishing(ProcessTable):
    """Processes that end right after they have been looked at."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.root)
        self._end = stage.end

    def look(self, pid: int, is_wanted: Callable[[str], bool]) -> ProcessView | None:
        view = super().look(pid, is_wanted)
        self._end(pid)
        return view


def test_a_process_that_ends_while_it_is_looked_at_is_told_as_gone_at_once(stage: Stage) -> None:
    stage.settle()
    stage.book.held.add(FILE)
    stage.watch._table = Vanishing(stage)
    stage.add(40)
    stage.happen(mapped(40), Exited(40, 40, stage.clock.monotonic_ns()))
    stage.settle()
    at_ns = stage.clock.monotonic_ns()
    assert stage.book.only("shared", "gone") == [("shared", 40, 50), ("gone", 40, at_ns)]


@pytest.mark.parametrize("refusal", [None, "cannot be read"])
def test_a_process_that_ends_while_its_library_is_opened_is_no_user_for_ever(
    stage: Stage, refusal: str | None
) -> None:
    stage.settle()
    stage.ends_while_opened, stage.refusal = True, refusal
    stage.add(40)
    stage.happen(mapped(40), Exited(40, 40, stage.clock.monotonic_ns()))
    stage.settle()
    told = [entry[0] for entry in stage.book.only("found", "refused", "gone")]
    assert told[-1] == "gone"


def test_a_thread_that_ends_is_no_end_of_its_process(stage: Stage) -> None:
    stage.add(40)
    stage.settle()
    stage.happen(Exited(40, 47, 5), Exited(99, 99, 5))
    assert stage.book.only("gone", "thread gone") == [("thread gone", 40, 47)]


def test_a_leader_that_ended_before_its_threads_is_still_a_process(stage: Stage) -> None:
    stage.add(40)
    stage.settle()
    (stage.root / "40/task/41").mkdir()
    (stage.root / "40/task/41/stat").write_bytes(STAT % (41, b"worker", b"R", 800))
    zombie = STAT % (40, b"server", b"Z", 777)
    (stage.root / "40/stat").write_bytes(zombie)
    (stage.root / "40/task/40/stat").write_bytes(zombie)
    stage.happen(Exited(40, 40, stage.clock.monotonic_ns()))
    assert stage.book.only("gone") == []


def test_an_exec_drops_the_libraries_and_finds_the_new_ones(stage: Stage) -> None:
    stage.add(40)
    stage.settle()
    stage.add(40, maps="")
    stage.happen(Executed(40, 60))
    assert stage.book.only("kept")[-1] == ("kept", 40, 0)
    stage.add(40)
    stage.happen(mapped(40, at_ns=70))
    assert stage.book.only("shared") == [("shared", 40, 70)]


def test_lost_records_lead_to_a_rescan(stage: Stage) -> None:
    stage.settle()
    stage.add(40)
    stage.happen(Lost(13))
    assert stage.watch.lost_records == 13
    assert stage.watch.rescans == 2
    assert [entry[1] for entry in stage.book.only("found")] == [40]


def test_the_rescan_finds_what_no_record_told_of(stage: Stage) -> None:
    stage.settle()
    stage.add(40)
    stage.clock.advance(31)
    stage.settle()
    assert [entry[1] for entry in stage.book.only("found")] == [40]


def test_a_refused_library_is_told_and_tried_again_by_the_next_rescan(stage: Stage) -> None:
    stage.refusal = "an odd file"
    stage.add(40)
    stage.settle()
    assert stage.book.only("refused") == [("refused", 40, "an odd file")]
    assert not stage.book.gone
    stage.refusal = None
    stage.clock.advance(31)
    stage.settle()
    assert [entry[1] for entry in stage.book.only("found")] == [40]


def test_a_library_that_has_vanished_is_told_as_gone(stage: Stage) -> None:
    stage.refusal, stage.refusal_kind = "no such file", LibraryGoneError
    stage.add(40)
    stage.settle()
    assert stage.book.only("refused") == [("refused", 40, "no such file")]
    assert stage.book.gone == 1


def test_what_one_process_cannot_show_the_next_one_may(stage: Stage) -> None:
    stage.add(40)
    stage.add(41)
    inspect = stage.inspect

    def only_41(root: Path, pid: int, mapping: Mapping) -> Candidate:
        stage.refusal = "gone" if pid == 40 else None
        return inspect(root, pid, mapping)

    stage.watch._inspect = only_41
    stage.settle()
    assert {entry[1] for entry in stage.book.only("found")} == {41}


def test_a_pid_that_comes_back_is_another_process(stage: Stage) -> None:
    stage.add(40)
    stage.settle()
    stage.add(40, start=900)
    stage.happen(mapped(40, at_ns=80))
    assert [entry[:2] for entry in stage.book.only("gone", "shared")] == [("gone", 40), ("shared", 40)]


def test_a_library_that_may_have_been_probed_meanwhile_is_looked_at_again(stage: Stage) -> None:
    stage.book.doubts = 1
    stage.add(40)
    stage.add(41)
    stage.settle()
    assert len(stage.opened) == 2
    assert [entry[0] for entry in stage.book.only("found", "shared")] == ["found", "found", "shared"]
