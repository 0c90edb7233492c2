# SPDX-License-Identifier: Apache-2.0
import math
import time

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hotstage.engines import exposition
from hotstage.engines.exposition import Series, begins_with, read_lines
from hotstage.engines.reader import read_page
from hotstage.engines.vllm import VLLM

WANTED = frozenset({b"vllm:a", b"vllm:a_bucket", b"plain"})


def series(text):
    return read_lines(text.encode(), WANTED).series


def test_a_line_is_name_labels_and_value():
    assert series('vllm:a{engine="0",model_name="m"} 2.5') == (
        Series("vllm:a", {"engine": "0", "model_name": "m"}, 2.5),
    )
    assert series("plain 3e2\n") == (Series("plain", {}, 300.0),)
    assert series('vllm:a{model="x", le="+Inf"} 37') == (
        Series("vllm:a", {"model": "x", "le": "+Inf"}, 37.0),
    )
    assert series('vllm:a{model="x",} 1') == (Series("vllm:a", {"model": "x"}, 1.0),)


def test_timestamps_and_exemplars_are_passed_over():
    assert series('vllm:a{m="x"} 4 1788184174081') == (Series("vllm:a", {"m": "x"}, 4.0),)
    assert series('vllm:a_bucket{le="1"} 4 # {trace_id="ab"} 0.5')[0].value == 4.0


def test_a_name_that_only_begins_alike_is_another_metric():
    assert series('vllm:ab{m="x"} 4\nvllm:a_created{m="x"} 4\n# TYPE vllm:a gauge') == ()


def test_label_values_may_hold_what_ends_other_things():
    (found,) = series(r'vllm:a{m="a\"b}c,d\\e\nf g"} 1')
    assert found.labels == {"m": 'a"b}c,d\\e\nf g'}


def test_special_values_are_told_as_they_are():
    assert math.isnan(series("plain NaN")[0].value)
    assert series("plain +Inf")[0].value == math.inf


@pytest.mark.parametrize("line", ['vllm:a{m="x" 1', 'vllm:a{m="x"}', "plain", "plain x", "vllm:a{m=x} 1"])
def test_what_makes_no_sense_is_counted(line):
    assert read_lines(line.encode(), WANTED).unreadable == 1


def test_lines_beyond_the_limit_are_not_read(monkeypatch):
    monkeypatch.setattr(exposition, "LINES_MAX", 3)
    lines = read_lines(b"plain 1\n" * 4, WANTED)
    assert (len(lines.series), lines.is_cut) == (3, True)


def test_bytes_that_are_no_text_break_nothing():
    assert read_lines(bytes(range(256)) * 50, WANTED).series == ()
    assert series("plain 1\r\n")[0].value == 1.0


def test_an_engine_is_told_by_names_at_the_beginning_of_lines():
    assert begins_with(b"# HELP x\nvllm:a 1", ("vllm:",))
    assert begins_with(b"# TYPE vllm:a gauge", ("vllm:",))
    assert not begins_with(b'other{a="vllm:a"} 1', ("vllm:",))


def big_page():
    """A vLLM with four engine cores, as its client writes it: 200 kB."""
    registry, labels = CollectorRegistry(), ("Qwen/Qwen2.5-VL-72B-Instruct",)
    edges = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
    timed = ("time_to_first_token", "inter_token_latency", "e2e_request_latency", "request_queue_time")
    names = [f"vllm:{name}_seconds" for name in timed] + [f"vllm:request_other_{n}" for n in range(22)]
    for name in names:
        family = Histogram(name, "h", ["model_name", "engine"], buckets=edges, registry=registry)
        for engine in range(4):
            family.labels(*labels, str(engine)).observe(0.3)
    for kind, name in ((Gauge, "num_requests_waiting"), (Counter, "prompt_tokens")):
        family = kind(f"vllm:{name}", "h", ["model_name", "engine"], registry=registry)
        for engine in range(4):
            family.labels(*labels, str(engine)).inc(3)
    return generate_latest(registry)


def cpu_seconds(work):
    """The least of a few: what another process takes does not count."""
    best = math.inf
    for _ in range(5):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best


def test_a_large_page_costs_a_third_of_a_parser_of_everything_and_reads_the_same():
    body = big_page()
    assert len(body) > 200_000
    whole = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    read = read_lines(body, VLLM.wanted).series
    assert read
    assert all(whole[each.name, tuple(sorted(each.labels.items()))] == each.value for each in read)
    ours = cpu_seconds(lambda: read_page(body, VLLM))
    theirs = cpu_seconds(lambda: list(text_string_to_metric_families(body.decode())))
    assert ours < theirs / 3
