# SPDX-License-Identifier: Apache-2.0
"""OTLP for real: the simulated host, the agent, a receiver that decodes what comes, and the host's own truth.

One run of twelve seconds with an XID in it; towards its end the collector refuses for a while, then is slow.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families
from support.monitoring import end, wait_for
from support.otlp import LogEvent, Received, Span, attributes, receiver

from hotstage.cli.client import AgentClient
from hotstage.cli.demo.layout import lay_out
from hotstage.cli.demo.run import unattached
from hotstage.cli.demo.simulated import SimulatedHost
from hotstage.clock import SystemClock
from hotstage.config.render import toml
from hotstage.config.settings import DetectConfig, OtlpConfig
from hotstage.errors import HotstageError
from hotstage.simhost.gpus import GPUS
from hotstage.simhost.workload import traceparent_of
from hotstage.sinks.metric import Metric
from hotstage.sinks.metrics import METRICS

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(120)]

SECRET = "Bearer not-for-logs"
EDGE_SECONDS = 0.003
"""The truth is noted just outside of the marks, so it encloses the span; two mappings to wall time differ by
a millisecond each at most."""
TYPICAL_SECONDS = 0.0005
"""How far edges are apart at the median: the two marks, and a thread that is not preempted between."""
INTERNAL = 1
MAPPED_BYTES = 15 << 20
"""Of its resident memory: histograms (7.6 MiB) and, twice, the ring (4 MiB), which are memory of maps."""

Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]


@dataclass
class Run:
    """What the collector got, what the host did, what `/metrics` said meanwhile."""

    received: Received
    truth: dict[str, Any] = field(default_factory=dict)
    bodies: list[tuple[float, float, str]] = field(default_factory=list)
    """(seconds before, seconds after, what `/metrics` said): read later, to take 0.1 s costs scrapes."""
    refused_from: float = 0.0
    refused_until: float = 0.0
    wall_offset_ns: int = 0
    said: str = ""
    end_seconds: float = 0.0
    spans: list[Span] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)

    @cached_property
    def scrapes(self) -> list[tuple[float, float, Samples]]:
        """(seconds before, seconds after, samples)."""
        return [(before, after, _samples(body)) for before, after, body in self.bodies]

    @property
    def requests(self) -> dict[str, Span]:
        """By the server's own id."""
        return {
            span.attributes["hotstage.request.id"]: span
            for span in self.spans
            if "hotstage.request.id" in span.attributes
        }

    def last(self, name: str, **labels: str) -> float:
        return self.scrapes[-1][2][name, frozenset(labels.items())]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with receiver() as received:
        found = Run(received)
        _carry_out(tmp_path_factory.mktemp("otlp"), found)
        found.spans, found.events = received.spans, received.events
        yield found


def _carry_out(directory: Path, found: Run) -> None:
    clock = SystemClock()
    host = SimulatedHost.start(
        directory / "host", seed=4731, faults=("xid@3-4:109",), faults_file=None, clock=clock
    )
    agent: subprocess.Popen[str] | None = None
    log = directory / "agent.log"
    try:
        layout = lay_out(directory, loader="auto", nvml_directory=host.nvml_directory)
        agent = _start_agent(directory, layout.config, found.received.url, log)
        client = AgentClient(socket_path=layout.config.http.socket)
        wait_for(lambda: _is_attached(client, host.pids), "the agent to have attached its probes")
        stop = threading.Event()
        scraper = threading.Thread(
            target=_scrape, args=(f"http://{layout.config.http.listen}/metrics", found, stop), daemon=True
        )
        scraper.start()
        host.go()
        _trouble(found, began=time.monotonic())
        found.truth = host.stop()
        found.wall_offset_ns = time.time_ns() - time.monotonic_ns()
        _wait_for_two_more_scrapes(found)
        stop.set()
        scraper.join(10)
        began = time.monotonic()
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
        found.end_seconds = time.monotonic() - began
    finally:
        if agent is not None:
            end(agent)
        host.end()
        found.said = log.read_text() if log.exists() else ""


def _trouble(found: Run, began: float) -> None:
    """Eight good seconds, 1.5 of refusals, 2.5 of a collector slower than the exporter waits, then health."""
    received = found.received
    _until(began + 8)
    received.answer, found.refused_from = 500, time.monotonic()
    _until(began + 9.5)
    received.answer, received.delay_seconds = 200, 4.0
    _until(began + 12)
    received.delay_seconds, found.refused_until = 0.0, time.monotonic()
    taken = received.taken
    wait_for(lambda: received.taken > taken + 3, "the exports to go on after the trouble", 15)


