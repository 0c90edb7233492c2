# SPDX-License-Identifier: Apache-2.0
"""How the tests of wheel, Debian package and container build them, and what a demo in each must report."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "tests/contracts/schemas/demo.json").read_text(encoding="utf-8"))
EPOCH = "1700000000"
DEMO = "demo --seconds 12 --seed 7 --json"


def make(script: str, *arguments: str) -> None:
    """Run a build script of deploy/ as make does, at a fixed time."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / script), *arguments],
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def wheelhouse() -> Path:
    """All that pip needs beside our own: downloaded once for these requirements and this Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [each for each in project["dependencies"] if not each.startswith("hotstage-marks")]
    constraints = ROOT / "deploy/constraints.txt"
    facts = repr((needed, constraints.read_text(encoding="utf-8"), sys.version_info[:2]))
    house = ROOT / "build/wheelhouse" / hashlib.sha256(facts.encode()).hexdigest()[:16]
    if not house.is_dir():
        fresh = house.with_suffix(".part")
        command = [sys.executable, "-m", "pip", "download", "-qq", "--only-binary", ":all:", *needed]
        command += ["--constraint", str(constraints), "--dest", str(fresh)]
        subprocess.run(command, check=True, timeout=300)
        fresh.rename(house)
    return house


def assert_counted_exactly(report: dict[str, Any]) -> None:
    """A demo's report: valid, with traffic, and every call counted."""
    jsonschema.validate(report, SCHEMA)
    calls, requests = report["calls"], report["requests"]
    assert calls["made"] > 10_000
    assert (calls["counted"], calls["lost"]) == (calls["made"], 0)
    assert requests["finished"] == requests["truth"]["finished"] > 0
