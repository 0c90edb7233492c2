# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hotstage_explorer.picture import (
    BreakerRow,
    Coverage,
    HeatPoint,
    HostRow,
    Picture,
    Section,
    StageRow,
    Stages,
    WindowRow,
)

ONE = HostRow("gpu-1", sampled_at=100.0, sampled_ns=1, coverage=Coverage(attached=60), unattributed_ratio=0.1)
TWO = HostRow("gpu-2", sampled_at=50.0, sampled_ns=2, coverage=Coverage(attached=70), unattributed_ratio=0.2)


def point(host: str) -> HeatPoint:
    return HeatPoint("/a", "i-0", "text", heat=1.0, p95_seconds=1.0, load_ratio=0.5, host=host)


def both() -> Picture:
    names = ("gpu-1", "gpu-2")
    return Picture(
        "http://127.0.0.1:9090",
        host="2 hosts",
        tick_moved_at=100.0,
        hosts=(ONE, TWO),
        heat=Section(tuple(point(name) for name in names), 1.0),
        stages=Section(Stages(tuple(StageRow("queue", "text", host=name) for name in names)), 1.0),
        windows=Section(
            tuple(WindowRow(name, "k", "info", True, None, None, host=name) for name in names), 1.0
        ),
        breakers=Section(tuple(BreakerRow("host", "open", False, None, host=name) for name in names), 1.0),
        coverage=Section(Coverage(attached=130), 1.0),
    )


def test_one_host_of_several_has_its_rows_its_figures_and_its_own_age() -> None:
    seen = both().of_host("gpu-2")
    assert seen.host == "gpu-2"
    assert {p.host for p in seen.heat.value} == {"gpu-2"}
    assert {r.host for r in seen.stages.value.rows} == {"gpu-2"}
    assert {w.host for w in seen.windows.value} == {"gpu-2"}
    assert {b.host for b in seen.breakers.value} == {"gpu-2"}
    assert seen.stages.value.unattributed_ratio == 0.2
    assert seen.coverage.value.attached == 70
    assert seen.age_seconds(101.0) == 51.0


def test_an_unknown_host_is_no_choice() -> None:
    assert both().of_host("gpu-9") is not None
    assert both().of_host("gpu-9") == both().of_host("")


def test_points_of_a_silent_host_are_told_from_the_others_and_not_drawn() -> None:
    seen = both().seen_at(101.0)
    assert [(p.host, p.is_old, p.is_drawable) for p in seen.heat.value] == [
        ("gpu-1", False, True),
        ("gpu-2", True, False),
    ]


def test_when_all_are_silent_the_whole_picture_is_old_and_stays_drawn() -> None:
    assert both().seen_at(500.0) == both()


def test_a_host_whose_scrape_fails_is_old_at_once() -> None:
    assert HostRow("gpu-1", sampled_at=100.0, is_scraped=False).is_old(100.1)
    assert not HostRow("gpu-1", sampled_at=100.0, is_scraped=True).is_old(100.1)


def test_equal_names_on_two_hosts_have_two_keys() -> None:
    assert point("gpu-1").key != point("gpu-2").key
