# SPDX-License-Identifier: Apache-2.0
"""doctor's report keeps its shape, its table is whole, and its help names what there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest

from hotstage.cli.doctor.finding import Area
from hotstage.cli.doctor.table import CHECKS

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((Path(__file__).parent / "schemas/doctor.json").read_text(encoding="utf-8"))


def doctor(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hotstage", "doctor", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture(scope="module")
def report():
    return json.loads(doctor("--json").stdout)


def test_the_report_is_of_the_documented_shape(report):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(report, SCHEMA)


def test_the_figures_agree_with_each_other(report):
    statuses = [finding["status"] for finding in report["findings"]]
    assert report["counts"] == {status: statuses.count(status) for status in report["counts"]}
    assert report["status"] == ("failed" if "fail" in statuses else report["status"])


def test_every_group_has_checks_and_findings(report):
    assert {check.area for check in CHECKS} == set(Area)
    assert {finding["area"] for finding in report["findings"]} == {area.value for area in Area}
    assert SCHEMA["$defs"]["finding"]["properties"]["area"]["enum"] == [area.value for area in Area]


def test_a_group_is_asked_for_alone():
    found = json.loads(doctor("--json", "--only", "compilers", "--only", "places").stdout)["findings"]
    assert {finding["area"] for finding in found} == {"compilers", "places"}


def test_what_is_wrong_has_a_remedy(report):
    without = [f["name"] for f in report["findings"] if f["status"] in ("warn", "fail") and not f["remedy"]]
    assert without == []


def test_an_unknown_group_is_a_usage_error_that_lists_the_known_ones():
    done = doctor("--only", "weather")
    assert done.returncode == 2
    assert all(area.value in done.stderr for area in Area)


def test_the_help_has_examples_marks_and_exit_codes():
    shown = doctor("--help").stdout
    for said in (
        "sudo hotstage doctor --only libraries",
        "--strict",
        "Exit 0 fine",
        "FAIL",
        "could not be looked at",
    ):
        assert said in shown
    assert all(line == line.rstrip() and len(line) <= 110 for line in shown.splitlines())


def test_packages_that_doctor_names_are_those_that_setup_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    table = project["tool"]["hotstage"]["system-packages"].values()
    known = {name for row in table for key in ("packages", "packages-arm64") for name in row.get(key, [])}
    sources = [
        *(ROOT / "agent/hotstage/cli/doctor").glob("*.py"),
        ROOT / "agent/hotstage/probes/loader/bindings.py",
    ]
    named = {
        package
        for source in sources
        for words in re.findall(r"apt install ([a-z0-9 -]+?) ?[(\"]", source.read_text(encoding="utf-8"))
        for package in words.split()
    }
    assert len(named) >= 5
    assert named - known == {"libbpfcc"}  # the library of python3-bpfcc, which brings it
