# SPDX-License-Identifier: Apache-2.0
"""Our C in bcc's spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotstage.probes.loader.translate import TranslateError, respell_calls, set_entries, translate


@pytest.mark.parametrize(
    ("ours", "bccs"),
    [
        ("x = bpf_map_lookup_elem(&threads, &tid);", "x = threads.lookup(&tid);"),
        ("bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY);", "threads.update(&tid, &fresh);"),
        ("if (bpf_map_update_elem(&a, k, &f, BPF_NOEXIST) && f)", "if (a.insert(k, &f) && f)"),
        ("bpf_map_delete_elem(&requests, &key)", "requests.delete(&key)"),
        ("bpf_map_pop_elem(&free, &s)", "free.pop(&s)"),
        ("bpf_map_push_elem(&free, &s, BPF_ANY)", "free.push(&s, BPF_ANY)"),
        (
            "e = bpf_ringbuf_reserve(&events, sizeof(struct call_event), 0);",
            "e = events.ringbuf_reserve(sizeof(struct call_event));",
        ),
        ("bpf_map_lookup_elem(&a, f(1, (2)))", "a.lookup(f(1, (2)))"),
        (
            "bpf_map_update_elem(&a, &k, bpf_map_lookup_elem(&b, &z), BPF_ANY)",
            "a.update(&k, b.lookup(&z))",
        ),
        ("bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);", "bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);"),
    ],
)
def test_map_calls_become_methods(ours: str, bccs: str) -> None:
    assert respell_calls(ours) == bccs


@pytest.mark.parametrize(
    "text", ["bpf_map_update_elem(&a, &k, &v, BPF_EXIST)", "bpf_map_lookup_elem(&a, (&k;"]
)
def test_what_bcc_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(TranslateError):
        respell_calls(text)


def test_map_sizes_are_filled_in_by_name() -> None:
    text = "HOTSTAGE_HASH(threads, __u32, struct thread_state, 16384);\nHOTSTAGE_RING(events, 4096);\n"
    assert set_entries(text, {"threads": 64, "events": 8192}) == (
        "HOTSTAGE_HASH(threads, __u32, struct thread_state, 64);\nHOTSTAGE_RING(events, 8192);\n"
    )


def test_own_headers_are_put_in_place_once_and_system_ones_stay(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "abi.h").write_text("struct s {}; /* bpf_map_lookup_elem(&x, */\n")
    (tmp_path / "include" / "maps.h").write_text('#include "abi.h"\nint maps;\n')
    (tmp_path / "a.bpf.c").write_text(
        '#include "include/abi.h"\n#include "include/maps.h"\n#include <linux/bpf.h>\n'
    )
    text = translate(tmp_path / "a.bpf.c")
    assert text.count("struct s {};") == 1
    assert "int maps;" in text
    assert "#include <linux/bpf.h>" in text
    assert '"abi.h"' not in text
