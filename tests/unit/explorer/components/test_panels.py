# SPDX-License-Identifier: Apache-2.0
"""What the panels say, read as text."""

from __future__ import annotations

from typing import Any

from hotstage_explorer.components import breakers, notices, scene_notes, stage_table, status, windows
from hotstage_explorer.components.absent import unread
from hotstage_explorer.components.node import Node
from hotstage_explorer.figures import points
from hotstage_explorer.picture import (
    BreakerRow,
    Coverage,
    Evidence,
    HeatPoint,
    HostRow,
    Picture,
    Problem,
    Section,
    StageRow,
    Stages,
    WindowRow,
)
from hotstage_explorer.sources.prometheus import origin

NOW_NS = 1_700_000_020_000_000_000
SECOND = 1_000_000_000
STALL = WindowRow(
    "w-1",
    "stage_latency",
    "critical",
    True,
    NOW_NS - 12 * SECOND,
    None,
    entity=(("instance", "i-0"), ("stage", "vision_encode"), ("modality", "image")),
    cause="vision_encode takes 9 × its baseline",
    confidence=0.87,
    figures_ns=NOW_NS - 1 * SECOND,
    peak_ns=NOW_NS - 9 * SECOND,
    score=9.2,
    evidence=(Evidence("stage_open_age_seconds", 0.78, 0.19, "seconds", "4 of 4"),),
)


def section(value: Any) -> Section[Any]:
    return Section(value, read_at=1.0)


def live(**parts: Any) -> Picture:
    return Picture(
        "http://127.0.0.1:9178",
        version=1,
        link="live",
        tick=5,
        tick_wall_ns=NOW_NS,
        tick_moved_at=100.0,
        **parts,
    )


def said(nodes: list[Node]) -> str:
    return " ".join(n.text() for n in nodes)


def test_an_open_window_says_what_where_since_when_and_why() -> None:
    text = windows.windows(section((STALL,)), NOW_NS).text()
    for words in (
        "critical",
        "Stage latency",
        "vision_encode",
        "image",
        "instance i-0",
        "since 22:13:28 · 12 s",
        "9 ×",
    ):
        assert words in text
    assert "Figures of its newest sign, 22:13:39; at its worst 9.20 × its limit, 22:13:31" in text
    assert "stage_open_age_seconds 780 ms (limit 190 ms) 4 of 4" in text
    assert "Confidence in this cause: 87 %" in text


def test_a_closed_window_is_marked_closed_with_its_length() -> None:
    row = WindowRow("w-2", "gpu_xid", "critical", False, NOW_NS - 60 * SECOND, NOW_NS - 30 * SECOND)
    made = windows.windows(section((row,)), NOW_NS)
    assert "lasted 30 s" in made.text()
    assert next(made.find("li")).attributes["class"].endswith("closed")


def test_a_window_that_another_one_explains_says_so() -> None:
    row = WindowRow("w-2", "process_death", "critical", True, None, None, caused_by="w-1")
    assert "Explained by window w-1" in windows.windows(section((row,)), NOW_NS).text()
    assert "Explained" not in windows.windows(section((STALL,)), NOW_NS).text()


def test_an_unknown_kind_and_severity_are_shown_as_they_are() -> None:
    made = windows.windows(section((WindowRow("w", "queue_too_long", "page", True, None, None),)), NOW_NS)
    assert "queue too long" in made.text()
    assert "page" in made.text()
    assert "info" in next(made.find("li")).attributes["class"]


def test_a_window_leads_to_its_snapshot_where_an_agent_has_one() -> None:
    row = WindowRow("w/../<b>", "stage_latency", "critical", True, None, None)
    (way,) = windows.windows(section((row,)), NOW_NS).find("a")
    assert way.attributes["href"] == "/snapshots/w%2F..%2F%3Cb%3E"
    assert list(windows.windows(section((row,)), NOW_NS, origin("Prometheus")).find("a")) == []


def test_no_window_is_different_from_not_read_yet() -> None:
    assert "No anomaly window" in windows.windows(section(()), None).text()
    assert "Not read yet" in windows.windows(Section(()), None).text()


def test_a_breaker_says_state_in_words_and_whether_it_is_heeded() -> None:
    rows = (
        BreakerRow("gpu:GPU-1", "half_open", True, NOW_NS - 5 * SECOND, "cool-down over"),
        BreakerRow("host", "closed", False, None, override="metrics_only", is_stale=True),
    )
    text = breakers.breakers(section(rows), NOW_NS).text()
    for words in (
        "half open",
        "enforced",
        "5.0 s",
        "cool-down over",
        "dry run",
        "override: metrics only",
        "stale",
        "since —",
    ):
        assert words in text
    assert breakers.tally(section(rows)) == "1 of 2 not closed"


