# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hotstage.simhost.engine_model import EngineModel
from hotstage.simhost.engine_page import Dialect, page


@pytest.fixture(scope="module")
def engine():
    made = EngineModel(seed=2)
    made.advance(30.0)
    return made


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize("dialect", Dialect)
def test_a_page_is_what_prometheus_reads(engine, dialect):
    found = families(page(engine, dialect))
    assert len(found) >= 5
    checked = subprocess.run(
        [shutil.which("promtool") or "promtool", "check", "metrics"],
        input=page(engine, dialect), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "error while linting" not in checked.stderr, checked.stderr


def test_a_histogram_counts_every_duration_once(engine):
    found = families(page(engine, Dialect.vllm))["vllm:time_to_first_token_seconds"]
    by_edge = {each.labels["le"]: each.value for each in found.samples if each.name.endswith("_bucket")}
    true = [seconds for _, seconds in engine.truth.durations["ttft"]]
    assert by_edge["+Inf"] == len(true)
    assert by_edge["0.1"] == sum(seconds <= 0.1 for seconds in true)


def test_old_and_new_names_carry_the_same_numbers(engine):
    new, old = families(page(engine, Dialect.vllm)), families(page(engine, Dialect.vllm_old))
    for now, then in (
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    ):
        assert [each.value for each in new[now].samples] == [each.value for each in old[then].samples]
        assert now not in old and then not in new
