# SPDX-License-Identifier: Apache-2.0
"""`hotstage coverage`: one screen that says what matters, and with `--all` every table."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from hotstage.cli.call_costs import cost_of_a_call
from hotstage.cli.coverage import coverage
from hotstage.cli.coverage_tables import _tell_restraint
from hotstage.probes.losses import MEANINGS

TRIAL = {
    "placement": "refuted",
    "reason": "cuDriverGetVersion under a probe: it ended by SIGILL",
    "calls": 0,
    "audit": {"asked": 1000, "answered": 712, "internal": ["cuMemAlloc 3020 flags 1"], "unprobed": []},
    "driver_version": 12040,
    "seconds": 0.05,
}


def process(pid: int, trial: dict[str, object] | None) -> dict[str, object]:
    library = {"kind": "libcuda", "path": "/lib/libcuda.so", "build_id": "b1d", "state": "attached"}
    return {
        "pid": pid,
        "name": "server",
        "libraries": [library | {"attached": 9, "emulated": 0, "trial": trial}],
    }


def answer(losses: Mapping[str, int]) -> dict[str, object]:
    return {
        "loader": "libbpf",
        "rung": "S",
        "attached": 9,
        "calls": {"counted": 5, "open": 0, "lost": 0},
        "processes": [process(40, TRIAL), process(41, TRIAL), process(42, None)],
        "missed": [{"symbol": "cuFoo", "reason": "not in this library", "library": "/lib/libcuda.so"}],
        "driver": DRIVER,
        "custom": [
            {
                "path": "/etc/hotstage/probes.d/io.bpf.c",
                "state": "refused",
                "reason": "/etc/hotstage/probes.d/io.bpf.c:6: `#include X`",
                "remedy": "mend it",
                "since_ns": 5,
                "metrics": ["hotstage_custom_io_reads_total"],
            }
        ],
        "scheduler": {"state": "off", "through": None, "reason": "no BTF", "remedy": None},
        "losses": losses,
    }


DRIVER = {
    "state": "watching",
    "reason": None,
    "remedy": None,
    "queue_submit": {"through": "cuLaunch*", "is_derived": True, "count": 5, "reason": "derived from calls"},
    "events": [
        {"event": "oom:mark_victim", "state": "attached", "hits": 1, "reason": None, "gives": "who"},
        {
            "event": "gpu_mem:gpu_mem_total",
            "state": "absent",
            "hits": None,
            "reason": "no such",
            "gives": "x",
        },
        {"event": "sched:sched_switch", "state": "unused", "hits": None, "reason": "not used", "gives": "y"},
    ],
    "timelines": [
        {
            "driver": "amdgpu",
            "timeline": "gfx_0.0.0",
            "emitted": 9,
            "open": 1,
            "p50_seconds": 0.25,
            "p99_seconds": None,
        }
    ],
    "ioctls": [
        {
            "device": "nvidia",
            "kind": "allocate",
            "count": 3,
            "errors": 1,
            "slow": 0,
            "total_seconds": 0.25,
            "max_seconds": 0.125,
        }
    ],
    "oom_kills": [{"pid": 77, "name": "python3", "uses_gpu": True}],
}


@pytest.fixture
def said() -> Iterator[Callable[..., list[str]]]:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(bodies[-1])))
            self.end_headers()
            self.wfile.write(bodies[-1])

        def log_message(self, format: str, *values: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def said_(*options: str, **losses: int) -> list[str]:
        return told(answer(losses), *options)

    def told(body: Mapping[str, object], *options: str) -> list[str]:
        bodies.append(json.dumps(body).encode())
        address = ["--agent", f"http://127.0.0.1:{server.server_port}"]
        done = CliRunner().invoke(coverage, [*address, *options])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    said_.told = told  # type: ignore[attr-defined]
    yield said_
    server.shutdown()
    server.server_close()


def test_what_was_lost_is_told_with_meaning_and_remedy(said) -> None:
    lines = said("--all", missed_request=25, lost_threads=0)
    told = MEANINGS["missed_request"]
    at = lines.index(f"missed_request: {told.means}")
    assert lines[at + 1 : at + 3] == [f"  may falsify: {told.falsifies}", f"  remedy: {told.helps}"]
    assert not any("lost_threads" in line for line in lines)


def test_a_loss_of_another_version_is_told_as_unknown(said) -> None:
    assert any(
        line.startswith("lost_elsewhere: a loss that this version does not know")
        for line in said("--all", lost_elsewhere=1)
    )


def test_paths_stand_under_a_header_that_says_so(said) -> None:
    lines = said("--all")
    at = lines.index("why not probed\tsymbols\twhich\tlibrary")
    assert lines[at + 1] == "not in this library\t1\tcuFoo\t/lib/libcuda.so"


def test_driver_tracepoints_are_told_with_counts_or_reasons(said) -> None:
    lines = said("--all")
    assert "queue_submit: 5 by cuLaunch* (derived from calls)" in lines
    assert "oom:mark_victim\tattached\t1\twho" in lines
    assert any(
        line.startswith("gpu_mem:gpu_mem_total\tabsent") and line.endswith("no such") for line in lines
    )
    assert not any("sched_switch" in line for line in lines)
    assert "nvidia\tallocate\t3\t1\t0\t0.25\t0.125" in lines
    assert any(line.startswith("amdgpu\tgfx_0.0.0\t9\t1\t0.25") for line in lines)
    assert "killed for memory: pid 77 python3, used a GPU" in lines


def test_why_nobody_looks_at_switches_is_told(said) -> None:
    assert "run queue (waits for a CPU): off: no BTF" in said("--all")


def test_a_trial_is_told_once_for_each_library(said) -> None:
    lines = [line.split("\t") for line in said("--all") if line.startswith("refuted")]
    assert lines == [
        [
            "refuted",
            "cuDriverGetVersion under a probe: it ended by SIGILL",
            "712 addresses; not exported, so not probed: cuMemAlloc 3020 flags 1",
            "12040",
            "/lib/libcuda.so",
        ]
    ]


def test_a_trial_that_was_passed_names_what_it_called(said) -> None:
    passed = {
        "placement": "verified",
        "reason": None,
        "calls": 11,
        "functions": ["ncclGetVersion"],
        "audit": None,
    }
    lines = said.told({**answer({}), "processes": [process(40, TRIAL | passed)]}, "--all")
    (row,) = [line.split("\t") for line in lines if line.startswith("verified")]
    assert row[1:3] == ["11 calls of ncclGetVersion made, counted and right", "not asked"]


def test_who_was_killed_is_not_said_to_have_used_no_gpu_where_that_is_unknown(said) -> None:
    kills = [{"pid": 78, "name": None, "uses_gpu": uses} for uses in (None, False)]
    lines = said.told({**answer({}), "driver": DRIVER | {"oom_kills": kills}}, "--all")
    assert [line for line in lines if "pid 78" in line] == [
        "killed for memory: pid 78 , whether it used a GPU is unknown",
        "killed for memory: pid 78 , used no GPU",
    ]


def test_what_calls_cost_is_told_by_class_as_far_as_it_was_measured() -> None:
    costs = {"basis": "calibrated at noon", "launch": 578.6, "timed": None, "told": 1225.1}
    assert cost_of_a_call(costs) == "calibrated at noon: launch 579 ns, the same with its stack 1225 ns"


def test_an_own_program_that_is_refused_is_told_with_the_remedy_and_what_runs_on(said) -> None:
    lines = said("--all")
    assert "/etc/hotstage/probes.d/io.bpf.c\trefused\thotstage_custom_io_reads_total" in lines
    at = lines.index("/etc/hotstage/probes.d/io.bpf.c:6: `#include X`")
    assert lines[at + 1 : at + 3] == ["  remedy: mend it", "  the version before runs on"]


def test_what_holds_the_probes_back_is_told_before_the_tables(capsys) -> None:
    cost = {"reason": None, "cost_cores": 0.1, "since_ns": None, "retry_ns": None}
    library = {"path": "/lib/libcuda.so", "state": "denied", "reason": "denied by 'a': b"}
    _tell_restraint(
        {
            "off": None,
            "processes": [{"pid": 7, "name": "server", "libraries": [library]}],
            "governor": {
                "costs": {"basis": "calibrated on this host at noon"},
                "processes": [
                    {"pid": 7, "level": "counts_only", "cost_ratio": 0.0123, **cost},
                    {"pid": 8, "level": "full", "cost_ratio": None, **cost},
                ],
            },
            "map_bytes": {"threads": 3 << 20, "events": 1 << 20},
        }
    )
    assert capsys.readouterr().out.splitlines() == [
        "cost of a call: calibrated on this host at noon",
        "probes of 7: 1.23% of its CPU time, level counts_only",
        "kernel memory of maps: 4.0 MiB (threads 3.0, events 1.0)",
    ]


def glance(said, **changed):
    """At a glance, of the answer with these parts changed."""
    return said.told({**answer(changed.pop("losses", {})), **changed})


def test_a_glance_fits_a_screen_and_leads_to_the_rest(said) -> None:
    lines = said(missed_request=25)
    assert len(lines) <= 24
    assert lines[0] == "processes watched: 3, by loader libbpf, rung S; 9 symbols, each library once"
    assert "symbols not probed: 1 (libcuda.so: cuFoo: not in this library)" in lines
    assert "driver: 5 submissions by cuLaunch*; tracepoints 1 attached, 1 absent" in lines
    assert any(line.startswith("libraries tried before the attach: 1 refuted") for line in lines)
    assert lines[-1].endswith("`hotstage coverage --all`")


def test_a_glance_names_what_a_loss_falsifies_and_what_to_do(said) -> None:
    lines, told = said(missed_request=25), MEANINGS["missed_request"]
    assert f"missed_request 25: may falsify: {told.falsifies}" in lines
    assert f"to do: for missed_request: {told.helps}" in lines
    assert "to do: mend it" in lines, "the own program that is refused"


def test_all_is_well_is_said_in_so_many_words(said) -> None:
    lines = glance(said, custom=[], missed=[], scheduler=None)
    assert "losses: none; every figure is whole" in lines
    assert "symbols not probed: none that should be" in lines
    assert "to do: nothing; `hotstage top` shows it live" in lines


def test_since_when_is_told_by_the_youngest_epoch_on_the_wall(said) -> None:
    first = {"kind": "libcuda", "attached": 9, "state": "attached", "since_ns": 10**9, "path": "/a"}
    last = {"kind": "marks", "attached": 2, "state": "attached", "since_ns": 3 * 10**9, "path": "/b"}
    processes = [{"pid": 7, "name": "server", "libraries": [first, last]}]
    assert "7\tserver\t1970-01-01 00:00:04Z\tlibcuda 9, marks 2" in glance(
        said, processes=processes, wall_offset_ns=10**9
    )


def test_what_is_not_watched_is_told_with_the_reason(said) -> None:
    library = {
        "kind": "libcuda",
        "attached": 0,
        "path": "/l",
        "state": "denied",
        "reason": "denied by 'a': b",
    }
    lines = glance(said, processes=[{"pid": 7, "name": "server", "libraries": [library]}])
    assert "not watched: /l of 7 server is denied: denied by 'a': b" in lines
    assert "not watched: scheduler: off: no BTF" in lines


def test_probes_that_are_off_are_told_once_with_how_to_bring_them_back(said) -> None:
    lines = glance(said, off="by root: noise", processes=[])
    assert "not watched: anything: by root: noise" in lines
    assert "to do: `hotstage probes on` brings the probes back" in lines


def test_while_off_nothing_is_said_to_be_whole_watched_or_attached(said) -> None:
    lines = glance(said, off="by root: noise")
    assert lines[0].startswith("processes watched: none, the probes are off; 3 known")
    assert "driver: off with the probes" in lines
    assert not any("whole" in line or "tracepoints" in line for line in lines)


def test_what_was_not_watched_between_two_epochs_is_told_beside_the_counts(said) -> None:
    second = 10**9
    library = {"kind": "libcuda", "attached": 9, "state": "attached", "path": "/l", "since_ns": 60 * second}
    processes = [{"pid": pid, "name": "server", "libraries": [library]} for pid in (7, 8)]
    epochs = [{"pid": pid, "path": "/l", "since_ns": second, "until_ns": 20 * second} for pid in (7, 8, 9)]
    switched = {"moves": [{"state": "off", "actor": "uid 0", "at_ns": 20 * second}]}
    lines = glance(said, processes=processes, epochs=epochs, wall_offset_ns=0, **switched)
    (told,) = [line for line in lines if line.startswith("unobserved: ")]
    assert told.startswith(
        "unobserved: 2 processes from 1970-01-01 00:00:20Z to 1970-01-01 00:01:00Z (switched off by uid 0);"
    )
    assert "losses: none; every figure is whole but for what was unobserved" in lines
    alone = glance(said, processes=processes[:1], epochs=epochs, wall_offset_ns=0, moves=None)
    assert any("7 server from" in line and "(its probes were away, or" in line for line in alone)


def test_every_table_is_whole_and_does_not_lead_to_itself(said) -> None:
    missed = [{"symbol": f"cu{n}", "reason": "gone", "library": "/l"} for n in range(30)]
    copies = {"driver": {"to_device": {"calls": 1, "errors": 0, "bytes": 3 << 20}}}
    calls = {"counted": 5, "open": 0, "lost": 0, "copies": copies}
    lines = said.told({**answer({}), "missed": missed, "calls": calls}, "--all")
    assert f"gone\t30\t{', '.join(each['symbol'] for each in missed)}\t/l" in lines
    assert "driver\tto_device\t1\t0\t3.0 MiB" in lines
    assert not any(line.startswith("every library") for line in lines)


def test_many_processes_do_not_fill_the_screen(said) -> None:
    lines = glance(said, processes=[process(pid, None) for pid in range(60)])
    assert len(lines) <= 24 and "and 52 more: --all" in lines


def test_what_probes_cost_is_one_line(said) -> None:
    cost = {"reason": "dear", "cost_ratio": 0.031}
    governor = {
        "enabled": True,
        "limit_ratio": 0.02,
        "processes": [{"pid": 7, "level": "counts_only", **cost}],
    }
    lines = glance(said, governor=governor, map_bytes={"a": 1 << 20})
    costs = "cost: 3.1% of a process's CPU time at most, limit 2%; processes below level full: 1; "
    assert costs + "1.0 MiB of kernel memory" in lines
    assert any("process 7 is at counts_only: dear" in line for line in lines)


def test_a_governor_that_is_off_is_said(said) -> None:
    governor = {"enabled": False, "limit_ratio": 0.02, "processes": [{"level": "full", "cost_ratio": 0.1}]}
    assert any("governor off" in line for line in glance(said, governor=governor))


def test_probes_that_are_off_cost_nothing_and_have_no_level(said, capsys) -> None:
    row = {"pid": 7, "level": "full", "cost_ratio": 0.0892, "reason": None}
    governor = {"enabled": True, "limit_ratio": 0.02, "costs": {"basis": "x"}, "processes": [row]}
    assert "cost: no CPU time: the probes are off" in glance(said, off="by root", governor=governor)
    _tell_restraint({"off": "by root", "governor": governor})
    assert "probes of 7: —, off" in capsys.readouterr().out.splitlines()


def test_a_table_of_functions_is_told_with_its_build_and_what_is_beyond_reach_is_not_watched(said) -> None:
    body = answer({})
    table = {"version": "1.32.0", "entries": 429, "known": 412, "refusal": None, "how": "read from its file"}
    runtime = {"kind": "libonnxruntime", "path": "/lib/libonnxruntime.so.1", "build_id": "0a1b"}
    forged = {"kind": "libonnxruntime", "path": "/tmp/libonnxruntime.so.1", "build_id": None}
    binding = {"kind": "onnxruntime_python", "path": "/lib/binding.so", "build_id": "2c"}
    body["processes"] = [
        {
            "pid": 50,
            "name": "server",
            "libraries": [
                runtime | {"state": "attached", "attached": 11, "emulated": 0, "api_table": table},
                forged
                | {
                    "state": "failed",
                    "attached": 0,
                    "emulated": 0,
                    "reason": "its table of functions: too short",
                }
                | {"api_table": table | {"refusal": "too short", "version": None}},
                binding
                | {"state": "ignored", "attached": 0, "emulated": 0, "reason": "it calls past its table"},
            ],
        }
    ]
    lines = said.told(body, "--all")
    not_watched = [line for line in lines if line.startswith("not watched: /")]
    assert not_watched[0].endswith("could not be attached: its table of functions: too short")
    assert (
        not_watched[1] == "not watched: /lib/binding.so of 50 server is not covered: it calls past its table"
    )
    at = lines.index("table of functions\tfunctions\thow\tbuild id\tlibrary")
    assert lines[at + 1 : at + 3] == [
        "1.32.0\t429\tread from its file\t0a1b\t/lib/libonnxruntime.so.1",
        "—\t429\trefused: too short\t—\t/tmp/libonnxruntime.so.1",
    ]