def _until(moment: float) -> None:
    wait_for(lambda: time.monotonic() >= moment, "the time", 30)


def _start_agent(directory: Path, config: Any, url: str, log: Path) -> subprocess.Popen[str]:
    headers = directory / "otlp.headers"
    headers.write_text(f"# for the collector\nauthorization = {SECRET}\n")
    config = msgspec.structs.replace(
        config,
        otlp=OtlpConfig(
            headers_file=str(headers),
            period_seconds=0.5,
            baseline_ratio=1.0,
            spans_per_second=1e6,
            timeout_seconds=1.0,
        ),
        detect=DetectConfig(xid_active_seconds=3.0),
    )
    file = directory / "config.toml"
    file.write_text(toml(msgspec.to_builtins(config)), encoding="utf-8")
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=blue",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }
    with log.open("w") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "hotstage", "--config", str(file), "agent"],
            stderr=stream,
            text=True,
            env={**os.environ, **variables},
        )


def _is_attached(client: AgentClient, pids: tuple[int, ...]) -> bool:
    try:
        return not unattached(client.get("/v1/coverage"), pids)
    except HotstageError:
        return False


def _scrape(url: str, found: Run, stop: threading.Event) -> None:
    http = urllib3.PoolManager(timeout=5, retries=False)
    while not stop.wait(0.3):
        before = time.time()
        body = http.request("GET", url).data.decode()
        found.bodies.append((before, time.time(), body))
    http.clear()


def _wait_for_two_more_scrapes(found: Run) -> None:
    count = len(found.bodies)
    wait_for(lambda: len(found.bodies) >= count + 4, "more scrapes")


