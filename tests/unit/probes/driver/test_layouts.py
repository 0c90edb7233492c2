# SPDX-License-Identifier: Apache-2.0
"""What bcc is told of an event follows from the layout that tracefs shows."""

from __future__ import annotations

from hotstage.probes.driver.layouts import counting_programs, fields_of, macros
from hotstage.probes.driver.table import TABLE, index_of

MARK_VICTIM = """name: mark_victim
ID: 609
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] comm;\toffset:12;\tsize:4;\tsigned:0;
\tfield:char name[16];\toffset:16;\tsize:16;\tsigned:0;

print fmt: "pid=%d comm=%s", REC->pid, __get_str(comm)
"""
BY_NAME = {event.event: event for event in TABLE}


def test_fields_are_told_with_where_their_text_is() -> None:
    assert fields_of(MARK_VICTIM) == {"pid": False, "comm": True, "name": False}


def test_optional_fields_are_asked_for_where_the_layout_has_them() -> None:
    event = BY_NAME["oom:mark_victim"]
    number = index_of(event)
    assert macros([event], {event.event: fields_of(MARK_VICTIM)}) == [
        "ON_oom_mark_victim",
        f"EVENT_oom_mark_victim={number}",
        "HAS_oom_mark_victim_comm",
    ]
    assert macros([event], {event.event: ["pid"]})[2:] == []


def test_a_job_is_counted_by_ring_where_the_layout_names_one_as_text() -> None:
    event = BY_NAME["gpu_scheduler:drm_sched_job_run"]
    program = counting_programs([event], {event.event: {"id": False, "name": True}})
    assert "TRACEPOINT_PROBE(gpu_scheduler, drm_sched_job_run)" in program
    assert f"count_event({index_of(event)});" in program
    assert "args->data_loc_name" in program
    assert "count_ring" not in counting_programs([event], {event.event: {"name": False}})


def test_events_with_programs_of_their_own_get_no_other() -> None:
    assert counting_programs([BY_NAME["oom:mark_victim"]], {"oom:mark_victim": {}}) == ""
