# SPDX-License-Identifier: Apache-2.0
"""Every page beside Heat: from no data at all to the stand-in agent's, all that goes out is plain JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotstage_explorer.app import LIVE_PAGES
from hotstage_explorer.pages.live import Look, Page, layout, shown
from hotstage_explorer.picture import AGENT, Origin, Picture, Section
from hotstage_explorer.questions import UNREAD, Answer, Question
from hotstage_explorer.sources.details import PATHS
from hotstage_explorer.where import where

sys.path.insert(0, str(Path(__file__).parents[3] / "browser"))

from fake_agent import Script

ADDRESSES = {
    "requests": (
        "/requests/",
        "/requests/1969?modality=image",
        "/requests/?sort=slow&page=3",
        "/requests/no-such",
    ),
    "stages": ("/stages/", "/stages/?stage=queue"),
    "snapshots": (
        *("/snapshots/", "/snapshots/s-0001?view=plan", "/snapshots/?view=threads&page=99"),
        *("/snapshots/s-0002?view=compare&with=s-0001", "/snapshots/?view=compare", "/snapshots/?view=plan"),
        *("/snapshots/no-such?view=compare&with=other", "/snapshots/?stage=vision_encode"),
    ),
    "classes": ("/classes/", "/classes/?by=size", "/classes/?by=endpoint", "/classes/?by=evil"),
}
CASES = [(page, address) for page in LIVE_PAGES for address in ADDRESSES[page.key]]


def ids(component: Any) -> Iterator[str]:
    if getattr(component, "id", None):
        yield component.id
    children = getattr(component, "children", None)
    for child in children if isinstance(children, list | tuple) else [children]:
        if child is not None and not isinstance(child, str):
            yield from ids(child)


def texts(nodes: Any) -> str:
    if isinstance(nodes, str):
        return nodes
    if isinstance(nodes, list):
        return " ".join(texts(each) for each in nodes)
    return ""


def looked(page: Page, address: str, script: Script | None, origin: Origin = AGENT) -> dict[str, Any]:
    """The page as it is with the answers of `script`; None: nothing was read."""
    at = where(page.path, address)
    answers = {each: UNREAD if script is None else answered(each, script) for each in page.questions(at)}
    picture = Picture("http://h", origin, version=3, link="live", tick=5, tick_moved_at=0.0)
    made = shown(page, Look(picture, 0.1, at, answers, ""), "3.1")
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    return made


def answered(question: Question, script: Script) -> Answer:
    place = PATHS[question.kind]
    path = place.path.replace("{}", question.item)
    content = (
        script.body(path)
        if path in ("/v1/latency", "/v1/components", "/v1/classes")
        else script.detail(path, {})
    )
    if content is None:
        return Section(None, None, f"{path} answered HTTP 404")
    return Section(place.parse(content, None), 1.0)


@pytest.mark.parametrize(("page", "address"), CASES, ids=[address for _, address in CASES])
@pytest.mark.parametrize("mode", [None, "fault", "empty"])
def test_every_panel_and_chart_has_its_place(page: Page, address: str, mode: str | None) -> None:
    made = looked(page, address, None if mode is None else Script(mode=mode))
    assert {*made["panels"], *made["charts"]} <= set(ids(layout(page)))


@pytest.mark.parametrize("page", LIVE_PAGES, ids=lambda page: page.key)
def test_identities_are_unique_and_begin_with_the_pages_key(page: Page) -> None:
    found = list(ids(layout(page)))
    assert len(found) == len(set(found))
    assert {name.partition("-")[0] for name in found} == {page.key}


WITHOUT_SERIES = [page for page in LIVE_PAGES if page.key != "classes"]


@pytest.mark.parametrize("page", WITHOUT_SERIES, ids=lambda page: page.key)
def test_what_a_prometheus_cannot_say_is_said_plainly(page: Page) -> None:
    made = looked(page, page.path, None, Origin("Prometheus 2.42.0"))
    said = " ".join(texts(nodes) for nodes in made["panels"].values())
    assert "need the agent" in said
    assert "hotstage explore --agent" in said
    assert "Part of this page" not in said


def test_a_hang_names_stage_and_call_of_each_request() -> None:
    (page,) = (each for each in LIVE_PAGES if each.key == "snapshots")
    said = texts(looked(page, "/snapshots/s-0002", Script())["panels"]["snapshots-rows"])
    assert "vision_encode" in said
    assert "cuStreamSynchronize" in said


def test_two_thousand_requests_in_flight_make_a_page_of_bounded_size() -> None:
    (page,) = (each for each in LIVE_PAGES if each.key == "snapshots")
    made = looked(page, "/snapshots/", Script(in_flight=2000))
    assert "2,000" in texts(made["panels"]["snapshots-facts"])
    assert len(json.dumps(made)) < 200_000


def test_names_that_are_markup_are_text_nodes() -> None:
    (page,) = (each for each in LIVE_PAGES if each.key == "requests")
    made = looked(page, "/requests/1969", Script(evil_id="<img src=x onerror=1>"))
    assert "<img" not in json.dumps(made["charts"])
    assert "<img src=x" in texts(made["panels"]["requests-title"])
