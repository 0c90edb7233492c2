# SPDX-License-Identifier: Apache-2.0
"""What stands on the screen: everything where there is room, the important things where there is not."""

from __future__ import annotations

import click
import msgspec
import pytest
from rich.cells import cell_len
from support.answers import answering
from support.top_agent import TopAgent

from hotstage.cli.client import AgentClient
from hotstage.cli.top import SortName
from hotstage.cli.top.live import pressed
from hotstage.cli.top.look import Look, top_of
from hotstage.cli.top.screen import Choice, Trouble, last_first_row, screen
from hotstage.cli.top.views import PROCESSES, STAGES, VIEWS, rate, thread_share


def top_with(**said):
    """After two looks; `lost`: what is lost between them."""
    agent = TopAgent(**{name: value for name, value in said.items() if name != "lost"})
    with answering(agent.answer) as address:
        client = AgentClient(url=address)
        before = Look.at(client)
        agent.losses = said.get("lost", {})
        return top_of(before, Look.at(client))


def lines(top, choice=None, size=(200, 40), trouble=None):
    drawn = screen(top, choice or Choice(), size, VIEWS, trouble)
    return ["".join(text for text, _ in line) for line in drawn]


def test_a_wide_screen_shows_every_column_and_sum():
    text = "\n".join(lines(top_with(kinds=("gpu_xid", "gpu_xid"))))
    for column in PROCESSES.columns:
        assert column.name in text
    assert "host gpu-7" in text and "rung S, libbpf" in text and "probes on" in text
    assert "windows open 2: gpu_xid" in text
    assert "1500 launches/s" in text and "without a stage 12.5%" in text and "requests in flight 7" in text
    assert "governor on, limit 2%, 1 spared" in text
    assert "losses in the last" in text and ": none" in text
    assert "≥ 1.0 GiB" in text and "counts_only" in text


def test_a_thread_that_is_stuck_in_a_sync_shows_and_comes_first_by_that_column():
    """It has been in one call for a minute, so the mean of what returned is nothing."""
    found = lines(top_with(is_stuck=True), Choice(sort={"processes": "sync"}))
    rows = [line.split("  ") for line in found if "server-10" in line]
    assert "server-101" in "  ".join(rows[0])
    assert "0% + 61.2 s in flight" in "  ".join(rows[0])
    assert "in flight" not in "  ".join(rows[1]), "an allocation of 20 ms is none that is stuck"
    assert "of returned calls; + what is in flight" in found[-1]


@pytest.mark.parametrize("size", [(200, 40), (100, 24), (60, 12), (30, 6), (10, 4)])
@pytest.mark.parametrize("view", VIEWS)
def test_a_screen_is_as_large_as_its_terminal_and_no_larger(size, view):
    found = lines(
        top_with(processes=60, lost=dict.fromkeys("abcdef", 1), off="switched off"), Choice(view), size
    )
    assert len(found) == size[1]
    assert max(map(cell_len, found)) <= size[0]


def test_a_narrow_screen_gives_up_what_matters_least():
    narrow = "\n".join(lines(top_with(), size=(60, 12)))
    assert "pid" in narrow and "launch/s" in narrow and "GPU mem" in narrow
    assert "run queue" not in narrow and "no stage" not in narrow


def test_a_governor_that_is_off_is_said_where_there_is_little_room():
    top = top_with(kinds=("gpu_xid", "stage_latency"))
    top = msgspec.structs.replace(top, host=msgspec.structs.replace(top.host, governor="off"))
    assert "governor off" in lines(top, size=(100, 24))[1]


def test_the_heading_says_of_which_time_rates_are():
    assert lines(top_with(), size=(60, 12))[2].startswith("means of 10 s:")


def test_the_heading_says_what_is_watched_and_what_is_left_out():
    top = top_with(processes=3)
    rows = [
        msgspec.structs.replace(row, state=state)
        for row, state in zip(top.processes, ("off", "failed", "off"), strict=True)
    ]
    assert lines(top, size=(80, 24))[1].startswith("watched: 3 processes  left out: none")
    assert (
        "left out: 2 off, 1 failed" in lines(msgspec.structs.replace(top, processes=rows), size=(80, 24))[1]
    )


def test_a_column_to_sort_by_may_be_begun():
    said = SortName()
    assert [said.convert(text, None, None) for text in ("launch", "runq", "sync", "run/s")] == [
        "launch/s",
        "run queue",
        "sync",
        "run/s",
    ]
    for text in ("run", "", "nothing"):
        with pytest.raises(click.BadParameter, match=r"sync|run/s"):
            said.convert(text, None, None)


def test_losses_name_what_they_may_falsify_and_do_not_push_the_table_out():
    found = lines(top_with(lost={"lost_threads": 3, "b": 1, "c": 1, "d": 1, "e": 1}), size=(160, 14))
    assert any("lost_threads 3, may falsify: its calls and stages are missing" in line for line in found)
    assert any("and 2 more kinds" in line for line in found)
    assert any("server-100" in line for line in found)


def test_probes_that_are_off_are_said_with_the_reason():
    assert any("nothing is seen: by root: noise" in line for line in lines(top_with(off="by root: noise")))


def test_rows_are_sorted_the_largest_first_and_unknown_last():
    top = top_with(processes=3)
    assert [row.pid for row in PROCESSES.sorted(top, "sync")] == [102, 101, 100]
    assert [row.pid for row in PROCESSES.sorted(top, "probes")] == [100, 101, 102]


def test_s_goes_through_the_columns_and_comes_back():
    choice, seen = Choice(), []
    for _ in PROCESSES.sorts:
        choice = pressed(choice, "s", page=5)
        seen.append(choice.sorted_by)
    assert sorted(seen) == sorted(PROCESSES.sorts) and choice.sorted_by == PROCESSES.sort
    assert pressed(Choice(STAGES), "s", page=5).sorted_by == STAGES.sorts[0]


def test_keys_show_views_and_move_rows_no_further_than_the_last():
    top, size = top_with(processes=60), (100, 24)
    assert pressed(Choice(first_row=9), "t", page=5) == Choice(STAGES)
    assert pressed(Choice(), "k", page=5).first_row == 0
    down = pressed(pressed(Choice(), "j", page=5), "page down", page=5)
    assert down.first_row == 6
    last = last_first_row(top, Choice(), size, None)
    shown = lines(top, Choice(first_row=last), size)
    assert "server-159" in shown[-2] and f"rows {last + 1}-60 of 60" in shown[-1]


def test_a_silent_agent_is_named_with_the_remedy_and_what_was_known_stays():
    found = lines(top_with(), trouble=Trouble("no agent answers at x", "start one", 12.0))
    assert found[0] == "no answer for 12 s: no agent answers at x"
    assert "remedy: start one" in found[1]
    assert any("server-100" in line for line in found)


def test_names_do_not_control_the_terminal():
    top = top_with(kinds=("\x1b[2Jevil",))
    assert not any("\x1b" in line for line in lines(top))


def test_figures_are_short_and_unknown_is_a_dash():
    assert [rate(value) for value in (None, 0.0, 5.4e-14, 0.125, 1234.5)] == ["—", "0", "0", "0.125", "1234"]
    assert [thread_share(value) for value in (None, 0.0, 0.004, 0.63, 2.1)] == [
        "—",
        "0%",
        "0.4%",
        "63%",
        "210%",
    ]
