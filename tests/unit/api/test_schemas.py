# SPDX-License-Identifier: Apache-2.0
"""The schema files and the OpenAPI file say of snapshots and plans what the types say."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import msgspec
import pytest
from support.kernel_rows import KernelRequest, Modality, Stage, sample

from hotstage.api.schemas import FILES, openapi_components, schema_of, text_of
from hotstage.config.snapshots import RecoveryConfig
from hotstage.stages.recovery import recovery_plan
from hotstage.stages.snapshot import snapshot
from hotstage.stages.snapshot_diff import diff


@pytest.mark.parametrize("name", FILES)
def test_a_schema_file_is_what_the_type_says(name):
    stored = files("hotstage.api").joinpath(name).read_text()
    assert stored == text_of(FILES[name]), "run `python -m hotstage.api.schemas`"


def test_openapi_repeats_the_types_of_what_it_serves():
    described = json.loads(files("hotstage.api").joinpath("openapi.json").read_text())["components"][
        "schemas"
    ]
    wanted = openapi_components()
    assert {name: described.get(name) for name in wanted} == wanted


def test_what_is_made_is_what_the_schemas_promise(clock):
    def taken(at_ns):
        request = KernelRequest(1, at_ns=50).begin(Stage.vision_encode, 60, modality=Modality.image)
        return snapshot(sample(at_ns, requests=[request]), clock, {})

    made = [taken(90), diff(taken(90), taken(190)), recovery_plan(taken(90), RecoveryConfig())]
    for each in made:
        jsonschema.Draft202012Validator(schema_of(type(each))).validate(msgspec.to_builtins(each))