def test_a_quantile_of_few_requests_is_a_dash_with_its_reason() -> None:
    row = StageRow("queue", "text", requests=3, inflight=0)
    made = stage_table.stage_table(section(Stages((row,))), ())
    assert made.text().count("n < 20") == 3
    assert "fewer than 20 requests in the last 60 s" in made.text()


def test_a_stage_that_a_window_names_is_marked() -> None:
    rows = (StageRow("vision_encode", "image"), StageRow("vision_encode", "video"))
    made = stage_table.stage_table(section(Stages(rows)), (STALL,))
    marks = [tr.attributes.get("class") for tr in made.find("tr")][1:]
    assert marks == ["marked critical", None]


def test_the_strip_shows_coverage_loss_and_freshness() -> None:
    picture = live(
        host="gpu-1",
        coverage=section(
            Coverage("libbpf", "S", attached=74, missed=2, processes=1, counted=1234567, open=3, lost=9)
        ),
        stages=section(Stages((), 0.013)),
    )
    made = status.status(picture, "live", 100.4)
    text = said(made)
    for words in (
        "gpu-1",
        "libbpf · rung S",
        "74 symbols in 1 process · 2 missed",
        "1,234,567",
        "1.3 %",
        "live · 0.4 s ago",
    ):
        assert words in text
    assert any("bad" in n.attributes["class"] for n in made), "a loss stands out"


def test_a_strip_without_data_says_unknown_and_never_zero() -> None:
    text = said(status.status(Picture("http://h"), "starting", 0.0))
    assert text.count("unknown:") == 7
    assert "0" not in text


def test_data_is_stale_by_its_tick_and_by_its_own_word() -> None:
    assert notices.freshness(live(), 104.9) == "live"
    assert notices.freshness(live(), 105.1) == "stale"
    assert notices.freshness(live(says_stale=True), 100.0) == "stale"


def test_an_unreachable_agent_is_named_with_remedy_and_the_age_of_what_is_shown() -> None:
    picture = Picture(
        "http://h:1",
        link="unreachable",
        problem=Problem(
            "Agent unreachable",
            "No answer from http://h:1: connection refused.",
            "Start it with `hotstage agent`.",
        ),
        tick_wall_ns=NOW_NS,
        tick_moved_at=100.0,
    )
    (notice,) = notices.notices(picture, 134.0)
    assert notice.severity == "critical"
    text = notice.shown().text()
    assert (
        "connection refused. Start it with hotstage agent. Below are the values of 22:13:40 UTC, 34 s ago."
        in text
    )
    assert next(notice.shown().find("code")).text() == "hotstage agent"


def test_a_part_that_fails_is_named_and_the_rest_is_not() -> None:
    picture = live(breakers=Section((), 1.0, "/v1/breakers answered HTTP 500"))
    (notice,) = notices.notices(picture, 100.0)
    assert "Breakers: /v1/breakers answered HTTP 500." in notice.sentences
    assert notice.severity == "warning"


def test_a_live_picture_has_no_notice() -> None:
    assert notices.notices(live(), 100.0) == []


def test_the_words_beside_the_drawing_tell_what_is_left_out() -> None:
    hot = HeatPoint("/hot", "i-0", "text", heat=9.0, p95_seconds=0.1, load_ratio=0.5, requests=40)
    cool = HeatPoint("/cool", "i-0", "text", heat=1.0, p95_seconds=0.9, load_ratio=0.5, requests=30)
    young = HeatPoint("/young", "i-0", "text", heat=1.0, load_ratio=0.5, requests=3)
    text = said(scene_notes.caption(points.select([hot, cool, young], limit=1)))
    assert "Hottest: /hot on i-0: 9.00 weighted requests/s, P95 100 ms, load 50 %" in text
    assert "Not drawn: 1 (P95 unknown, n < 20)" in text
    assert (
        "Not drawn: 1 cooler ones, together 1.00 weighted requests/s, 30 requests, highest P95 900 ms" in text
    )


def test_an_empty_drawing_says_which_coordinate_is_missing() -> None:
    busy = HeatPoint("/busy", "i-0", "text", heat=1.8, p95_seconds=0.2, requests=109)
    made = scene_notes.empty(live(heat=section((busy, busy))), points.select([busy, busy]))
    assert made
    assert "2 points known" in made.text()
    assert "Missing: the instance's load of 2. No process of the instance has been measured" in made.text()
    assert "20 requests within 60 s" not in made.text()
    young = points.select([HeatPoint("/young", "i-0", "text", heat=1.0, load_ratio=0.5)])
    made = scene_notes.empty(live(heat=section(young.incomplete)), young)
    assert made
    assert "the P95 of 1, which takes 20 requests within 60 s" in made.text()
    assert "load" not in made.text()
    drawn = HeatPoint("/hot", "i-0", "text", heat=9.0, p95_seconds=0.1, load_ratio=0.5, requests=40)
    assert "Not drawn: 1 (load unknown)" in said(scene_notes.caption(points.select([drawn, busy])))


