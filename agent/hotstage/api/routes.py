# SPDX-License-Identifier: Apache-2.0
"""Every route in one table: parse, ask the view, the sources or the store, answer. No domain logic, no SQL.

`openapi.json` describes the same table for people and programs; a test holds the two together.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import msgspec

from hotstage.api import documents, finished, outbox, probes, snapshots
from hotstage.api.access import Access
from hotstage.api.bell import Bell
from hotstage.api.documents import Document
from hotstage.api.message import ApiError, Request, Response, Stream
from hotstage.api.overrides import OverrideDesk, OverrideOrder
from hotstage.api.stream import EventStream, event_id
from hotstage.api.view import Sources, View, ViewCell
from hotstage.api.window_stacks import telling_stacks
from hotstage.clock import Clock
from hotstage.config.snapshots import RecoveryConfig
from hotstage.errors import HotstageError, StoreError
from hotstage.store import breakers as breaker_rows
from hotstage.store import windows
from hotstage.store.deliveries import Deliveries
from hotstage.store.store import Store

_RECOVERY = RecoveryConfig()
_WINDOW_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_SAME_BOOT_NS = 60_000_000_000
"""Wall minus monotonic time moves no further while a host runs; stacks are of this boot."""


@dataclass(frozen=True, slots=True)
class Api:
    """All that the routes read from, and the three things that they may change."""

    cell: ViewCell
    sources: Sources
    store: Store
    access: Access
    clock: Clock
    events: EventStream
    outbox_bell: Bell
    overrides: OverrideDesk
    deliveries: Deliveries
    recovery: RecoveryConfig = _RECOVERY
    """What survives, for recovery plans."""


@dataclass(frozen=True, slots=True)
class Route:
    """`path` has `{name}` for a variable segment; `socket_only` routes answer on the Unix socket alone."""

    method: str
    path: str
    answer: Callable[[Api, Request], Response | Stream]
    summary: str
    socket_only: bool = False
    is_public: bool = False
    """Answered without the token where the address is open to other hosts."""


def healthz(api: Api, request: Request) -> Response:
    health = api.sources.health()
    status = 503 if health.status == "failing" else 200
    return Response(status, msgspec.json.encode({"status": health.status, "checks": health.checks}))


def readyz(api: Api, request: Request) -> Response:
    is_ready, checks = api.sources.is_ready()
    return Response(200 if is_ready else 503, msgspec.json.encode({"ready": is_ready, "checks": checks}))


def metrics(api: Api, request: Request) -> Response:
    body, content_type = api.sources.metrics(request.headers.get("accept", ""))
    return Response(200, body, content_type)


def openapi(api: Api, request: Request) -> Response:
    body = files("hotstage.api").joinpath("openapi.json").read_bytes()
    return Response(200, body, etag=_tag(body))


def heat(api: Api, request: Request) -> Response:
    def body(view: View) -> Document:
        return documents.heat(view.frame, view.endpoint_modality, api.sources.heat_weight)

    return _of_view(api, "heat", body)


def stages(api: Api, request: Request) -> Response:
    return _of_view(api, "stages", _stages)


def stages_explained(api: Api, request: Request) -> Response:
    pid = request.integer("pid", 0, 0, 1 << 22)
    if not pid:
        raise ApiError(400, "no_pid", "which process?", "ask /v1/stages/explain?pid=PID")
    found = api.sources.explain(pid)
    if found is None:
        raise ApiError(
            404,
            "not_followed",
            f"no thread of process {pid} was seen in a call or mark",
            "`hotstage coverage` lists the processes that are watched",
        )
    return _live(api, found)


def classes(api: Api, request: Request) -> Response:
    return _of_view(api, "classes", lambda view: documents.classes(api.sources.classes(view.at_ns)))


def components(api: Api, request: Request) -> Response:
    return _of_view(
        api, "components", lambda view: msgspec.structs.asdict(api.sources.components(view.at_ns))
    )


def memory(api: Api, request: Request) -> Response:
    return _of_view(api, "memory", lambda view: msgspec.structs.asdict(api.sources.memory()))


def kernels(api: Api, request: Request) -> Response:
    return _live(api, msgspec.structs.asdict(api.sources.kernels(request.integer("limit", 20, 1, 1000))))


def stacks(api: Api, request: Request) -> Response:
    return _live(api, msgspec.structs.asdict(api.sources.stacks()))


def latency(api: Api, request: Request) -> Response:
    return _of_view(api, "latency", lambda view: msgspec.structs.asdict(api.sources.latency(view.at_ns)))


def breakers(api: Api, request: Request) -> Response:
    def body(view: View) -> Document:
        return documents.breakers(view.breakers, api.clock)

    view, made = api.cell.body("breakers", body)
    # The tag is of the breakers themselves: the same while none moves, though `at` and `tick` go on.
    told = [
        (each.name, each.shown, each.enforced, each.override, each.is_stale, each.since_ns, each.transitions)
        for each in view.breakers
    ]
    return Response(200, made, etag=_tag(repr((view.is_stale, told)).encode()))


def window_list(api: Api, request: Request) -> Response:
    state = request.choice("state", "all", ("open", "closed", "all"))
    limit = request.integer("limit", 100, 1, 1000)
    view = api.cell.view
    live = {} if state == "closed" else {each.id: documents.window(each, api.clock) for each in view.windows}
    # Newest first: the open ones as they are now, then what the store has.
    found = list(reversed(live.values()))
    if state != "open":
        stored = windows.newest(api.store.database, include_open=False, limit=limit)
        found += [_stored_window(each) for each in stored if each.window.id not in live]
    return Response(200, api.cell.encode(view, {"windows": found[:limit]}))


def window_one(api: Api, request: Request) -> Response:
    window_id = request.segments[2]
    view = api.cell.view
    if _WINDOW_ID.fullmatch(window_id):
        for each in view.windows:
            if each.id == window_id:
                document = documents.window(each, api.clock)
                stacks = telling_stacks(each, api.sources.stacks().stacks, api.clock)
                return Response(200, api.cell.encode(view, {**document, "stacks": stacks}))
        stored = windows.load(api.store.database, window_id)
        if stored is not None:
            clock = _StoredClock(stored.wall_offset_ns)
            is_now = abs(stored.wall_offset_ns - api.clock.wall_ns_of(0)) < _SAME_BOOT_NS
            found = api.sources.stacks().stacks if is_now else ()
            stacks = telling_stacks(stored.window, found, clock)
            return Response(200, api.cell.encode(view, {**_stored_window(stored), "stacks": stacks}))
    raise ApiError(404, "no_such_window", "no such window", "list them with /v1/windows")


def transitions(api: Api, request: Request) -> Response:
    limit = request.integer("limit", 100, 1, 1000)
    found = breaker_rows.newest_transitions(api.store.database, limit, request.query.get("breaker"))
    moves = [
        {
            "seq": each.seq,
            "breaker": each.transition.name,
            **documents.transition(each.transition, _StoredClock(each.wall_ns - each.transition.at_ns)),
        }
        for each in found
    ]
    return _live(api, {"transitions": moves})


def coverage(api: Api, request: Request) -> Response:
    return _live(api, api.sources.coverage())


def frames(api: Api, request: Request) -> Response:
    names = [name for name in request.query.get("columns", "").split(",") if name]
    return _live(api, api.sources.frames(names, request.number("seconds", 60.0, 1.0, 86_400.0)))


def events(api: Api, request: Request) -> Stream:
    last_event_id = event_id(request.headers.get("last-event-id"))
    if request.method == "HEAD":
        return Stream(lambda out: None)
    api.events.take_place()
    return Stream(lambda out: api.events.serve(last_event_id, out), api.events.give_place_back)


def override(api: Api, request: Request) -> Response:
    if not api.access.may_operate(request.peer, request.is_authorised):
        raise ApiError(
            403,
            "not_an_operator",
            f"{request.peer.address} may not override breakers",
            "use the Unix socket as root or as an operator, or send the bearer token",
        )
    actor = request.peer.address if not request.is_authorised else f"token from {request.peer.address}"
    record = api.overrides.order(request.segments[2], request.decode(OverrideOrder), actor)
    return _live(api, {"breaker": documents.breaker(record, api.clock)})


ROUTES: tuple[Route, ...] = (
    Route("GET", "/metrics", metrics, "Prometheus exposition"),
    Route("GET", "/healthz", healthz, "Whether the agent's ticks are alive", is_public=True),
    Route("GET", "/readyz", readyz, "Whether probes are attached and sampled", is_public=True),
    Route("GET", "/v1/openapi.json", openapi, "This description"),
    Route("GET", "/v1/heat", heat, "Heat, latency and load per endpoint and instance"),
    Route("GET", "/v1/stages", stages, "Requests and latency per stage and modality"),
    Route(
        "GET", "/v1/stages/explain", stages_explained, "Why each thread of a process counts as what it does"
    ),
    Route("GET", "/v1/classes", classes, "Finished requests by modality fingerprint and size"),
    Route("GET", "/v1/components", components, "Time of a request by stage and wait: mean, p95, variance"),
    Route("GET", "/v1/latency", latency, "First and further tokens by modality, and what made them"),
    Route("GET", "/v1/memory", memory, "Memory of GPUs by process, kind and stage; fragmentation"),
    Route("GET", "/v1/kernels", kernels, "Launches of each process by kernel, most first"),
    Route("GET", "/v1/stacks", stacks, "From where slow and failing calls were made, newest first"),
    Route("GET", "/v1/windows", window_list, "Anomaly windows, newest first"),
    Route("GET", "/v1/windows/{id}", window_one, "One anomaly window"),
    Route(
        "GET", "/v1/windows/{id}/snapshot", snapshots.stored_one, "What was in flight when a window opened"
    ),
    Route(
        "GET",
        "/v1/windows/{id}/snapshot/plan",
        snapshots.stored_plan,
        "From where each request of a window's opening can go on",
    ),
    Route("GET", "/v1/transitions", transitions, "Breaker moves of all time, newest first"),
    Route("GET", "/v1/breakers", breakers, "Circuit breakers and their transitions"),
    Route("POST", "/v1/breakers/{name}/override", override, "Force, disable or reset a breaker"),
    Route("GET", "/v1/coverage", coverage, "What is attached, counted and lost"),
    Route("GET", "/v1/probes", probes.state, "Whether the probes are switched off, by whom and why"),
    Route("POST", "/v1/probes", probes.switch, "Switch all probes off, or on again"),
    Route("GET", "/v1/snapshot", snapshots.now, "Requests in flight and where threads are"),
    Route("GET", "/v1/snapshot/plan", snapshots.plan_now, "From where each request in flight can go on"),
    Route("GET", "/v1/snapshots", snapshots.stored_list, "Snapshots of openings, newest first"),
    Route("GET", "/v1/snapshots/{id}", snapshots.stored_one, "One stored snapshot, also by its window's id"),
    Route(
        "GET", "/v1/snapshots/{id}/plan", snapshots.stored_plan, "From where each of its requests can go on"
    ),
    Route("GET", "/v1/requests", finished.requests, "Finished requests with the time of each stage"),
    Route("GET", "/v1/requests/{id}", finished.waterfall, "A finished request's stages and waits"),
    Route("GET", "/v1/frames", frames, "The last frames, by column"),
    Route(
        "GET",
        "/v1/events",
        events,
        "Transitions, windows, moves of the probes as server-sent events",
    ),
    Route("GET", "/v1/outbox", outbox.rows, "Events that wait for the notifier", socket_only=True),
    Route(
        "POST",
        "/v1/outbox/ack",
        outbox.acknowledge,
        "Forget events that the notifier holds",
        socket_only=True,
    ),
)


class Router:
    """Finds the route of a request; the rules that hold for all routes are here."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._routes = [(tuple(route.path.split("/")[1:]), route) for route in ROUTES]

    def __call__(self, request: Request) -> Response | Stream:
        """The answer. Raises ApiError: 404, 405, 401, 403, or what the route raises."""
        route = self._find(request)
        if route.socket_only and not request.peer.is_local_socket:
            raise ApiError(
                403, "socket_only", f"{route.path} is served on the Unix socket", "see http.socket"
            )
        is_open = not self._api.access.is_loopback and not request.peer.is_local_socket
        if is_open and not route.is_public and not request.is_authorised:
            challenge = {"WWW-Authenticate": "Bearer"}
            raise ApiError(401, "no_token", "the bearer token is missing", "see http.token_file", challenge)
        try:
            return route.answer(self._api, request)
        except StoreError as error:
            raise ApiError(503, "store", error.message, error.remedy or "see /healthz") from error
        except HotstageError as error:
            # While it begins or ends, what a route reads from is not there.
            raise ApiError(503, "not_now", error.message, error.remedy or "ask again in a moment") from error

    def _find(self, request: Request) -> Route:
        method = "GET" if request.method == "HEAD" else request.method
        matching = [route for path, route in self._routes if _matches(path, request.segments)]
        for route in matching:
            if route.method == method:
                return route
        if matching:
            allowed = ", ".join(route.method for route in matching)
            raise ApiError(
                405,
                "method_not_allowed",
                f"{method} is not for this path",
                f"use {allowed}",
                {"Allow": allowed},
            )
        raise ApiError(404, "not_found", "no such path", "see /v1/openapi.json")


