# SPDX-License-Identifier: Apache-2.0
"""The simulated server's requests, classed by the real agent behind real probes, against the truth."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.simulated_requests.conftest import MIN_SAMPLES, Ran
from tests.integration.whole_agent import WholeAgent

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

FINGERPRINT_OF = {"text": "llm", "image": "vlm", "audio": "audio", "video": "video"}
PENALTY_OF = {"llm": (0.1, 0.1), "vlm": (0.3, 0.5), "audio": (0.7, 2.5), "video": (1.0, 5.0)}
"""The seed's weight and baseline in seconds."""

Document = dict[str, Any]


def nearest_rank(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def size_of(tokens: int) -> str:
    edges = {"up_to_1K": 1024, "up_to_8K": 8192, "up_to_32K": 32768, "up_to_128K": 131072}
    return next((name for name, edge in edges.items() if tokens <= edge), "over_128K")


class Told:
    """One run: what the agent said at its end, and the truth."""

    def __init__(self, agent: WholeAgent, truth: Document) -> None:
        self.truth = truth
        self.classes, self.components, requests, self.heat = (
            json.loads(agent.get(path)[1])
            for path in ("/v1/classes", "/v1/components", "/v1/requests", "/v1/heat")
        )
        self.samples = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(agent.get("/metrics")[1].decode())
            for sample in family.samples
            if "request_class" in sample.name or "penalty" in sample.name or "equivalent" in sample.name
        }
        self.seconds = {row["id"]: row["duration_seconds"] for row in requests["requests"]}
        self.spans: dict[str, list[Document]] = defaultdict(list)
        for span in truth["stages"]:
            self.spans[span["request"]].append(span)

    def by_class(self, *, sized: bool) -> dict[tuple[str, str | None], list[str]]:
        """The truth's requests by what it knows of them."""
        found = defaultdict(list)
        for request, spans in self.spans.items():
            taken = next(span["tokens"] for span in spans if span["stage"] == "llm_prefill")
            size = size_of(taken) if sized else None
            found[FINGERPRINT_OF[spans[0]["modality"]], size].append(request)
        return found


@pytest.fixture(scope="module")
def told(ran: Ran) -> Told:
    return Told(ran.agent, ran.truth)


def test_counts_and_quantiles_per_class_and_component_are_those_of_the_truth(told: Told):
    assert told.truth["stages_dropped"] == 0
    assert told.truth["requests"]["open"] == 0
    for rows, sized in ((told.classes["fingerprints"], False), (told.classes["classes"], True)):
        expected = told.by_class(sized=sized)
        assert {(row["fingerprint"], row["size"]): row["requests"] for row in rows} == {
            key: len(requests) for key, requests in expected.items()
        }
        for row in rows:
            requests = expected[row["fingerprint"], row["size"]]
            own = [told.seconds[request] for request in requests]
            true = [
                (max(s["ended_ns"] for s in spans) - min(s["began_ns"] for s in spans)) / 1e9
                for spans in (told.spans[request] for request in requests)
            ]
            assert row["samples"] == len(own)
            if len(own) < MIN_SAMPLES:
                assert row["p95_seconds"] is None
                continue
            for share in (50, 95, 99):
                measured = row[f"p{share}_seconds"]
                assert measured == nearest_rank(own, share / 100)
                assert measured == pytest.approx(nearest_rank(true, share / 100), rel=0.05, abs=0.02), row
            assert row["token_equivalent_ms"] > 0
    assert {row["fingerprint"] for row in told.classes["fingerprints"]} == set(FINGERPRINT_OF.values())

    times = defaultdict(list)
    for span in told.truth["stages"]:
        times[span["stage"]].append((span["ended_ns"] - span["began_ns"]) / 1e9)
    for row in [each for each in told.components["components"] if each["source"] == "mark"]:
        true = times.pop(row["stage"], [])
        assert row["count"] == len(true), row
        if len(true) >= MIN_SAMPLES:
            assert row["p95_seconds"] == pytest.approx(nearest_rank(true, 0.95), rel=0.05, abs=0.005), row
            assert row["mean_seconds"] == pytest.approx(sum(true) / len(true), rel=0.05, abs=0.005), row
    assert times == {}
    assert told.components["request"]["count"] == len(told.spans)


def test_endpoints_and_metrics_say_of_classes_what_the_truth_says(told: Told):
    """One endpoint a modality in this run: an endpoint's row is its class's, and so is its penalty."""
    by_class = {row["fingerprint"]: row for row in told.classes["fingerprints"]}
    assert len(told.classes["endpoints"]) == len(by_class)
    for row in told.classes["endpoints"]:
        whole = by_class[row["fingerprint"]]
        assert {**row, "endpoint": None} == whole
        p99, name = whole["p99_seconds"], row["fingerprint"]
        assert (
            told.samples["hotstage_request_class_latency_mean_seconds", "all", name] == whole["mean_seconds"]
        )
        of_endpoint = told.samples.get(("hotstage_endpoint_slo_penalty_seconds", row["endpoint"], name))
        if p99 is None:
            assert of_endpoint is None and row["slo_penalty_ms"] is None
            continue
        weight, baseline = PENALTY_OF[name]
        assert row["slo_penalty_ms"] == pytest.approx(1e3 * weight * max(0.0, p99 - baseline))
        assert of_endpoint == pytest.approx(row["slo_penalty_ms"] / 1e3)
    for row in told.classes["classes"]:
        key = tuple(sorted((row["fingerprint"], row["size"])))
        assert told.samples["hotstage_request_class_requests_total", *key] == row["requests"]

    # Every token of the run was said, so that the cost of one is all the time over all the tokens.
    (image,) = [row for row in told.classes["endpoints"] if row["fingerprint"] == "vlm"]
    points = [point for point in told.heat["points"] if point["endpoint"] == image["endpoint"]]
    costs = [point["token_equivalent_latency_seconds"] for point in points]
    assert min(costs) <= image["token_equivalent_ms"] / 1e3 <= max(costs)
    of_endpoint = told.samples["hotstage_token_equivalent_latency_seconds", image["endpoint"], "image"]
    assert of_endpoint == pytest.approx(image["token_equivalent_ms"] / 1e3)


def test_heat_by_tokens_weighs_a_request_as_the_truth_knows_it(told: Told):
    assert told.heat["basis"]["heat_weight"] == "token_equivalents"
    tokens = defaultdict(list)
    for spans in told.spans.values():
        by_stage = {span["stage"]: span["tokens"] for span in spans}
        tokens[spans[0]["modality"]].append(by_stage["llm_prefill"] + by_stage["llm_decode"])
    points = [point for point in told.heat["points"] if point["request_rate"]]
    assert points, "of the last ten seconds"
    for point in points:
        weight = point["heat"] / point["request_rate"]
        own = tokens[point["modality"]]
        assert 0.95 * min(own) <= weight <= 1.05 * max(own), point
