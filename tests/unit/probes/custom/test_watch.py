# SPDX-License-Identifier: Apache-2.0
"""Files come, change and go while others run on: all or nothing per file, told from a fake compiler."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotstage.errors import LoadError
from hotstage.probes.custom.watch import CustomProbes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root's own files are made here")
TEXT = """// hotstage-probe: 1
// hotstage-metric: x_total from m: X
TRACEPOINT_PROBE(a, b) { return 0; }
"""


class Program:
    def __init__(self, file, spec) -> None:
        self.file, self.spec, self.is_closed = file, spec, False
        self.is_readable = True

    def read(self, metric):
        if not self.is_readable:
            raise OSError(errno.ENOMEM, "no memory")
        return [((), 7.0)]

    def close(self) -> None:
        self.is_closed = True


class Compiler:
    """Refuses what says `refuse`; `meanwhile` happens during each compile."""

    def __init__(self) -> None:
        self.made: list[Program] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self, file, spec):
        if "refuse" in file.text:
            raise LoadError(f"{file.path}: the verifier said no", remedy="mend it")
        if "no descriptors" in file.text:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.meanwhile()
        self.made.append(Program(file, spec))
        return self.made[-1]

    def open_names(self) -> list[str]:
        return sorted(each.file.name for each in self.made if not each.is_closed)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def probes(folder: Path, compiler: Compiler, clock) -> Iterator[CustomProbes]:
    made = CustomProbes(folder, clock, load=compiler)
    yield made
    made.close()


def reload(probes: CustomProbes) -> dict[str, tuple[str, bool]]:
    """name → (state, whether some version runs)."""
    probes.reload()
    assert probes.wait(5.0), "the files were not looked at"
    return {each.name: (each.state, each.since_ns is not None) for each in probes.report()}


def test_one_that_is_refused_leaves_the_others_running(probes, folder, compiler) -> None:
    (folder / "good.bpf.c").write_text(TEXT)
    (folder / "bad.bpf.c").write_text(TEXT + "// refuse")
    assert reload(probes) == {"bad": ("refused", False), "good": ("attached", True)}
    assert [each.metric.name for each in probes.read()] == ["hotstage_custom_good_x_total"]
    (bad,) = (each for each in probes.report() if each.name == "bad")
    assert (bad.reason, bad.remedy) == (f"{folder}/bad.bpf.c: the verifier said no", "mend it")


def test_a_changed_file_is_taken_over_and_an_unchanged_one_left_alone(probes, folder, compiler) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.bpf.c").write_text(TEXT)
    reload(probes)
    (folder / "a.bpf.c").write_text(TEXT + "// changed")
    reload(probes)
    assert [each.file.name for each in compiler.made] == ["a", "b", "a"]
    assert compiler.open_names() == ["a", "b"]


def test_of_a_file_that_is_refused_the_version_before_runs_on(probes, folder, compiler) -> None:
    (folder / "a.bpf.c").write_text(TEXT)
    reload(probes)
    (folder / "a.bpf.c").write_text(TEXT + "// refuse")
    assert reload(probes) == {"a": ("refused", True)}
    assert compiler.open_names() == ["a"]
    assert len(probes.read()) == 1


def test_a_file_that_has_gone_is_detached(probes, folder, compiler) -> None:
    (folder / "a.bpf.c").write_text(TEXT)
    reload(probes)
    (folder / "a.bpf.c").unlink()
    assert reload(probes) == {}
    assert compiler.open_names() == []


def test_a_directory_that_is_trusted_no_longer_changes_nothing_that_runs(probes, folder, compiler) -> None:
    (folder / "a.bpf.c").write_text(TEXT)
    reload(probes)
    folder.chmod(0o777)
    assert reload(probes) == {"a": ("refused", True)}
    assert compiler.open_names() == ["a"]


def test_closing_detaches_all_and_nothing_comes_after_it(probes, folder, compiler) -> None:
    (folder / "a.bpf.c").write_text(TEXT)
    reload(probes)
    probes.close()
    assert compiler.open_names() == []
    (folder / "b.bpf.c").write_text(TEXT)
    probes.reload()
    probes.wait(1.0)
    assert compiler.open_names() == []


def test_held_nothing_runs_and_afterwards_all_is_loaded_again(probes, folder, compiler) -> None:
    (folder / "a.bpf.c").write_text(TEXT)
    reload(probes)
    probes.hold("switched off by root")
    assert compiler.open_names() == []
    assert [(each.state, each.reason) for each in probes.report()] == [("off", "switched off by root")]
    assert probes.read() == ()
    reload(probes)
    assert compiler.open_names() == []
    probes.hold(None)
    assert probes.wait(5.0)
    assert compiler.open_names() == ["a"]
    assert [each.state for each in probes.report()] == ["attached"]


def test_switched_off_it_does_nothing(clock) -> None:
    probes = CustomProbes(None, clock)
    probes.start()
    probes.reload()
    assert probes.report() == ()
    probes.close()


def test_whatever_goes_wrong_with_one_file_the_next_reload_is_heard(probes, folder, compiler) -> None:
    (folder / "good.bpf.c").write_text(TEXT)
    (folder / "odd.bpf.c").write_text(TEXT + "// no descriptors")
    assert reload(probes) == {"good": ("attached", True), "odd": ("refused", False)}
    (odd,) = (each for each in probes.report() if each.name == "odd")
    assert odd.reason == f"{folder}/odd.bpf.c: OSError: [Errno 24] Too many open files"
    (folder / "odd.bpf.c").write_text(TEXT)
    assert reload(probes)["odd"] == ("attached", True)


def test_a_name_that_is_no_text_is_told_as_text(probes, folder, compiler) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.bpf.c")).write_text(TEXT)
    reload(probes)
    (report,) = probes.report()
    assert report.state == "refused"
    for text in (report.name, report.path, report.reason, report.remedy):
        assert text is not None
        text.encode()


def test_what_was_compiled_while_all_was_let_go_is_told_as_off(probes, folder, compiler) -> None:
    compiler.meanwhile = lambda: probes.hold("a driver update")
    (folder / "late.bpf.c").write_text(TEXT)
    assert reload(probes) == {"late": ("off", False)}
    assert compiler.open_names() == [] and probes.read() == ()
    compiler.meanwhile = lambda: None
    probes.hold(None)
    assert probes.wait(5.0)
    assert [each.state for each in probes.report()] == ["attached"]


def test_a_metric_that_cannot_be_read_is_left_out(probes, folder, compiler) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.bpf.c").write_text(TEXT)
    reload(probes)
    compiler.made[0].is_readable = False
    assert [each.metric.name for each in probes.read()] == ["hotstage_custom_b_x_total"]
