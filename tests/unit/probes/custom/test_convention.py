# SPDX-License-Identifier: Apache-2.0
"""What an operator's program declares is taken strictly; each refusal names line and remedy."""

from __future__ import annotations

import pytest

from hotstage.errors import ConfigError
from hotstage.probes.custom.convention import Label, UserPoint, name_of, parse

HEAD = "// hotstage-probe: 1\n"
METRIC = "// hotstage-metric: reads_total from reads: Reads\n"
BODY = "BPF_HASH(reads, u32, u64, 8);\nTRACEPOINT_PROBE(sched, sched_process_exit) { return 0; }\n"


def spec(head: str, body: str = BODY):
    return parse("io", "/d/io.bpf.c", head + body)


def test_metrics_have_name_map_labels_and_help() -> None:
    line = (
        "// hotstage-metric: read_seconds_total from reads by comm:char[16], dev:u32: Time: of reads, all\n"
    )
    (metric,) = spec(HEAD + line).metrics
    assert metric.name == "hotstage_custom_io_read_seconds_total"
    assert (metric.map, metric.help) == ("reads", "Time: of reads, all")
    assert metric.labels == (Label("comm", "char", 16), Label("dev", "u", 4))
    assert metric.is_counter
    assert metric.scale == 1e-9


@pytest.mark.parametrize(
    ("labels", "places", "size"),
    [
        ("a:u32", (0,), 4),
        ("a:u8, b:u64", (0, 8), 16),
        ("a:char[5], b:u16, c:char[3]", (0, 6, 8), 12),
        ("a:u64, b:u8", (0, 8), 16),
    ],
)
def test_a_key_is_laid_out_as_c_does(labels: str, places: tuple[int, ...], size: int) -> None:
    (metric,) = spec(f"{HEAD}// hotstage-metric: x from reads by {labels}: X\n").metrics
    assert metric.offsets() == (places, size)
    assert not metric.is_counter


def test_points_name_function_path_and_symbol() -> None:
    lines = (
        "// hotstage-uprobe: on_read /lib/libc.so.6 read\n// hotstage-uretprobe: done /lib/libc.so.6 read\n"
    )
    found = spec(HEAD + METRIC + lines, "int on_read(struct pt_regs *ctx) { return 0; }").points
    assert found == (
        UserPoint("on_read", "/lib/libc.so.6", "read", on_return=False),
        UserPoint("done", "/lib/libc.so.6", "read", on_return=True),
    )


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (METRIC, "no line says which convention"),
        ("// hotstage-probe: 2\n", "io.bpf.c:1: convention '2'"),
        (HEAD, "0 metrics"),
        (HEAD + METRIC + METRIC, "declared twice"),
        (HEAD + "// hotstage-gauge: x\n", "io.bpf.c:2: hotstage-gauge"),
        (HEAD + "// hotstage-metric: Reads from reads: R\n", "declares no metric"),
        (HEAD + "// hotstage-metric: reads_total from reads\n", "declares no metric"),
        (HEAD + "// hotstage-metric: r from reads by le:u32: R\n", "'le:u32' is no label"),
        (HEAD + "// hotstage-metric: r from reads by a:char[65]: R\n", "char[65]"),
        (HEAD + "// hotstage-metric: r from reads by a:u32,a:u32: R\n", "one twice"),
        (HEAD + f"// hotstage-metric: r from reads: {'x' * 121}\n", "help is too long"),
        (HEAD + METRIC + "// hotstage-uprobe: f libc.so.6 read\n", "names no point"),
    ],
)
def test_a_wrong_head_is_refused_with_its_place(head: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        spec(head)
    assert said in error.value.message
    assert error.value.remedy


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('#include "/etc/x.h"\n' + BODY, 'io.bpf.c:3: `#include "/etc/x.h"`'),
        ("#include <../x.h>\n" + BODY, "include kernel headers"),
        ("#include </tmp/x.h>\n" + BODY, "include kernel headers"),
        ("/* a\n b */\n#include NAME\n" + BODY, "io.bpf.c:5"),
        ('%:include "x.h"\n' + BODY, "include kernel headers"),
        ("#include_next <linux/fs.h>\n" + BODY, "include kernel headers"),
        ("int x;\n", "attaches nothing"),
        ("// TRACEPOINT_PROBE(a, b)\n", "attaches nothing"),
        (BODY + "int kprobe__sys_read(void *ctx) { return 0; }\n", "io.bpf.c:5: kprobe__sys_read"),
        (BODY + "RAW_TRACEPOINT_PROBE(sys_enter) { return 0; }\n", "is not handed over"),
    ],
)
def test_code_that_cannot_be_taken_is_refused_with_its_line(body: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        spec(HEAD + METRIC, body)
    assert said in f"{error.value.message}; {error.value.remedy}"


def test_kernel_headers_may_be_included() -> None:
    assert spec(HEAD + METRIC, "#include <uapi/linux/ptrace.h>\n#include <linux/fs.h>\n" + BODY)


@pytest.mark.parametrize("name", ["Io.bpf.c", "9.bpf.c", "a-b.bpf.c", "io.c", f"{'a' * 25}.bpf.c", ".bpf.c"])
def test_a_file_whose_name_cannot_be_a_metrics_has_none(name: str) -> None:
    assert name_of(name) is None
