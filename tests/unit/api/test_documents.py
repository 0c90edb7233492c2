# SPDX-License-Identifier: Apache-2.0
"""Frames, windows and breakers as JSON values; unknown is null, times have a twin."""

from __future__ import annotations

import math

import numpy as np

from hotstage.api import documents
from hotstage.breaker.record import BreakerState, Override, OverrideAction
from hotstage.detect.finding import Evidence
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame

ROUTE = Entity(EntityKind.route, endpoint="/v1/chat", instance="i-0")
INSTANCE = Entity(EntityKind.instance, instance="i-0")
ENCODER = Entity(EntityKind.stage, stage="vision_encode", modality="image")


def a_frame(cells):
    values = np.full((len(cells), len(COLUMNS)), np.nan)
    for row, columns in enumerate(cells.values()):
        for name, value in columns.items():
            values[row, COLUMN_INDEX[name]] = value
    return Frame(1_000, tuple(cells), values)


def test_a_point_has_the_routes_heat_and_latency_and_the_instances_load():
    cells = {
        HOST: {},
        ROUTE: {"endpoint_heat": 4.5, "latency_p95_seconds": 1.25, "requests_ended": 23},
        INSTANCE: {"load_ratio": 0.25, "dispatch_deviation": -0.5},
    }
    body = documents.heat(a_frame(cells), {"/v1/chat": "image"})
    (point,) = body["points"]
    assert (point["endpoint"], point["instance"], point["modality"]) == ("/v1/chat", "i-0", "image")
    assert (point["heat"], point["latency_p95_seconds"], point["requests"]) == (4.5, 1.25, 23)
    assert (point["load_ratio"], point["deviation"], point["cpu_load_ratio"]) == (0.25, -0.5, None)
    assert body["basis"]["heat"]


def test_a_stage_nobody_ended_has_no_quantile_but_a_count():
    body = documents.stages(a_frame({HOST: {"unattributed_ratio": 0.1}, ENCODER: {"inflight": 2}}))
    (stage,) = body["stages"]
    assert (stage["stage"], stage["modality"]) == ("vision_encode", "image")
    assert (stage["inflight"], stage["requests"], stage["p95_seconds"]) == (2, 0, None)
    assert body["unattributed_ratio"] == 0.1


def test_a_stage_names_the_open_windows_that_name_it(make):
    apart = make.window("w-2", entity=INSTANCE)
    found = [make.window(kind="shared_stream"), apart, make.window("w-3", kind="stage_latency")]
    (stage,) = documents.stages(a_frame({HOST: {}, ENCODER: {"inflight": 2}}), found)["stages"]
    assert stage["windows_open"] == ["shared_stream", "stage_latency"]


def test_a_windows_sentence_and_its_worst_are_dated_apart(make, clock):
    body = documents.window(make.window(opened_ns=1_000, updated_ns=9_000, peak_ns=4_000), clock)
    assert body["figures_at_ns"] - body["opened_at_ns"] == 8_000
    assert body["peak_at_ns"] - body["opened_at_ns"] == 3_000


def test_a_window_names_the_one_that_explains_it(make, clock):
    assert documents.window(make.window(), clock)["caused_by"] is None
    assert documents.window(make.window(caused_by="w-0"), clock)["caused_by"] == "w-0"


def test_a_window_is_dated_in_wall_time_and_its_numbers_are_finite(make, clock):
    evidence = (Evidence("load_ratio", math.nan, 1.0, "ratio", 4_000),)
    body = documents.window(make.window(score=math.inf, evidence=evidence), clock)
    assert (body["state"], body["closed_at"], body["closed_at_ns"]) == ("open", None, None)
    assert body["opened_at_ns"] == clock.WALL_OFFSET_NS + 5_000
    assert body["score"] is None
    assert body["evidence"][0]["value"] is None
    assert body["evidence"][0]["since_ns"] == clock.WALL_OFFSET_NS + 4_000
    assert body["entity"] == {"stage": "vision_encode", "modality": "image"}
    closed = documents.window(make.window(closed_ns=9_000), clock)
    assert (closed["state"], closed["closed_at_ns"]) == ("closed", clock.WALL_OFFSET_NS + 9_000)


def test_a_breaker_shows_the_overrides_state_and_its_own(make, clock):
    override = Override(OverrideAction.disable, "uid 0", "maintenance", 1, 60_000)
    body = documents.breaker(make.breaker(override=override), clock)
    assert (body["state"], body["own_state"]) == ("disabled", "open")
    assert (body["override"]["actor"], body["override"]["until_ns"]) == (
        "uid 0",
        clock.WALL_OFFSET_NS + 60_000,
    )
    assert body["transitions"][0]["from"] == "closed"


def test_breakers_come_by_name(make, clock):
    records = [make.breaker("b"), make.breaker("a", state=BreakerState.closed)]
    assert [each["name"] for each in documents.breakers(records, clock)["breakers"]] == ["a", "b"]