def _matches(path: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    if len(path) != len(segments):
        return False
    return all(
        want == got or (want.startswith("{") and got != "") for want, got in zip(path, segments, strict=True)
    )


def _of_view(api: Api, key: str, make: Callable[[View], Document]) -> Response:
    view, body = api.cell.body(key, make)
    return Response(200, body, etag=f'W/"{view.at_ns:x}"')


def _tag(content: bytes) -> str:
    """A weak tag: compressed or not, it is the same content."""
    return f'W/"{hashlib.blake2b(content, digest_size=8).hexdigest()}"'


def _live(api: Api, document: Document) -> Response:
    return Response(200, api.cell.encode(api.cell.view, document))


def _stages(view: View) -> Document:
    if view.frame is None:
        return {"unattributed_ratio": None, "stages": []}
    return documents.stages(view.frame, view.windows)


class _StoredClock:
    """Dates a stored window's monotonic times by the offset that was stored with it."""

    def __init__(self, wall_offset_ns: int) -> None:
        self._offset_ns = wall_offset_ns

    def wall_ns_of(self, monotonic_ns: int) -> int:
        return monotonic_ns + self._offset_ns

    def monotonic_ns(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return self._offset_ns


def _stored_window(stored: windows.StoredWindow) -> Document:
    document = documents.window(stored.window, _StoredClock(stored.wall_offset_ns))
    return {**document, "interrupted": stored.state == "interrupted"}
