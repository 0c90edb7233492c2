# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotstage.engines.reader import KEYS_MAX, MODELS_MAX, read_page
from hotstage.engines.reading import Reading, Spread, merged
from hotstage.engines.sglang import SGLANG
from hotstage.engines.table import START_TIME
from hotstage.engines.target import TABLES
from hotstage.engines.triton import TRITON
from hotstage.engines.vllm import VLLM


def vllm(text):
    return read_page(text.encode(), VLLM)


def the_only(page):
    (reading,) = page.models.values()
    return reading


def test_a_vllm_page_as_it_was_answered(kept):
    page = kept("vllm-0.29", VLLM)
    assert page.problems == () and set(page.models) == {"Qwen/Qwen2.5-0.5B-Instruct"}
    reading = the_only(page)
    assert reading.gauges == {"queue": 12.0, "running": 37.0, "kv_use_ratio": 0.586}
    assert reading.waiting == {"capacity": 9.0, "deferred": 3.0}
    assert reading.requests == {"ok": 12.0, "cancelled": 1.0, "error": 0.0}
    assert reading.counters == {"preemptions": 4.0}
    assert reading.spreads["itl"] == Spread((0.01, 0.05, math.inf), (50.0, 95.0, 100.0), 100.0, 2.2)
    assert page.started_seconds == 1.78818417e9


def test_of_two_names_for_one_thing_the_newer_counts(kept):
    assert the_only(kept("vllm-both-names", VLLM)).gauges == {"kv_use_ratio": 0.1}


def test_the_page_in_sglangs_manual(kept):
    reading = the_only(kept("sglang-docs", SGLANG))
    assert reading.gauges == {"queue": 2826.0, "running": 162.0, "kv_use_ratio": 0.28}
    assert reading.counters["output_tokens"] == 7_557_572.0
    assert reading.spreads["ttft"].count == 11_008.0
    assert set(reading.spreads) == {"ttft", "itl"}, "func_latency is no phase of a request"


def test_the_pages_in_tritons_manuals(kept):
    page = kept("triton-docs", TRITON)
    mine, trtllm = page.models["my_model"], page.models["tensorrt_llm"]
    assert mine.gauges == {"queue": 7.0}, "Triton does not tell how many run"
    assert mine.requests == {"ok": 161.0, "refused": 3.0, "cancelled": 2.0, "error": 5.0}
    ttft = mine.spreads["ttft"]
    assert (ttft.edges[:2], ttft.counts[:2]) == ((0.1, 0.5), (8.0, 30.0))
    assert ttft.total_seconds == pytest.approx(10.771)
    assert mine.spreads["e2e"].quantiles == pytest.approx({0.5: 55e-6, 0.95: 98e-6, 0.99: 101e-6})
    assert (mine.spreads["queue"].count, mine.spreads["queue"].total_seconds) == (161.0, 11110e-6)
    assert trtllm.gauges == {"queue": 1.0, "running": 5.0, "kv_use_ratio": 0.4875}


def test_the_vllm_backend_of_triton_tells_under_vllms_names():
    labels = '{model="llava",version="1"}'
    page = read_page(
        f"vllm:prompt_tokens_total{labels} 5\nvllm:num_requests_running{labels} 2".encode(), TRITON
    )
    assert the_only(page).counters == {"prompt_tokens": 5.0}
    assert the_only(page).gauges == {"running": 2.0}


def test_engine_cores_add_up_and_the_fullest_cache_counts():
    page = vllm(
        'vllm:num_requests_waiting{engine="0",model_name="m"} 2\n'
        'vllm:num_requests_waiting{engine="1",model_name="m"} 3\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.9'
    )
    assert the_only(page).gauges == {"queue": 5.0, "kv_use_ratio": 0.9}


def test_ranks_and_processes_that_do_the_same_work_count_once():
    page = read_page(
        b'sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="0"} 7\n'
        b'sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="1"} 7\n'
        b'sglang:num_running_reqs{dp_rank="1",model_name="m",tp_rank="0"} 4\n'
        b'sglang:token_usage{model_name="m",pid="1"} 0\nsglang:token_usage{model_name="m",pid="2"} 0.8',
        SGLANG,
    )
    assert the_only(page).gauges == {"running": 11.0, "kv_use_ratio": 0.8}


def test_sglangs_parts_of_a_queue_by_priority_are_not_added_to_the_whole():
    page = read_page(
        b'sglang:num_queue_reqs{model_name="m",priority=""} 9\n'
        b'sglang:num_queue_reqs{model_name="m",priority="1"} 4',
        SGLANG,
    )
    assert the_only(page).gauges == {"queue": 9.0}


