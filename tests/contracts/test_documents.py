# SPDX-License-Identifier: Apache-2.0
"""What the documents say exists, exists: commands, files, settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.conftest import HOST_FOLDERS

from hotstage.cli.main import VERBS
from hotstage.config.render import example

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path for path in ROOT.rglob("*.md") if not {".venv", "node_modules", "build", "dist"} & set(path.parts)
)


def test_the_example_configuration_is_the_generated_one():
    assert (ROOT / "deploy/hotstage.example.toml").read_text(encoding="utf-8") == example(), (
        "run `make generate`"
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_local_link_leads_somewhere(document: Path):
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text)
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_ours_is_one(document: Path):
    text = document.read_text(encoding="utf-8")
    verbs = set(re.findall(r"(?:^# |`)hotstage ([a-z]+)\b", text, re.MULTILINE))
    assert verbs - set(VERBS) == set()


def test_the_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make run" in text
    assert "make test" in text


def test_make_help_lists_every_target_that_people_type():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    documented = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    assert {"run", "test", "check", "bench", "setup", "clean"} <= documented


def test_make_host_looks_where_the_tests_for_it_may_lie():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"^HOST := \$\(addprefix tests/,([a-z /]+)\)$", makefile, re.MULTILINE) == [
        " ".join(HOST_FOLDERS)
    ]


def test_the_fixed_packages_are_ordinary_dependencies_and_bcc_is_a_system_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = {re.split(r"[><=\[ ]", entry)[0] for entry in project["project"]["dependencies"]}
    fixed = {"nvidia-ml-py", "prometheus-client", "opentelemetry-sdk", "dash", "plotly", "click"}
    assert fixed <= names
    assert "bcc" not in names
    assert project["tool"]["hotstage"]["system-packages"]["bcc"]["packages"] == ["python3-bpfcc"]


def test_every_variable_that_the_marks_read_is_in_their_readme():
    marks = ROOT / "agent/hotstage_marks"
    sources = [path for pattern in ("*.py", "native/**/*.[ch]") for path in marks.glob(pattern)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    quoted = r"""["'](HOTSTAGE_[A-Z_]+)["']"""
    variables = set(re.findall(rf"(?:environ(?:\.get|\[)\(?|getenv\(){quoted}", text))
    variables |= set(re.findall(rf"^(?:PATH_VARIABLE|SWITCH) = {quoted}", text, re.MULTILINE))
    variables |= set(re.findall(rf"#define RULES_VARIABLE {quoted}", text))
    assert {"HOTSTAGE_PAGE_PATH", "HOTSTAGE_NVTX_RULES", "HOTSTAGE_VLLM"} <= variables
    readme = (marks / "README.md").read_text(encoding="utf-8")
    assert {name for name in variables if f"`{name}" not in readme} == set()


def test_modules_stay_within_one_room():
    too_long = {
        str(path.relative_to(ROOT)): lines
        for root in ("agent", "dashboards")
        for path in (ROOT / root).rglob("*.py")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > 400
    }
    assert too_long == {}
