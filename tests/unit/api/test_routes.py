# SPDX-License-Identifier: Apache-2.0
"""Every route, asked over a socket, and held against the OpenAPI file."""

from __future__ import annotations

import json
import threading
from importlib.resources import files

import jsonschema
import msgspec
import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Modality, Stage, sample

from hotstage.api.requests import RequestLog
from hotstage.api.routes import ROUTES
from hotstage.api.view import Health, View
from hotstage.config.classes import ClassesConfig
from hotstage.config.settings import FrameConfig
from hotstage.errors import HotstageError
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame
from hotstage.frame.request_statistics import RequestStatistics
from hotstage.frame.request_timings import RequestTimings
from hotstage.probes.maps.layout import FINISHED_DTYPE
from hotstage.stages.snapshot import snapshot
from hotstage.store import snapshots
from hotstage.store.snapshots import SnapshotCause, StoredSnapshot
from hotstage.store.store import Changes

START = 50 * SECOND
OPENAPI = json.loads(files("hotstage.api").joinpath("openapi.json").read_text())


def conforms(body, schema):
    """Raise unless `body` is what the OpenAPI file promises under this name."""
    jsonschema.validate(body, {"$ref": f"#/components/schemas/{schema}", "components": OPENAPI["components"]})
    return body


def a_frame(at_ns=1):
    route = Entity(EntityKind.route, endpoint="/v1/chat", instance="i-0")
    instance = Entity(EntityKind.instance, instance="i-0")
    stage = Entity(EntityKind.stage, stage="vision_encode", modality="image")
    entities = (HOST, route, instance, stage)
    values = np.full((len(entities), len(COLUMNS)), np.nan)
    values[1, COLUMN_INDEX["endpoint_heat"]] = 4.5
    values[2, COLUMN_INDEX["load_ratio"]] = 0.25
    values[3, COLUMN_INDEX["requests_ended"]] = 23
    return Frame(at_ns, entities, values)


def keep_snapshot(served, body):
    cause = SnapshotCause("window", "w-1", "w-1")
    with served.api.store.database.transaction() as cursor:
        snapshots.save(cursor, StoredSnapshot("s-1", 5_000_000_000, body, False, 1, 0, 0, (cause,)))