def _samples(body: str) -> Samples:
    return {
        (
            sample.name,
            frozenset((name, value) for name, value in sample.labels.items() if value),
        ): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


def test_every_request_of_a_sampling_caller_is_there_once_under_its_own_trace_and_parent(run: Run):
    finished = finished_requests(run)
    sampled = {name for name in finished if not traceparent_of(name).endswith("-00")}
    assert len(sampled) > 40
    counted = Counter(
        span.attributes["hotstage.request.id"]
        for span in run.spans
        if "hotstage.request.id" in span.attributes
    )
    assert {name: counted[name] for name in sampled} == dict.fromkeys(sampled, 1)
    for name, span in run.requests.items():
        assert span.kind == INTERNAL
        traceparent = traceparent_of(name)
        if traceparent:
            _, trace_id, parent_id, _ = traceparent.split("-")
            assert (span.trace_id, span.parent_id) == (trace_id, parent_id)
            assert span.attributes["hotstage.trace.origin"] == "request"
        else:
            assert span.parent_id == ""
            assert span.attributes["hotstage.trace.origin"] == "hotstage"


def test_callers_that_do_not_sample_are_respected_and_counted(run: Run):
    unsampled = {name for name in finished_requests(run) if traceparent_of(name).endswith("-00")}
    assert unsampled
    assert not unsampled & run.requests.keys()
    stages = Counter(row["request"] for row in run.truth["stages"])
    dropped = run.last("hotstage_otlp_spans_dropped_total", reason="parent_not_sampled")
    assert 0 < dropped <= sum(1 + stages[name] for name in unsampled)


def test_stages_hang_below_their_request_at_the_times_of_the_truth(run: Run):
    requests = {(span.trace_id, span.span_id): name for name, span in run.requests.items()}
    truth = {(row["request"], row["stage"]): row for row in run.truth["stages"]}
    stages = [span for span in run.spans if "hotstage.stage" in span.attributes]
    edges = []
    seen = set()
    for span in stages:
        name = requests[span.trace_id, span.parent_id]
        stage = span.attributes["hotstage.stage"]
        row = truth[name, stage]
        begin = (span.start_ns - row["began_ns"] - run.wall_offset_ns) / 1e9
        ending = (row["ended_ns"] + run.wall_offset_ns - span.end_ns) / 1e9
        assert begin >= -EDGE_SECONDS, (span, row)
        assert ending >= -EDGE_SECONDS, (span, row)
        edges += [abs(begin), abs(ending)]
        seen.add((name, stage))
    typical = statistics.median(edges)
    print(f"{len(edges)} edges: median {typical * 1e6:.0f} µs, {max(edges) * 1e3:.1f} ms at most")
    assert typical < TYPICAL_SECONDS
    wanted = {key for key in truth if key[0] in run.requests}
    assert seen == wanted
    assert len(stages) == len(seen)


def test_a_request_spans_all_of_its_stages(run: Run):
    below: dict[tuple[str, str], list[Span]] = {}
    for span in run.spans:
        below.setdefault((span.trace_id, span.parent_id), []).append(span)
    for span in run.requests.values():
        stages = below[span.trace_id, span.span_id]
        assert span.start_ns <= min(each.start_ns for each in stages)
        assert span.end_ns >= max(each.end_ns for each in stages)


def test_spans_say_what_they_are_about(run: Run):
    truth = {(row["request"], row["stage"]): row for row in run.truth["stages"]}
    uuids = {f"i-{index}": gpu.uuid for index, gpu in enumerate(GPUS)}
    requests = {(span.trace_id, span.span_id): name for name, span in run.requests.items()}
    for span in run.spans:
        said = span.attributes
        assert said["gen_ai.request.model"] == "sim-vlm-7b"
        assert said["hw.id"] == uuids[said["hotstage.instance"]]
        assert span.resource["service.name"] == "hotstage"
        assert span.resource["service.instance.id"] == span.resource["host.id"]
        assert span.resource["deployment.environment.name"] == "test"
        if "hotstage.stage" in said:
            row = truth[requests[span.trace_id, span.parent_id], said["hotstage.stage"]]
            assert said["hotstage.modality"] == row["modality"]
            assert said.get("hotstage.tokens", 0) == row["tokens"]
            took_ms = (span.end_ns - span.start_ns) / 1e6
            assert said[f"latency.{row['modality']}.ms"] == pytest.approx(took_ms, abs=0.001)
            assert ("latency.vision.ms" in said) == (row["modality"] == "image")
    chat = next(span for span in run.requests.values() if span.name == "/v1/chat/completions")
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.usage.output_tokens"] > 0


def test_the_window_of_the_xid_comes_as_events_and_names_the_requests_it_touched(run: Run):
    # An export that was slow is made again: an event comes at least once.
    events = {(each.name, each.attributes["hotstage.window.id"]): each for each in run.events}
    opened = [event for (name, _), event in events.items() if name == "hotstage.anomaly.window.opened"]
    (xid,) = [event for event in opened if event.attributes["hotstage.window.kind"] == "gpu_xid"]
    assert xid.attributes["hw.id"] == GPUS[0].uuid
    (fault,) = run.truth["faults"]
    assert 0 <= (xid.at_ns - run.wall_offset_ns - fault["start_ns"]) / 1e9 <= 1.0
    over = events["hotstage.anomaly.window.closed", xid.attributes["hotstage.window.id"]]
    touched = [
        span
        for span in run.requests.values()
        if xid.attributes["hotstage.window.id"] in span.attributes.get("hotstage.window.ids", [])
    ]
    assert touched
    assert {span.attributes["hotstage.sampled_for"] for span in touched} == {"window"}
    assert {span.attributes["hotstage.instance"] for span in touched} == {"i-0"}
    assert over.trace_id in {span.trace_id for span in touched}


def test_counters_and_histograms_are_those_of_the_scrapes_around_them(run: Run):
    compared: set[str] = set()
    for metric, name, labels, value, at in exported(run):
        around = bracket(run, at)
        if metric.kind == "gauge" or around is None:
            continue
        before, after = (samples.get((name, labels)) for samples in around)
        if after is not None:
            assert (before or 0) - 1e-6 <= value <= after + 1e-6, (name, labels)
            compared.add(metric.name)
    names = {name for _, _, samples in run.scrapes for name, _ in samples}
    scraped = {each.name for each in METRICS if {each.name, f"{each.name}_count"} & names}
    assert scraped == {metric.name for metric, *_ in exported(run)}
    assert compared == {each.name for each in METRICS if each.kind != "gauge"} & scraped


def scrapes_near(run: Run, at: float) -> list[Samples] | None:
    """The scrapes of the second before and the second after; None unless they came so close together that
    they saw every second: a body is shared for 0.5 s, and what a second shows stands for one.
    """
    near = [each for each in run.scrapes if at - 1.7 < each[0] and each[1] < at + 1.7]
    if not near or near[0][0] > at - 1.0 or near[-1][1] < at + 1.0:
        return None
    if any(later[1] - earlier[0] >= 0.5 for earlier, later in pairwise(near)):
        return None
    return [samples for _, _, samples in near]


def test_gauges_of_the_second_are_those_of_the_scrapes_around_them(run: Run):
    """They change once a second, and scrapes came three times a second: every value was seen."""
    compared: Counter[str] = Counter()
    for metric, name, labels, value, at in exported(run):
        if not metric.name.startswith(("hotstage_endpoint_", "hotstage_instance_")) or metric.kind != "gauge":
            continue
        near = scrapes_near(run, at)
        if near is None:
            continue  # the export at the end of the agent, or a machine too busy to scrape in time
        seen = [samples[name, labels] for samples in near if (name, labels) in samples]
        assert any(value == pytest.approx(each) for each in seen), (name, labels, value, seen)
        compared[metric.name] += 1
    assert compared.total() > 100
    assert {"hotstage_endpoint_instance_heat", "hotstage_instance_cpu_load_ratio"} <= set(compared)


def test_counters_say_since_when_they_count(run: Run):
    export = run.received.metrics()[-1]
    (ticks,) = {point.start_time_unix_nano for point in export["hotstage.ticks"].sum.data_points}
    (calls,) = {point.start_time_unix_nano for point in export["hotstage.calls"].sum.data_points}
    assert ticks == calls
    assert 0 < run.scrapes[0][0] - ticks / 1e9 < 30
    assert export["hotstage.ticks"].sum.is_monotonic
    assert {point.start_time_unix_nano for point in export["hotstage.webhook.events"].sum.data_points} == {0}


def test_a_collector_that_refuses_or_is_slow_costs_spans_and_no_tick(run: Run):
    assert run.last("hotstage_otlp_spans_dropped_total", reason="export_failed") > 0
    assert run.last("hotstage_otlp_export_failures_total", signal="traces") > 0
    assert run.last("hotstage_otlp_export_failures_total", signal="metrics") > 0
    assert run.last("hotstage_otlp_events_dropped_total") == 0
    assert run.last("hotstage_otlp_spans_total") > 0
    ticks = [
        (before, samples["hotstage_ticks_total", frozenset({("tick", "fast")})])
        for before, _, samples in run.scrapes
    ]
    offset = time.time() - time.monotonic()
    during = [each for each in ticks if run.refused_from < each[0] - offset < run.refused_until]
    (first_at, first), (last_at, last) = during[0], during[-1]
    assert (last - first) / (last_at - first_at) > 8.5
    assert run.end_seconds < 5


def test_the_agent_stays_within_its_memory(run: Run):
    resident_bytes = run.last("hotstage_agent_resident_bytes")
    print(f"{resident_bytes / 1e6:.0f} MB, {run.last('hotstage_agent_cpu_seconds_total'):.1f} s of CPU")
    assert resident_bytes - MAPPED_BYTES < 100 << 20


def test_each_trouble_is_told_once_and_no_secret_with_it(run: Run):
    assert run.said.count("does not take traces") == run.said.count("takes traces again") > 0
    assert run.said.count("does not take traces") <= 2
    assert "500" in run.said
    assert "not-for-logs" not in run.said
    headers = [headers for _, headers, _ in run.received.requests]
    assert {each["authorization"] for each in headers} == {SECRET}
    assert {each["x-tenant"] for each in headers} == {"blue"}


def finished_requests(run: Run) -> set[str]:
    """Those that went through their last stage."""
    return {row["request"] for row in run.truth["stages"] if row["stage"] == "detokenize"}


def exported(run: Run) -> Iterator[tuple[Metric, str, Labels, float, float]]:
    """(row of the table, sample's name in Prometheus, labels, value, unix seconds) of all points."""
    by_name = {metric.otel_name: metric for metric in METRICS}
    for export in run.received.metrics():
        for otel_name, found in export.items():
            metric = by_name[otel_name]
            assert (found.unit, found.description) == (metric.otel_unit, metric.help)
            for sample in points(metric.name, found):
                yield metric, *sample


def points(name: str, metric: Any) -> Iterator[tuple[str, Labels, float, float]]:
    """(sample's name in Prometheus, labels, value, unix seconds) of each point of an OTLP metric."""
    for point in (*metric.gauge.data_points, *metric.sum.data_points):
        yield name, labels_of(point), point.as_double, point.time_unix_nano / 1e9
    for point in metric.histogram.data_points:
        labels, at = labels_of(point), point.time_unix_nano / 1e9
        yield f"{name}_count", labels, float(point.count), at
        yield f"{name}_sum", labels, point.sum, at
        cumulative = 0
        bounds = [*(repr(bound) for bound in point.explicit_bounds), "+Inf"]
        for bound, count in zip(bounds, point.bucket_counts, strict=True):
            cumulative += count
            yield f"{name}_bucket", labels | {("le", bound)}, float(cumulative), at


def labels_of(point: Any) -> Labels:
    return frozenset(attributes(point.attributes).items())


def bracket(run: Run, at: float) -> tuple[Samples, Samples] | None:
    """The scrapes just before and after; a body may be half a second old, which is taken into account."""
    before = [samples for _, after, samples in run.scrapes if after < at]
    later = [samples for started, _, samples in run.scrapes if started - 0.6 > at]
    return (before[-1], later[0]) if before and later else None
