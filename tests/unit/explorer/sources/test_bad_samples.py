# SPDX-License-Identifier: Apache-2.0
"""One sample that cannot be costs its own value; the page is read from a server that really answers so."""

from __future__ import annotations

import http.server
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hotstage_explorer import parse
from hotstage_explorer.figures.points import axes
from hotstage_explorer.figures.scale import grown
from hotstage_explorer.picture import Picture
from hotstage_explorer.sources.prometheus import PrometheusSource
from hotstage_explorer.sources.promql import PromQL

HOST = {"job": "hotstage", "instance": "h1"}
WINDOW = {"kind": "k", "severity": "s", "stage": "x"}
Rows = dict[str, list[dict[str, Any]]]
"""What the server answers: `now`, `ticks`, `windows`."""


def gauge(name: str, value: str, **own: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **HOST, **own}, "value": [time.time(), value]}


def sound() -> Rows:
    at = time.time()
    marks = [("time", str(at)), ("up", "1")]
    return {
        "now": [
            *({"metric": {**HOST, "hotstage_sample": mark}, "value": [at, value]} for mark, value in marks),
            gauge("hotstage_endpoint_instance_heat", "1", endpoint="e", instance_id="i", modality="text"),
            gauge("hotstage_breaker_state", "1", breaker="b", state="open"),
            gauge("hotstage_breaker_last_transition_timestamp_seconds", "1700000000", breaker="b"),
            gauge("hotstage_window_active", "2", **WINDOW),
            gauge("hotstage_stage_inflight", "3", stage="a", modality="b"),
        ],
        "ticks": [{"metric": {**HOST, "tick": "fast"}, "values": [[at - 1, "1"], [at, "2"]]}],
        "windows": [{"metric": {**HOST, **WINDOW}, "values": [[at, "2"]]}],
    }


@pytest.fixture
def read() -> Iterator[Callable[..., Picture]]:
    """`read(rows, date=…)` → what one read of a server with these rows makes."""
    servers = []

    def start(rows: Rows, date: str | None = None) -> Picture:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query).get("query", [""])[0]
                body = json.dumps({"status": "success", "data": self.data(query)}).encode()
                self.send_response_only(200)
                self.send_header("Date", date or self.date_time_string())
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def data(self, query: str) -> dict[str, Any]:
                if "buildinfo" in self.path:
                    return {"version": "2.42.0", "goVersion": "go1"}
                if query.startswith("hotstage_ticks"):
                    return {"resultType": "matrix", "result": rows["ticks"]}
                if query.startswith("hotstage_window"):
                    return {"resultType": "matrix", "result": rows["windows"]}
                is_now = "__name__" in query and not query.startswith("timestamp")
                return {"resultType": "vector", "result": rows["now"] if is_now else []}

            def log_message(self, *_: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        source = PrometheusSource(PromQL(f"http://127.0.0.1:{server.server_port}"), "")
        return source.read(Picture("http://x"))

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_what_is_sound_is_all_read(read: Callable[..., Picture]) -> None:
    picture = read(sound())
    assert picture.link == "live"
    assert picture.breakers.value[0].since_ns == 1_700_000_000_000_000_000
    assert [(w.count, w.opened_ns is None) for w in picture.windows.value] == [(2, False)]
    assert picture.hosts[0].sampled_ns is not None


@pytest.mark.parametrize("value", ["1e300", "1e18", "9.3e9", "-5", "+Inf", "NaN"])
def test_a_breaker_of_an_impossible_time_has_no_time(read: Callable[..., Picture], value: str) -> None:
    rows = sound()
    rows["now"][4]["value"][1] = value
    picture = read(rows)
    assert [(b.name, b.state, b.since_ns) for b in picture.breakers.value] == [("b", "open", None)]
    assert len(picture.heat.value) == 1


@pytest.mark.parametrize("at", [1e300, 1e12, -1e300, 10**400], ids=["1e300", "1e12", "-1e300", "10^400"])
def test_a_sample_at_an_impossible_time_is_none(read: Callable[..., Picture], at: float) -> None:
    rows = sound()
    rows["ticks"][0]["values"] += [[at, "3"]]
    rows["windows"][0]["values"] += [[at, "3"]]
    rows["now"][3]["value"][0] = at
    rows["now"][0]["value"][1] = str(at)[:20]
    picture = read(rows)
    assert picture.link == "live"
    assert [host.sampled_ns is None for host in picture.hosts] == [False]
    assert [(w.count, w.opened_ns is None) for w in picture.windows.value] == [(2, False)]
    assert len(picture.heat.value) == 1


def test_ticks_without_one_known_value_leave_the_time_of_the_scrape(read: Callable[..., Picture]) -> None:
    rows = sound()
    rows["ticks"][0]["values"] = [[time.time(), "NaN"]]
    (host,) = read(rows).hosts
    assert host.sampled_ns is not None
    assert host.sampled_at is not None and host.sampled_at > 0


def test_a_count_that_cannot_be_is_at_least_one(read: Callable[..., Picture]) -> None:
    rows = sound()
    rows["now"][5]["value"][1] = rows["windows"][0]["values"][0][1] = rows["now"][6]["value"][1] = "1e50"
    picture = read(rows)
    assert [w.count for w in picture.windows.value] == [1]
    assert [s.inflight for s in picture.stages.value.rows] == [None]


@pytest.mark.parametrize(
    "date",
    [
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
        "Mon, 01 Jan 0001 00:00:00 -0000",
        "Mon, 01 Jan 9999 00:00:00 GMT",
        "Mon, 99 Jan 99999999 00:00:00 -0000",
        "yesterday",
    ],
)
def test_a_date_that_is_none_leaves_our_own_clock(read: Callable[..., Picture], date: str) -> None:
    assert read(sound(), date).link == "live"


def test_seconds_become_nanoseconds_only_where_they_fit() -> None:
    assert parse.nanoseconds(1.5) == 1_500_000_000
    for impossible in (None, "1", -1.0, 1e300, float("inf"), float("nan"), 2**63 / 1e9, 10**400):
        assert parse.nanoseconds(impossible) is None


@pytest.mark.parametrize("value", ["1.7e308", "1e300", "5e-324", "1e-300"])
@pytest.mark.parametrize(
    "gauge_name",
    [
        "hotstage_endpoint_instance_heat",
        "hotstage_endpoint_instance_latency_p95_seconds",
        "hotstage_instance_load_ratio",
    ],
)
def test_a_size_that_cannot_be_is_unknown_and_the_others_are_drawn(
    read: Callable[..., Picture], value: str, gauge_name: str
) -> None:
    def gauges(instance: str, odd: str | None = None) -> list[dict[str, Any]]:
        route = {"endpoint": "e", "instance_id": instance, "modality": "text"}
        own = {
            "hotstage_endpoint_instance_heat": route,
            "hotstage_endpoint_instance_latency_p95_seconds": route,
            "hotstage_instance_load_ratio": {"instance_id": instance},
        }
        return [gauge(name, odd if odd and name == gauge_name else "1", **of) for name, of in own.items()]

    rows = sound()
    rows["now"] = [*rows["now"][:2], *gauges("good"), *gauges("bad", value)]
    points = read(rows).heat.value
    assert {p.instance: p.is_drawable for p in points} == {"good": True, "bad": False}
    scales = grown(None, points)
    assert all(math.isfinite(end) and end > 0 for end in scales.to_json().values())
    for is_log in (False, True):
        axes(scales, 100.0, is_log=is_log)
