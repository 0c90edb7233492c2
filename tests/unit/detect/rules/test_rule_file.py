# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from hotstage.detect.finding import Severity
from hotstage.detect.rules.rule_file import DEFAULT_FILE, load_rules
from hotstage.frame.entity import EntityKind


def write(tmp_path, text, name="own.toml"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_the_built_in_rules_are_all_good():
    rules, problems = load_rules([])
    assert problems == ()
    assert {"allocation_failures", "unattributed_launches", "telemetry_lost"} <= {rule.name for rule in rules}
    assert DEFAULT_FILE.exists()


def test_a_rule_has_what_prometheus_rules_have(tmp_path):
    text = """
    [[rules]]
    alert = "too_hot"
    expr = "gpu_temperature_celsius > 85"
    for = "1m"
    keep_firing_for = "30s"
    labels = { severity = "critical", team = "gpu" }
    annotations = { summary = "{{ $value }} degrees" }
    """
    (rule,), problems = load_rules([write(tmp_path, text)], builtin=False)
    assert problems == ()
    assert (rule.name, rule.kind, rule.for_seconds, rule.keep_firing_seconds) == (
        "too_hot",
        EntityKind.gpu,
        60,
        30,
    )
    assert (rule.severity, rule.labels["team"], rule.summary) == (
        Severity.critical,
        "gpu",
        "{{ $value }} degrees",
    )


def test_one_broken_rule_does_not_stop_the_others(tmp_path):
    text = """
    [[rules]]
    alert = "broken"
    expr = "inflight > 0 and lunch_rate > 1"
    [[rules]]
    alert = "fine"
    expr = "inflight > 0"
    """
    path = write(tmp_path, text)
    rules, (problem,) = load_rules([path], builtin=False)
    assert [rule.name for rule in rules] == ["fine"]
    assert (problem.rule, problem.position) == ("broken", 17)
    assert str(problem) == (
        f"{path}: rule 'broken', expr position 18: no column `lunch_rate`; the nearest is `launch_rate`"
    )


def test_every_mistake_is_told_by_name(tmp_path):
    cases = {
        'alert = "a"\nexpr = "inflight > 0"\nfro = "1m"': "the nearest is `for`",
        'alert = "a b"\nexpr = "inflight > 0"': "must be a name",
        'alert = "a"': "`expr` is missing",
        'alert = "a"\nexpr = "inflight > 0"\nfor = "soon"': "duration",
        'alert = "a"\nexpr = "inflight > 0"\nlabels = { severity = "loud" }': "severity",
        'alert = "a"\nexpr = "inflight > 0"\nentity = "gpu"': "speak of",
        'alert = "a"\nexpr = "inflight > 0"\nlabels = { x = 1 }': "table of strings",
    }
    for body, says in cases.items():
        rules, (problem,) = load_rules([write(tmp_path, f"[[rules]]\n{body}")], builtin=False)
        assert rules == () and says in str(problem), body


def test_a_broken_or_missing_file_does_not_stop_the_others(tmp_path):
    broken = write(tmp_path, "[[rules]\n", "broken.toml")
    good = write(tmp_path, '[[rules]]\nalert = "a"\nexpr = "inflight > 0"', "good.toml")
    rules, problems = load_rules([broken, str(tmp_path / "none.toml"), good], builtin=False)
    assert [rule.name for rule in rules] == ["a"]
    assert [problem.source for problem in problems] == [str(tmp_path / "none.toml"), broken]


def test_a_name_that_comes_twice_is_refused(tmp_path):
    body = '[[rules]]\nalert = "a"\nexpr = "inflight > 0"\n'
    rules, (problem,) = load_rules([write(tmp_path, body + body)], builtin=False)
    assert len(rules) == 1 and "already" in str(problem)


def test_globs_may_match_nothing(tmp_path):
    assert load_rules([str(tmp_path / "*.toml")], builtin=False) == ((), ())


DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    "text",
    [
        f"x = {DEEP}",
        "x = " + "9" * 5000,
        f"[{'.'.join('a' * 3000)}]\n",
        "\x00",
        "[[rules]]\nalert = 9" + "9" * 400,
    ],
    ids=["deep", "digits", "dotted", "NUL", "number"],
)
def test_whatever_stands_in_a_file_is_a_problem_of_that_file(tmp_path, text):
    path = write(tmp_path, text)
    rules, problems = load_rules([path], builtin=False)
    assert rules == ()
    assert problems and all(problem.source == path for problem in problems)


def test_a_fifo_is_a_problem_and_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "own.toml")
    _, (problem,) = load_rules([str(tmp_path / "*.toml")], builtin=False)
    assert "not a regular file" in problem.message


@pytest.mark.parametrize("duration", ["inf", "nan", "1e10", "1" + "0" * 400, '"99999999d"', '"1e999s"'])
@pytest.mark.parametrize("key", ["for", "keep_firing_for"])
def test_a_duration_beyond_nanoseconds_is_a_problem_and_not_the_end_of_a_tick(tmp_path, key, duration):
    text = f'[[rules]]\nalert = "a"\nexpr = "inflight > 0"\n{key} = {duration}\n'
    rules, (problem,) = load_rules([write(tmp_path, text)], builtin=False)
    assert rules == ()
    assert key in problem.message


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e999", "-1e999"])
def test_a_number_beyond_floats_is_a_problem(tmp_path, number):
    text = f'[[rules]]\nalert = "a"\nexpr = "inflight > {number}"\n'
    rules, (problem,) = load_rules([write(tmp_path, text)], builtin=False)
    assert rules == ()
    assert "not allowed" in problem.message


def test_a_directory_that_may_not_be_read_is_a_problem_and_not_no_rules(public, drop_root):
    (public / "rules").mkdir(mode=0)
    drop_root()
    _, (problem,) = load_rules([str(public / "rules/*.toml")], builtin=False)
    assert "Permission denied" in problem.message
    _, problems = load_rules([str(public / "absent/*.toml")], builtin=False)
    assert problems == ()


def test_a_pattern_that_would_walk_a_tree_or_match_no_end_of_files_is_a_problem(tmp_path):
    for number in range(257):
        (tmp_path / f"{number}.toml").write_text("")
    rules, problems = load_rules(["/**", f"{tmp_path}/**/*.toml", f"{tmp_path}/*.toml"], builtin=False)
    assert rules == ()
    assert [problem.message for problem in problems] == [
        "`**` would walk a whole tree of directories; name each of them",
        "`**` would walk a whole tree of directories; name each of them",
        "matches more than 256 files; make it narrower",
    ]
    (tmp_path / "0.toml").unlink()
    assert load_rules([f"{tmp_path}/*.toml"], builtin=False) == ((), ())