def test_what_could_not_be_read_has_a_remedy() -> None:
    gone = unread(Section(None, problem="/v1/snapshots/x answered HTTP 404"), elsewhere=["Choose another."])
    assert "Not found" in gone.text() and "Choose another." in gone.text()
    broken = unread(Section(None, problem="/v1/classes answered HTTP 500"), elsewhere=["Choose another."])
    assert "Could not be read" in broken.text() and "hotstage --version" in broken.text()
    assert "Choose another." not in broken.text()
    assert unread(Section(None)).text() == "Not read yet"


def test_empty_says_why() -> None:
    nothing = points.select([])
    young = points.select([HeatPoint("/young", "i-0", "text", heat=1.0, load_ratio=0.5)])
    for picture, selection, words in (
        (Picture("http://h"), nothing, "No data yet"),
        (live(heat=section(())), nothing, "No traffic yet"),
        (live(heat=section(young.incomplete)), young, "1 point known, none can be placed yet"),
    ):
        made = scene_notes.empty(picture, selection)
        assert made
        assert words in made.text()


def hosts_of(*rows: HostRow, **parts: Any) -> Picture:
    return live(origin=origin("Prometheus 2.42.0"), hosts=rows, **parts)


def test_a_silent_host_among_others_is_named_with_its_age() -> None:
    silent = HostRow("gpu-2", sampled_at=60.0, is_scraped=False)
    picture = hosts_of(HostRow("gpu-1", sampled_at=100.0), silent)
    assert notices.freshness(picture, 100.5) == "live"
    (found,) = notices.notices(picture, 100.5)
    assert found.title == "Silent hosts"
    assert "gpu-2: its last sample is 40 s old and its scrape fails." in found.shown().text()


def test_when_every_host_is_silent_the_page_is_old_however_short_that_is() -> None:
    picture = hosts_of(HostRow("gpu-1", sampled_at=100.0, is_scraped=False))
    assert notices.freshness(picture, 100.5) == "stale"
    said = notices.notices(picture, 100.5)[0].shown().text()
    assert "Prometheus 2.42.0 answers, but its last sample is from" in said
    assert "its scrape fails" in said


def test_what_a_source_says_against_its_answer_is_shown() -> None:
    (found,) = notices.notices(hosts_of(caveats=("a store is gone",)), 100.5)
    assert found.title == "Prometheus 2.42.0 says that its data is not whole"
    assert "a store is gone." in found.shown().text()


def test_the_source_is_named_with_its_address() -> None:
    said_words = said(status.status(hosts_of(), "live", 100.0))
    assert "Source" in said_words
    assert "Prometheus 2.42.0 127.0.0.1:9178" in said_words
    assert "not in the metrics" in said_words, "calls counted and lost are absent, with the reason"


def test_a_window_from_metrics_names_its_host_and_has_no_cause() -> None:
    row = WindowRow(
        "x",
        "stage_latency",
        "critical",
        True,
        NOW_NS - 12 * SECOND,
        None,
        host="gpu-2",
        count=2,
        is_about=True,
    )
    text = windows.windows(section((row,)), NOW_NS, origin("Prometheus")).text()
    assert "Stage latency × 2" in text
    assert "since about" in text
    assert "gpu-2" in text
    assert "No cause is in the metrics." in text
    assert windows.tally(section((row,))) == "2 open"


def test_stages_of_several_hosts_have_a_column_for_them_and_say_what_quantiles_are_of() -> None:
    rows = tuple(StageRow("queue", "text", requests=40, inflight=1, p95_seconds=0.2, host=h) for h in "ab")
    made = stage_table.stage_table(
        section(Stages(rows, quantiles_over="histogram, last 60 s")), (), origin("Prometheus")
    )
    heads = [head.text() for head in made.find("th")]
    assert "Host" in heads
    assert "P95histogram, last 60 s" in heads
    assert made.text().count("unknown: not in the metrics") == 2, "the age of the oldest"


def test_points_of_a_silent_host_are_left_out_with_the_reason() -> None:
    old = HeatPoint("/a", "i-0", "text", 1.0, 1.0, 1.0, 30, 0.4, host="gpu-2", is_old=True)
    selection = points.select((HeatPoint("/a", "i-0", "text", 1.0, 1.0, 1.0, 30, 0.4, host="gpu-1"), old))
    text = said(scene_notes.caption(selection))
    assert "on i-0 of gpu-1" in text
    assert "Not drawn: 1 (host silent)" in text
