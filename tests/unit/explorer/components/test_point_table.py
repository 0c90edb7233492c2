# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from hotstage_explorer.components import point_table
from hotstage_explorer.components.point_table import View, arranged
from hotstage_explorer.components.point_table import point_table as table
from hotstage_explorer.picture import HeatPoint, Section

FAST = HeatPoint("/fast", "i-0", "text", heat=1.0, p95_seconds=0.1, load_ratio=0.2, requests=100)
SLOW = HeatPoint("/slow", "i-1", "video", heat=3.0, p95_seconds=2.0, load_ratio=0.9, requests=50)
YOUNG = HeatPoint("/young", "i-0", "image", heat=2.0, load_ratio=0.4, requests=7)
ALL = (FAST, SLOW, YOUNG)


def names(view: View) -> list[str]:
    return [p.endpoint for p in arranged(ALL, view)]


def test_hottest_first_unless_asked_otherwise() -> None:
    assert names(View()) == ["/slow", "/young", "/fast"]


def test_unknown_values_come_last_either_way() -> None:
    assert names(View("p95")) == ["/slow", "/fast", "/young"]
    assert names(View("p95", is_descending=False)) == ["/fast", "/slow", "/young"]


def test_a_second_click_turns_the_order_round() -> None:
    once = point_table.sorted_by(View(), "p95")
    assert once == View("p95", True)
    assert point_table.sorted_by(once, "p95") == View("p95", False)
    assert point_table.sorted_by(once, "nonsense") == once


def test_every_word_of_the_filter_must_be_in_the_names() -> None:
    assert names(View(words="I-0 text")) == ["/fast"]
    assert names(View(words="nowhere")) == []


def test_pages_are_counted_and_the_last_one_holds() -> None:
    many = tuple(HeatPoint(f"/{n:03}", "i-0", "text", heat=float(n)) for n in range(45))
    made, place = table(Section(many, 1.0), View(page=99))
    assert place == "41–45 of 45"
    assert len(list(made.find("tr"))) == 1 + 5


def test_an_unknown_p95_is_a_dash_with_its_reason() -> None:
    text = table(Section((YOUNG,), 1.0), View())[0].text()
    assert "—n < 20" in text
    assert "fewer than 20 requests in the last 60 s" in text


def test_the_sorted_column_says_so_to_screen_readers() -> None:
    heads = [th.attributes.get("aria-sort") for th in table(Section(ALL, 1.0), View("p95"))[0].find("th")]
    assert heads.count("descending") == 1


def test_what_a_browser_kept_is_not_trusted() -> None:
    assert (
        point_table.view_of({"sort": "heat'); drop", "descending": "x", "words": None, "page": -3}) == View()
    )
    assert point_table.view_of([]) == View()
    assert point_table.view_of(View("p95", False, "a", 2).to_json()) == View("p95", False, "a", 2)


def test_nothing_to_show_says_why() -> None:
    assert "Not read yet" in table(Section(()), View())[0].text()
    assert "No endpoint has served a request yet" in table(Section((), 1.0), View())[0].text()
    assert "matches “zzz”" in table(Section(ALL, 1.0), View(words="zzz"))[0].text()


def test_several_hosts_have_a_column_that_is_sorted_and_filtered_by() -> None:
    rows = tuple(replace(FAST, host=host, is_old=host == "gpu-2") for host in ("gpu-1", "gpu-2"))
    shown, _ = table(Section(rows, 1.0), View())
    assert "Host" in shown.text()
    assert "silent" in shown.text()
    assert [p.host for p in arranged(rows, View("host", True))] == ["gpu-2", "gpu-1"]
    assert [p.host for p in arranged(rows, View(words="gpu-1"))] == ["gpu-1"]


def test_a_single_host_has_no_column() -> None:
    shown, _ = table(Section((FAST,), 1.0), View())
    assert "Host" not in shown.text()
