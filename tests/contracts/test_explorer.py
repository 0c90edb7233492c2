# SPDX-License-Identifier: Apache-2.0
"""The explorer knows agents by their HTTP and their metrics only: what it assumes is what they promise."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hotstage.config.explore import ExploreConfig
from hotstage.sinks.metrics import METRICS
from hotstage.stages.stage import Modality, Stage
from hotstage_explorer import parse
from hotstage_explorer.figures.points import SYMBOLS
from hotstage_explorer.sources import expressions
from hotstage_explorer.sources.selector import DEFAULT_SELECTOR

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))

from fake_agent import PATHS, Script

OPENAPI: dict[str, Any] = json.loads(files("hotstage.api").joinpath("openapi.json").read_bytes())


def test_stages_are_ordered_as_the_agent_pins_them() -> None:
    assert tuple(stage.name for stage in Stage) == parse.PIPELINE


def test_every_modality_has_a_shape() -> None:
    assert {modality.name for modality in Modality} - set(SYMBOLS) == {"unknown"}


@pytest.mark.parametrize("mode", ["fault", "calm", "empty", "young"])
@pytest.mark.parametrize("path", PATHS)
def test_the_browser_tests_stand_in_says_what_the_agent_promises(path: str, mode: str) -> None:
    answer = OPENAPI["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator = Draft202012Validator({**answer, "components": OPENAPI["components"]})
    errors = [
        f"{error.json_path}: {error.message}" for error in validator.iter_errors(Script(mode=mode).body(path))
    ]
    assert errors == []


@pytest.mark.parametrize(
    ("path", "asked", "query"),
    [
        ("/v1/requests", "/v1/requests", {"after": ["1990"], "limit": ["40"]}),
        ("/v1/requests/{id}", "/v1/requests/1969", {}),
        ("/v1/requests/{id}", "/v1/requests/1968", {}),
        ("/v1/snapshot", "/v1/snapshot", {}),
        ("/v1/snapshot/plan", "/v1/snapshot/plan", {}),
        ("/v1/snapshots", "/v1/snapshots", {}),
        ("/v1/snapshots/{id}", "/v1/snapshots/s-0001", {}),
        ("/v1/snapshots/{id}/plan", "/v1/snapshots/s-0001/plan", {}),
    ],
)
def test_its_documents_with_parameters_are_as_promised_too(
    path: str, asked: str, query: dict[str, list[str]]
) -> None:
    answer = OPENAPI["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator = Draft202012Validator({**answer, "components": OPENAPI["components"]})
    document = Script().detail(asked, query)
    assert document is not None
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)] == []


def test_every_gauge_that_is_asked_for_is_exported_with_the_labels_that_are_read() -> None:
    exported = {metric.name: set(metric.labels) for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "histogram":
            exported[f"{metric.name}_count"] = set(metric.labels)
    assert {name: exported.get(name) for name in expressions.GAUGES} == {
        name: set(labels) for name, labels in expressions.GAUGES.items()
    }
    for table in (expressions.CLASSES, expressions.TOKENS):
        assert {name: exported.get(name) for name in table} == {name: set(own) for name, own in table.items()}
    assert {expressions.TICKS, expressions.UP, expressions.STAGE_DURATION} <= set(exported)


def test_the_label_of_the_expressions_is_nobody_elses() -> None:
    assert expressions.MARK not in {label for metric in METRICS for label in metric.labels}


def test_the_selector_is_the_same_by_configuration_and_by_default() -> None:
    assert ExploreConfig().prometheus_selector == DEFAULT_SELECTOR