def test_the_openapi_file_lists_exactly_the_routes():
    described = {(method.upper(), path) for path, methods in OPENAPI["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = OPENAPI["paths"][route.path][route.method.lower()]
        assert operation["summary"] == route.summary
        in_path = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
        assert in_path == {part[1:-1] for part in route.path.split("/") if part.startswith("{")}
        assert ("Unix socket only" in operation.get("description", "")) == route.socket_only


def test_every_schema_is_valid_and_every_reference_leads_somewhere():
    for schema in OPENAPI["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(OPENAPI)
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used == set(OPENAPI["components"]["schemas"])


def test_the_file_is_served(served):
    answer = served.ask("/v1/openapi.json")
    assert answer.json == OPENAPI
    assert served.ask("/v1/openapi.json", if_none_match=answer.headers["etag"]).status == 304


def test_heat_and_stages_before_and_after_the_first_frame(served):
    assert conforms(served.ask("/v1/heat").json, "Heat")["points"] == []
    assert conforms(served.ask("/v1/stages").json, "Stages")["stages"] == []
    served.api.cell.swap(View(3, 10, frame=a_frame(), endpoint_modality={"/v1/chat": "image"}))
    heat = conforms(served.ask("/v1/heat").json, "Heat")
    (point,) = heat["points"]
    assert (point["heat"], point["load_ratio"], point["latency_p95_seconds"]) == (4.5, 0.25, None)
    assert (heat["tick"], heat["stale"], heat["host"]) == (3, False, "host-1")
    (stage,) = conforms(served.ask("/v1/stages").json, "Stages")["stages"]
    assert (stage["stage"], stage["requests"]) == ("vision_encode", 23)


def test_classes_and_components_are_as_promised_with_and_without_requests(serve, sources):
    found = RequestStatistics(ClassesConfig(), FrameConfig())
    request = KernelRequest(1, at_ns=START).begin(Stage.vision_encode, START, modality=Modality.image)
    finished = request.end(Stage.vision_encode, START + MS).finished(START + SECOND)
    found.keep(START + SECOND, np.array([finished], FINISHED_DTYPE))
    timings = RequestTimings(FrameConfig())
    timings.keep(np.array([finished], FINISHED_DTYPE))
    served = serve(sources(classes=found.classes, components=timings.components, latency=timings.latency))
    served.api.cell.swap(View(1, START + SECOND))
    body = conforms(served.ask("/v1/classes").json, "Classes")
    assert [(row["fingerprint"], row["size"], row["p99_seconds"]) for row in body["classes"]] == [
        ("vlm", "unknown", None)
    ]
    body = conforms(served.ask("/v1/components").json, "Components")
    assert body["request"]["count"] == 1
    assert [row["stage"] for row in body["components"] if row["count"]] == ["vision_encode", "unmarked"]
    body = conforms(served.ask("/v1/latency").json, "Latency")
    assert [(row["modality"], row["requests"], row["ttft_samples"]) for row in body["modalities"]] == [
        ("image", 1, 0)
    ]
    idle = serve(directory="idle")
    assert conforms(idle.ask("/v1/classes").json, "Classes")["classes"] == []
    assert conforms(idle.ask("/v1/components").json, "Components")["components"] == []
    assert conforms(idle.ask("/v1/latency").json, "Latency")["total"]["ttft_p95_seconds"] is None


def test_a_finished_request_is_found_by_its_id_and_number_and_filtered(serve, sources, clock):
    log = RequestLog(clock)
    request = KernelRequest(1, at_ns=START).begin(Stage.vision_encode, START + MS, modality=Modality.image)
    request.row["id"] = b"chat/1 ?"
    finished = request.end(Stage.vision_encode, START + 5 * MS).finished(START + 9 * MS)
    log.add(np.array([finished], FINISHED_DTYPE), 0)
    served = serve(sources(requests=log.document, waterfall=log.waterfall))
    for name in ("chat%2F1%20%3F", "1"):
        body = conforms(served.ask(f"/v1/requests/{name}").json, "Waterfall")
        assert (body["request"]["id"], [each["name"] for each in body["segments"]]) == (
            "chat/1 ?",
            ["queue", "vision_encode", "unmarked"],
        )
    missing = served.ask("/v1/requests/2")
    assert (missing.status, conforms(missing.json, "Error")["error"]["code"]) == (404, "no_such_request")
    for query, count in (("", 1), ("?stage=vision_encode&modality=image&order=slowest&outcome=ok", 1)):
        assert len(conforms(served.ask(f"/v1/requests{query}").json, "Requests")["requests"]) == count
    for query in ("stage=tokenize", "modality=audio", "endpoint=/nothing", "instance=i-9", "outcome=error"):
        assert served.ask(f"/v1/requests?{query}").json["requests"] == []
    for query in ("modality=smell", "order=random", f"endpoint={'x' * 65}", "outcome=great"):
        answer = served.ask(f"/v1/requests?{query}")
        assert (answer.status, answer.json["error"]["code"]) == (400, "bad_parameter")


def test_a_poller_pays_for_a_tick_once(served):
    served.api.cell.swap(View(3, 10, frame=a_frame()))
    tag = served.ask("/v1/heat").headers["etag"]
    assert served.ask("/v1/heat", if_none_match=tag).status == 304
    served.api.cell.swap(View(4, 20, frame=a_frame()))
    assert served.ask("/v1/heat", if_none_match=tag).status == 200


def test_breakers_keep_their_tag_over_ticks_until_one_moves(served, make):
    served.api.cell.swap(View(1, 10, breakers=(make.breaker(),)))
    answer = served.ask("/v1/breakers")
    body = conforms(answer.json, "Breakers")
    assert body["breakers"][0]["transitions"][0]["to"] == "open"
    served.api.cell.swap(View(2, 20, breakers=(make.breaker(updated_ns=8_000),)))
    assert served.ask("/v1/breakers", if_none_match=answer.headers["etag"]).status == 304
    served.api.cell.swap(View(3, 30, breakers=(make.breaker(since_ns=9_000),)))
    assert served.ask("/v1/breakers", if_none_match=answer.headers["etag"]).status == 200


def test_windows_are_the_open_ones_of_the_view_and_the_closed_ones_of_the_store(served, make):
    kept = (make.window("closed", opened_ns=1, closed_ns=9), make.window("live"))
    served.api.store.commit([Changes(1, 5_000_000_000, windows=kept)])
    served.api.cell.swap(View(1, 10, windows=(make.window("live", score=9.5),)))

    def listed(query):
        body = conforms(served.ask(f"/v1/windows{query}").json, "Windows")
        return [(each["id"], each["state"], each["score"]) for each in body["windows"]]

    live, closed = ("live", "open", 9.5), ("closed", "closed", 3.5)
    assert listed("") == [live, closed]
    assert listed("?state=open") == [live]
    assert listed("?state=closed") == [closed]
    assert listed("?limit=1") == [live]
    stored = conforms(served.ask("/v1/windows/closed").json, "OneWindow")
    assert (stored["closed_at_ns"], stored["interrupted"]) == (5_000_000_009, False)
    assert conforms(served.ask("/v1/windows/live").json, "OneWindow")["score"] == 9.5


def test_the_snapshot_of_a_windows_opening_is_served(served):
    keep_snapshot(served, b'{"requests":[{"id":"r-1"}]}')
    body = conforms(served.ask("/v1/windows/w-1/snapshot").json, "StoredSnapshot")
    assert (body["taken_at"], body["snapshot"]) == ("1970-01-01T00:00:05.000Z", {"requests": [{"id": "r-1"}]})
    assert body["window_id"] == "w-1"
    assert conforms(served.ask("/v1/snapshots/s-1").json, "StoredSnapshot")["snapshot"] == body["snapshot"]
    for path in ("/v1/windows/w-2/snapshot", "/v1/snapshots/s-2", "/v1/snapshots/s-2/plan"):
        answer = served.ask(path)
        assert (answer.status, answer.code) == (404, "no_such_snapshot")


def test_stored_snapshots_are_listed_with_what_caused_them(served):
    keep_snapshot(served, b"{}")
    (row,) = conforms(served.ask("/v1/snapshots?limit=5").json, "StoredSnapshots")["snapshots"]
    assert (row["id"], row["requests"], row["bytes"]) == ("s-1", 1, 2)
    assert row["causes"] == [{"kind": "window", "name": "w-1", "window_id": "w-1"}]
    assert served.ask("/v1/snapshots?limit=0").status == 400


def test_there_is_a_plan_for_what_is_in_flight_and_for_what_was(serve, sources, clock):
    request = KernelRequest(1, at_ns=50).begin(Stage.preprocess, 60, modality=Modality.image)
    taken = snapshot(sample(90, requests=[request]), clock, {})
    served = serve(sources=sources(snapshot=lambda: taken))
    live = served.ask("/v1/snapshot").json
    for part in ("Common", "Snapshot"):
        conforms(live, part)
    assert live["requests"][0]["open"][0]["stage"] == "preprocess"
    keep_snapshot(served, msgspec.json.encode(taken))
    for path, where in (
        ("/v1/snapshot/plan", None),
        ("/v1/snapshots/s-1/plan", "s-1"),
        ("/v1/windows/w-1/snapshot/plan", "s-1"),
    ):
        plan = conforms(served.ask(path).json, "RecoveryPlan")
        assert (plan["snapshot_id"], plan["redo"]) == (where, 1)
        assert plan["requests"][0]["image"]["resampling"] == "never"


def test_a_snapshot_of_another_version_is_served_and_not_planned_by(served):
    keep_snapshot(served, b'{"requests":[{"id":"r-1"}]}')
    assert served.ask("/v1/snapshots/s-1").status == 200
    answer = served.ask("/v1/snapshots/s-1/plan")
    assert (answer.status, answer.code) == (409, "snapshot_too_old")


def test_every_move_of_a_breaker_is_kept_and_dated(served, make):
    moves = (make.transition("host", at_ns=7), make.transition("gpu:GPU-a", at_ns=9))
    served.api.store.commit([Changes(10, 5_000_000_000, transitions=moves)])
    body = conforms(served.ask("/v1/transitions").json, "Transitions")
    assert [(m["breaker"], m["at_ns"]) for m in body["transitions"]] == [
        ("gpu:GPU-a", 5_000_000_009),
        ("host", 5_000_000_007),
    ]
    one = served.ask("/v1/transitions?breaker=host").json["transitions"]
    assert [move["to"] for move in one] == ["open"]


@pytest.mark.parametrize(
    "path",
    ["w-9", "..%2f..%2fetc%2fpasswd", "%2e%2e", "' OR 1=1 --", "w%00", "x" * 500, "%ff"],
)
def test_a_window_id_is_a_name_never_a_path_or_a_query(served, make, path):
    served.api.store.commit([Changes(1, 1, windows=(make.window("w-1", closed_ns=9),))])
    answer = served.ask("/v1/windows/" + path.replace(" ", "%20"))
    assert (answer.status, answer.code) == (404, "no_such_window")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/windows/", 404, "not_found"),
        ("GET", "/v1/../healthz", 404, "not_found"),
        ("GET", "/v1/windows/a/b", 404, "not_found"),
        ("POST", "/v1/heat", 405, "method_not_allowed"),
        ("DELETE", "/healthz", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/heat", 405, "method_not_allowed"),
        ("GET", "/v1/windows?limit=0", 400, "bad_parameter"),
        ("GET", "/v1/windows?state=x", 400, "bad_parameter"),
        ("GET", "/v1/frames?seconds=nan", 400, "bad_parameter"),
        ("GET", "/v1/requests?stage=", 400, "bad_parameter"),
        ("GET", "/v1/requests?outcome=", 400, "bad_parameter"),
        ("GET", "/v1/requests?limit=", 400, "bad_parameter"),
        ("GET", "/v1/outbox", 403, "socket_only"),
        ("POST", "/v1/outbox/ack", 403, "socket_only"),
        ("POST", "/v1/breakers/host/override", 403, "not_an_operator"),
    ],
)
def test_what_is_wrong_is_said_in_one_form(served, method, path, status, code):
    answer = served.ask(path, method)
    assert (answer.status, answer.code) == (status, code)
    assert conforms(answer.json, "Error")["error"]["remedy"]
    assert ("allow" in answer.headers) == (status == 405)


def test_health_is_503_only_when_failing(serve, sources):
    for number, (status, code) in enumerate((("ok", 200), ("degraded", 200), ("failing", 503))):
        health = Health(status, {"tick": "late"})
        served = serve(sources=sources(health=lambda health=health: health), directory=str(number))
        answer = served.ask("/healthz")
        assert answer.status == code
        assert conforms(answer.json, "Health") == {"status": status, "checks": {"tick": "late"}}


def test_readiness_is_503_until_attached(serve, sources):
    served = serve(sources=sources(is_ready=lambda: (False, {"probes": "attaching"})))
    answer = served.ask("/readyz")
    assert (answer.status, conforms(answer.json, "Ready")["ready"]) == (503, False)


def test_sources_get_their_parameters(served):
    assert served.ask("/v1/frames?columns=load_ratio,inflight&seconds=9.5").json["seconds"] == 9.5
    assert served.ask("/v1/frames?columns=load_ratio,inflight").json["columns"] == ["load_ratio", "inflight"]
    assert served.ask("/v1/requests?after=7&limit=3").json["next"] == 7
    assert served.ask("/v1/coverage").json["attached"] == 3
    assert served.ask("/v1/snapshot").json["unclean"] == 0
    assert served.ask("/metrics").body == b"hotstage_up 1.0\n"


def test_an_open_address_answers_without_the_token_only_to_health_checks(serve, tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef")
    served = serve(listen="0.0.0.0:0", token_file=str(tmp_path / "token"), allow_plaintext=True)
    assert served.ask("/healthz").status == 200
    answer = served.ask("/v1/heat")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert served.ask("/v1/heat", authorization="Bearer 0123456789abcdef").status == 200
    assert served.ask("/v1/heat", unix=True).status == 200


class Tick(threading.Thread):
    """Answers overrides as the daemon's tick does."""

    def __init__(self, desk, record):
        super().__init__()
        self.desk, self.record, self.seen, self.stop = desk, record, [], threading.Event()

    def run(self):
        while not self.stop.wait(0.002):
            for pending in self.desk.take():
                self.seen.append((pending.name, pending.order.action, pending.actor))
                if pending.name == self.record.name:
                    pending.done(self.record)
                else:
                    pending.refuse("no such breaker", "list them with /v1/breakers")


@pytest.fixture
def tick(make):
    running = []

    def start(served):
        running.append(Tick(served.api.overrides, make.breaker("endpoint:/v1/chat")))
        running[-1].start()
        return running[-1]

    yield start
    for thread in running:
        thread.stop.set()
        thread.join(5)


TRIP = {"action": "force_open", "ttl_seconds": 60, "reason": "test"}


def test_an_override_on_the_socket_has_its_actor_from_the_kernel(served, tick):
    ticking = tick(served)
    answer = served.ask("/v1/breakers/endpoint:%2Fv1%2Fchat/override", "POST", TRIP, unix=True)
    assert conforms(answer.json, "OneBreaker")["breaker"]["name"] == "endpoint:/v1/chat"
    assert ticking.seen == [("endpoint:/v1/chat", "force_open", "uid 0")]


def test_an_override_over_tcp_needs_the_token(serve, tick, tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef")
    served = serve(token_file=str(tmp_path / "token"))
    ticking = tick(served)
    path = "/v1/breakers/endpoint:%2Fv1%2Fchat/override"
    assert served.ask(path, "POST", TRIP).status == 403
    assert served.ask(path, "POST", TRIP, authorization="Bearer wrong-wrong-wrong").status == 403
    assert served.ask(path, "POST", TRIP, authorization="Bearer 0123456789abcdef").status == 200
    assert ticking.seen == [("endpoint:/v1/chat", "force_open", "token from 127.0.0.1")]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{}", {"action": "force_open"}, TRIP | {"ttl_seconds": -1}, TRIP | {"extra": 1}]
)
def test_a_bad_order_never_reaches_the_tick(served, tick, body):
    ticking = tick(served)
    answer = served.ask("/v1/breakers/host/override", "POST", body, unix=True)
    assert (answer.status, answer.code) == (400, "bad_body")
    assert ticking.seen == []


def test_an_order_for_a_breaker_that_is_not_there_is_404(served, tick):
    tick(served)
    answer = served.ask("/v1/breakers/nope/override", "POST", TRIP, unix=True)
    assert (answer.status, answer.code) == (404, "no_such_breaker")


def test_a_store_that_cannot_be_read_is_a_503_and_the_rest_is_served(served):
    served.api.store.database._reader.close()
    answer = served.ask("/v1/windows")
    assert (answer.status, answer.code) == (503, "store")
    assert served.ask("/v1/heat").status == 200


def test_what_is_not_there_while_the_agent_ends_is_a_503_with_its_reason(serve, sources, caplog):
    def ended():
        raise HotstageError("the probes are not started")

    answer = serve(sources(coverage=ended)).ask("/v1/coverage")
    assert (answer.status, answer.code) == (503, "not_now")
    assert answer.json["error"]["message"] == "the probes are not started"
    assert answer.json["error"]["remedy"]
    assert "request failed" not in caplog.text
