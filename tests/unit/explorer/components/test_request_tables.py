# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hotstage_explorer.components.class_table import class_table
from hotstage_explorer.components.latency_tables import component_table, parts_table, tokens_table
from hotstage_explorer.components.request_table import (
    ROWS_A_PAGE,
    filters,
    matching,
    request_table,
    shown_page,
)
from hotstage_explorer.components.waterfall_panel import facts, legend, segment_table
from hotstage_explorer.components.words import pager
from hotstage_explorer.documents.classes import classes
from hotstage_explorer.documents.latency import components, latency
from hotstage_explorer.documents.requests import RequestList, RequestRow, StageTime
from hotstage_explorer.documents.waterfall import Segment, Waterfall
from hotstage_explorer.where import Where, where

HERE = Where("/requests/")


def row(seq: int, modality: str = "image", outcome: str = "ok", seconds: float | None = None) -> RequestRow:
    stage = StageTime("llm_decode" if modality == "text" else "vision_encode", modality, 0.1)
    name = f"req-{seq}"
    return RequestRow(
        seq, name, "/v1/a", "i-0", "m", 7, outcome, 10**18, seconds or seq / 10, stages=(stage,)
    )


ROWS = tuple(row(n, "image" if n % 2 else "text", "error" if n % 10 == 0 else "ok") for n in range(1, 61))
FOUND = RequestList(ROWS, 60, 58, 3, 2)


def asked(query: str) -> Where:
    return where("/requests/", f"/requests/?{query}")


def test_choices_and_words_leave_what_has_them_all() -> None:
    assert len(matching(FOUND, HERE, "")) == 60
    assert {each.modalities for each in matching(FOUND, asked("modality=text"), "")} == {("text",)}
    assert len(matching(FOUND, asked("outcome=error&modality=text"), "")) == 6
    assert [each.seq for each in matching(FOUND, asked("stage=vision_encode"), "REQ-17 i-0")] == [17]
    assert matching(FOUND, asked("endpoint=/v1/b"), "") == []


def test_the_newest_come_first_or_the_slowest() -> None:
    assert [each.seq for each in shown_page(ROWS, HERE)[0]][:2] == [60, 59]
    slow = (*ROWS, row(61, seconds=0.001), row(62, seconds=99.0))
    assert shown_page(slow, asked("sort=slow"))[0][0].seq == 62
    last, page = shown_page(ROWS, asked("page=99"))
    assert (len(last), page) == (60 - 2 * ROWS_A_PAGE, 2)


def test_filters_offer_what_there_is_and_keep_what_is_chosen() -> None:
    boxes = filters(FOUND, asked("endpoint=/v1/gone&stage=own"))
    said = [box.text() for box in boxes]
    assert said == [
        "OrderNewestSlowest",
        "ModalityAllimagetext",
        "OutcomeAllerrorok",
        "EndpointAll/v1/a/v1/gone",
        "PassedAllown",
    ]
    chosen = [each.text() for box in boxes for each in box.find("a") if each.attributes.get("aria-current")]
    assert chosen == ["Newest", "All", "All", "/v1/gone", "own"]


def test_a_pager_is_there_where_there_is_more_than_a_page() -> None:
    assert [each.text() for each in pager(HERE, 0, 20, 25)] == ["20"]
    back, place, on = pager(HERE, 1, 60, 25)
    assert (back.attributes["href"], place.text(), on.attributes["href"]) == (
        "/requests/",
        "26–50 of 60",
        "/requests/?page=2",
    )
    assert "href" not in pager(HERE, 2, 60, 25)[2].attributes


def test_an_empty_list_says_why() -> None:
    empty = RequestList()
    assert "Not read yet" in request_table([], empty, HERE, is_read=False).text()
    assert "No request has finished yet" in request_table([], empty, HERE, is_read=True).text()
    assert "No request matches" in request_table([], FOUND, HERE, is_read=True).text()


def test_unknown_figures_are_dashes_with_their_reasons() -> None:
    bare = RequestRow(1, "", "/v1/a", "i-0", "", None, "odd", None, None)
    said = request_table([bare], RequestList((bare,)), HERE, is_read=True).text()
    assert "number 1" in said
    assert "unknown: the agent has not said" in said
    assert "unknown: no stage has run" in said
    whole = "".join(each.text() for each in facts(Waterfall(bare)))
    assert "unknown: below two output tokens" in whole


def test_segments_say_what_they_decided_and_what_nobody_timed() -> None:
    found = Waterfall(
        row(3, seconds=0.4),
        (
            Segment(
                "vision_encode", False, "image", 0, 0.3, critical_seconds=0.3, runs=1, parts=(("sync", 0.1),)
            ),
            Segment("llm_decode", False, "text", 0.3, 0.1, "first_begin", 0.0, runs=9, is_open=True),
            Segment("delivery", True, "", 0.39, 0.01, "gap", None, after="llm_decode"),
        ),
    )
    body = [each.text() for each in segment_table(found).find("tr")][1:]
    assert "300 ms 75 %" in body[0]
    assert "never ended ≈" in body[1]
    assert "only stages that a thread works on synchronously" in body[1]
    assert "wait, llm_decode → end" in body[2]
    assert "≈ several runs" in "".join(each.text() for each in legend(found))
    assert "No stage of this request is known" in segment_table(Waterfall(row(1))).text()


def test_tables_of_nothing_say_so() -> None:
    assert "No request has made a token yet" in tokens_table(latency({})).text()
    assert parts_table(latency({})) is None
    assert "No request has finished yet" in component_table(components({}), HERE).text()
    assert "No request has finished yet" in class_table(classes({}).classes, "size").text()


def test_between_tokens_says_whether_samples_are_few_or_none() -> None:
    row = {"modality": "text", "requests": 109, "ttft_samples": 109, "ttft_p50_seconds": 0.1}
    none = tokens_table(latency({"total": {**row, "itl_samples": 0}})).text()
    assert none.count("no ITL") == 2
    assert "no request told of two output tokens" in none
    assert none.count("n < 20") == 1, "of the first token's P95 alone"
    few = tokens_table(latency({"total": {**row, "itl_samples": 7}})).text()
    assert few.count("7 of the last 60 s are too few") == 2
    unsaid = tokens_table(latency({"total": row})).text()
    assert "not in the metrics" in unsaid


def test_a_component_leads_to_the_requests_that_passed_it() -> None:
    found = components({"components": [{"stage": "queue<b>", "kind": "stage", "count": 3, "variance": 0.04}]})
    table = component_table(found, HERE)
    assert [each.attributes["href"] for each in table.find("a")] == ["/requests/?stage=queue%3Cb%3E"]
    assert "200 ms" in table.text(), "the standard deviation is the variance's root"


def test_many_parts_are_cut_and_the_rest_is_one_row() -> None:
    parts = [{"name": f"s{n}", "share": 0.05} for n in range(20)]
    table = parts_table(latency({"total": {"modality": "all", "requests": 3, "parts": parts}}))
    assert table is not None
    assert "12 others" in table.text()
    assert "60 %" in table.text()