def test_a_stage_of_sglang_is_a_phase():
    lines = [
        f'sglang:per_stage_req_latency_seconds_bucket{{le="{le}",model_name="m",stage="{stage}"}} {count}'
        for stage, counts in (("prefill_forward", (1, 2)), ("decode_forward", (3, 5)), ("dispatch", (9, 9)))
        for le, count in zip(("1.0", "+Inf"), counts, strict=True)
    ]
    spreads = the_only(read_page("\n".join(lines).encode(), SGLANG)).spreads
    assert {phase: spread.count for phase, spread in spreads.items()} == {"prefill": 2.0, "decode": 5.0}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('vllm:kv_cache_usage_perc{model_name="m"} 87', "is 87, not 0 to 1"),
        ('vllm:num_requests_waiting{model_name="m"} -1', "is -1, not 0 or more"),
        ('vllm:num_requests_waiting{model_name="m"} NaN', "is nan"),
        ('vllm:prompt_tokens_total{model_name="m"} +Inf', "is inf"),
        ('vllm:num_requests_waiting{model_name="m" 1', "cannot be read"),
    ],
)
def test_a_lie_is_left_out_and_said_and_what_is_beside_it_stays(line, problem):
    page = vllm(f'{line}\nvllm:num_requests_running{{model_name="m"}} 3')
    assert the_only(page).gauges == {"running": 3.0} and the_only(page).counters == {}
    assert problem in page.problems[0]


@pytest.mark.parametrize("counts", [(5, 3, 9), (-1, 3, 9), (1, 3, "NaN"), (1, "NaN", 9)])
def test_a_histogram_whose_counts_fall_is_none(counts):
    lines = [
        f'vllm:time_to_first_token_seconds_bucket{{le="{le}",model_name="m"}} {count}'
        for le, count in zip(("0.1", "1", "+Inf"), counts, strict=True)
    ]
    page = vllm("\n".join(lines))
    assert page.models == {} or the_only(page).spreads == {}
    assert "is no histogram" in page.problems[0]


def test_a_rounding_above_one_is_full():
    assert the_only(vllm('vllm:kv_cache_usage_perc{model_name="m"} 1.004')).gauges == {"kv_use_ratio": 1.0}


def test_models_and_reasons_are_bounded_and_cleaned():
    models = "\n".join(f'vllm:num_requests_waiting{{model_name="m{n}"}} 1' for n in range(40))
    page = vllm(models)
    assert len(page.models) == MODELS_MAX and "more than 16 models" in page.problems[0]
    reasons = "\n".join(
        f'vllm:num_requests_waiting_by_reason{{model_name="m",reason="r{n}"}} 1' for n in range(40)
    )
    waiting = the_only(vllm(reasons)).waiting
    assert len(waiting) == KEYS_MAX and sum(waiting.values()) == 40.0
    (name,) = vllm('vllm:num_requests_waiting{model_name="' + "x" * 5000 + '\\n\x07"} 1').models
    assert name == "x" * 128


def test_a_page_of_another_program_has_no_models():
    page = vllm("# TYPE go_goroutines gauge\ngo_goroutines 12\n")
    assert page.models == {} and math.isnan(page.started_seconds)


def test_models_of_one_engine_are_one_instance():
    spread = Spread((1.0, math.inf), (2.0, 4.0), 4.0, 3.0)
    finer = Spread((0.5, 1.0, math.inf), (1.0, 1.0, 2.0), 2.0, 1.0)
    whole = merged(
        [
            Reading(
                {"queue": 1.0, "kv_use_ratio": 0.3},
                {"a": 1.0},
                {"prompt_tokens": 5.0},
                {"ok": 2.0},
                {"e2e": spread},
            ),
            Reading(
                {"queue": 2.0, "kv_use_ratio": 0.2},
                {"a": 2.0},
                {"prompt_tokens": 1.0},
                {"ok": 1.0},
                {"e2e": finer},
            ),
        ]
    )
    assert whole.gauges == {"queue": 3.0, "kv_use_ratio": 0.3}
    assert (whole.waiting, whole.counters, whole.requests) == (
        {"a": 3.0},
        {"prompt_tokens": 6.0},
        {"ok": 3.0},
    )
    assert whole.spreads["e2e"] == Spread((1.0, math.inf), (3.0, 6.0), 6.0, 4.0)


NAMES = sorted({name.decode() for table in TABLES for name in table.wanted} - {START_TIME.decode()})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.dictionaries(
                st.sampled_from(["model_name", "model", "le", "quantile", "reason", "stage"]),
                st.text(max_size=6),
            ),
            st.one_of(st.floats().map(repr), st.text(max_size=8)),
        ),
        max_size=30,
    )
)
def test_no_page_raises_and_no_number_is_negative_or_endless(lines):
    def written(labels):
        pairs = (f'{k}="{v}"' for k, v in labels.items())
        return ",".join(pairs)

    body = "\n".join(f"{name}{{{written(labels)}}} {value}" for name, labels, value in lines).encode(
        "utf-8", "replace"
    )
    for table in TABLES:
        for reading in read_page(body, table).models.values():
            for part in (reading.gauges, reading.waiting, reading.counters, reading.requests):
                assert all(0 <= value < math.inf for value in part.values())
            assert all(0 <= spread.count < math.inf for spread in reading.spreads.values())
