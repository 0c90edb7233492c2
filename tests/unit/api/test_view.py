# SPDX-License-Identifier: Apache-2.0
"""One view per tick; a body is made once per tick, and only if asked for."""

from __future__ import annotations

import json
import math

import pytest

from hotstage.api.view import View, ViewCell


@pytest.fixture
def cell(clock):
    return ViewCell("host-1", clock)


def test_before_the_first_tick_everything_is_stale(cell):
    assert cell.view.is_stale
    assert json.loads(cell.body("x", lambda view: {})[1])["stale"] is True


def test_a_body_carries_when_where_and_whether_it_is_stale(cell, clock):
    cell.swap(View(tick=7, at_ns=clock.monotonic_ns()))
    body = json.loads(cell.body("x", lambda view: {"points": []})[1])
    at_ns = clock.wall_ns()
    assert body == {
        "at": "2023-11-14T22:30:00.000Z",
        "at_ns": at_ns,
        "host": "host-1",
        "off_since": None,
        "stale": False,
        "tick": 7,
        "points": [],
    }


def test_a_body_is_made_once_per_tick(cell):
    made = []

    def make(view):
        made.append(view.tick)
        return {}

    cell.swap(View(1, 10))
    assert cell.body("x", make)[1] is cell.body("x", make)[1]
    cell.body("y", make)
    cell.swap(View(2, 20))
    cell.body("x", make)
    assert made == [1, 1, 2]


def test_a_body_never_outlives_its_view_even_when_a_tick_comes_while_it_is_made(cell):
    def make(view):
        cell.swap(View(2, 20))
        return {"made_for": view.tick}

    cell.swap(View(1, 10))
    cell.body("x", make)
    assert json.loads(cell.body("x", lambda view: {"made_for": view.tick})[1])["made_for"] == 2


def test_nan_is_null(cell):
    assert b'"p95":null' in cell.encode(cell.view, {"p95": math.nan})
