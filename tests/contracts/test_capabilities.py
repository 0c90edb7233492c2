# SPDX-License-Identifier: Apache-2.0
"""Units and manifests grant what the one table of capabilities says, no more and no less."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotstage.host.capabilities import CAPABILITIES, LEAST, OLD_KERNELS, USUAL

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
AGENT_UNIT = DEPLOY / "systemd/hotstage-agent.service"
PLAIN_UNITS = ("hotstage-notify.service", "hotstage-explorer.service")
DROP_INS = sorted((DEPLOY / "systemd").rglob("*.conf"))
MANIFESTS = sorted((DEPLOY / "kubernetes").rglob("*.y*ml"))
SETS = ("CapabilityBoundingSet", "AmbientCapabilities")
TIERS = {frozenset(tier) for tier in (LEAST, USUAL, OLD_KERNELS)}


def grants(unit: Path, key: str) -> list[str]:
    return [
        word for line in re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE) for word in line.split()
    ]


@pytest.mark.parametrize("key", SETS)
def test_the_agents_unit_grants_the_usual_ones(key):
    assert grants(AGENT_UNIT, key) == list(USUAL)


def test_the_agents_unit_says_of_each_what_it_is_for():
    told = set(re.findall(r"^# (CAP_\w+) {2,}\S", AGENT_UNIT.read_text(), re.MULTILINE))
    assert told == set(USUAL)


@pytest.mark.parametrize("name", PLAIN_UNITS)
def test_notifier_and_explorer_get_none(name):
    unit = DEPLOY / "systemd" / name
    assert grants(unit, "CapabilityBoundingSet") == grants(unit, "AmbientCapabilities") == []
    assert "CapabilityBoundingSet=\n" in unit.read_text()


def test_drop_ins_add_only_what_old_kernels_need():
    granted = {(drop_in.name, name) for drop_in in DROP_INS for key in SETS for name in grants(drop_in, key)}
    assert {name for _, name in granted} <= set(OLD_KERNELS), granted


def added(value: Any) -> Iterator[tuple[str, frozenset[str]]]:
    """(container, what it adds) for every container in a manifest that adds capabilities."""
    if isinstance(value, dict):
        names = value.get("securityContext", {}).get("capabilities", {}).get("add", [])
        if names and "image" in value:
            yield value["name"], frozenset(f"CAP_{name.removeprefix('CAP_')}" for name in names)
        for part in value.values():
            yield from added(part)
    elif isinstance(value, list):
        for part in value:
            yield from added(part)


def granted_by_manifests() -> list[tuple[str, str, frozenset[str]]]:
    return [
        (str(manifest.relative_to(DEPLOY)), container, names)
        for manifest in MANIFESTS
        for container, names in added(list(yaml.safe_load_all(manifest.read_text())))
    ]


def test_the_agents_container_gets_one_of_the_tiers():
    odd = [row for row in granted_by_manifests() if row[1] == "agent" and row[2] not in TIERS]
    assert odd == []


def test_no_other_container_gets_any_of_the_agents():
    odd = [row for row in granted_by_manifests() if row[1] != "agent" and row[2] & set(OLD_KERNELS)]
    assert odd == []


def test_what_nothing_uses_is_granted_nowhere():
    unused = {capability.name for capability in CAPABILITIES} - set(OLD_KERNELS)
    granting = [AGENT_UNIT, *DROP_INS, *MANIFESTS]
    assert {
        name
        for file in granting
        for name in unused
        if re.search(rf"^\s*[^#\s].*\b{name}\b", file.read_text(), re.M)
    } == set()
